"""Training speed on a CPU or GPU: target tokens a second without padding, for the small and the base model.

    python tests/benchmarks/train.py --data prepared/multi30k [--sizes small,base] [--seconds 60] [--precision auto]
    python tests/benchmarks/train.py --data prepared/multi30k --peer-python peer-eole/bin/python   # in turn with it
    python tests/benchmarks/train.py --data prepared/multi30k --sizes small --curve 300   # bf16 beside fp32
    python tests/benchmarks/train.py --data prepared/multi30k --sizes small --soak 10     # memory over epochs

The real trainer runs on real data: dropout, masks, label smoothing, Adam, batches of at most 4,096 tokens; validation
and checkpoints are left out. Each size runs in a process of its own, so that its peak memory is its own. The first
seconds warm up and are not counted. --curve trains the same updates in bf16 and in fp32, one after the other, and
prints the loss of each tenth of them; --soak prints the memory that the process holds after each of some epochs.
The peers' figures beside it were measured on the same kind of machine (2 cores
with AVX-512 and bf16) and the same data, with an 8,000-entry vocabulary, by their own logs. With --peer-python, a
Python that has eole or fairseq installed (train_peers.py says how), that peer trains here and now on the same tokens:
ours, the peer, ours, the peer, so that what else the machine does meets both.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from command_line import print_header
from padding import padding
from train_peers import Peer, find_peer, tokens_per_second, write_text

from aiayn_cli.checkpoint.metrics_log import MetricsLog, read_metrics
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import choose_device
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import count_parameters
from aiayn_cli.recipe_keys import ModelConfig, TrainingConfig
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.trainer import Hooks, Trainer

SIZES = {
    "small": {"n_encoder_layers": 4, "n_decoder_layers": 4, "d_model": 256, "d_ff": 1024, "n_heads": 4},
    "base": {},
}
PEERS = {  # target tokens/s without padding: (small, base)
    "eole 0.6.4, bf16": (3698, 1233),
    "fairseq 0.12.3.1, fp32 by oneDNN": (2991, 850),
    "fairseq 0.12.3.1, fp32": (2160, 534),
    "OpenNMT-py 3.5.1, fp32": (2011, 513),
    "Marian 1.12.42, fp32": (1953, 464),
    "Sockeye 3.1.34, fp32": (1728, 408),
    "JoeyNMT 2.3.0, fp32": (861, 226),
}
WARM_UP_SECONDS = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("prepared/multi30k"), help="folder made by aiayn prepare")
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured seconds of each size")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--max-tokens", type=int, default=0, help="padded tokens of a micro-batch; 0 = the device's")
    parser.add_argument("--precision", default="auto", choices=("auto", "bf16", "fp32"))
    parser.add_argument("--peer-python", type=Path, action="append", default=[], help="a Python with eole or fairseq")
    parser.add_argument("--rounds", type=int, default=2, help="times that each trains, in turn, with --peer-python")
    parser.add_argument("--curve", type=int, metavar="UPDATES", help="compare the loss with fp32 over so many updates")
    parser.add_argument("--soak", type=int, metavar="EPOCHS", help="print memory after each of so many epochs")
    parser.add_argument("--one-size", help=argparse.SUPPRESS)  # what each child process measures
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)  # where it leaves the figure
    arguments = parser.parse_args()
    if arguments.one_size:
        measure(arguments)
        return
    for size in arguments.sizes.split(",") if arguments.curve or arguments.soak else []:
        if arguments.curve:
            compare_with_fp32(arguments, size)
        if arguments.soak:
            soak(arguments, size)
    if arguments.curve or arguments.soak:
        return
    print_header()
    print(f"{'':34}" + "".join(f"{size:>10}" for size in SIZES))
    for peer, figures in PEERS.items():
        print(f"{peer:34}" + "".join(f"{figure:10,}" for figure in figures))
    peers = [find_peer(python) for python in arguments.peer_python]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an orderly end, which ends a peer too
    for size in arguments.sizes.split(","):
        in_turn(arguments, size, peers)


def in_turn(arguments: argparse.Namespace, size: str, peers: list[Peer]) -> None:
    """Train one size in a process of its own, and with each peer, in turn; print the figures and their ratios."""
    column = list(SIZES).index(size)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {peer.label: [] for peer in peers}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if peers:
            data = PreparedData.load(arguments.data)
            write_text(folder, data)
        for _ in range(arguments.rounds if peers else 1):
            result = folder / "speed.json"
            subprocess.run([sys.executable, *sys.argv, "--one-size", size, "--result", str(result)], check=True)
            ours.append(json.loads(result.read_bytes()))
            for peer in peers:
                shape = ModelConfig(**SIZES[size])
                speed = tokens_per_second(
                    peer, folder, data.vocab_size, shape, arguments.batch_tokens, WARM_UP_SECONDS, arguments.seconds
                )
                theirs[peer.label].append(speed)
                print(f"{peer.label + ', here':34}{'':{10 * column}}{speed:10,.0f}", flush=True)
    for label, speeds in theirs.items():
        ratios = ", ".join(f"{mine / other:.2f}" for mine, other in zip(ours, speeds, strict=True))
        mean = sum(ours) / sum(speeds)
        print(f"{size}: aiayn / {label}: {mean:.2f} ({'round by round ' if len(speeds) > 1 else 'one round '}{ratios})")


def measure(arguments: argparse.Namespace) -> None:
    """Train one size for a while and print what it did."""
    device = choose_device("auto", arguments.precision)
    rate = matmul_gflops(device.device, device.dtype)
    start = time.perf_counter()
    marks: list[tuple[float, TrainingState]] = []  # when the warm-up and the measured time ended

    def enough() -> str:
        now = time.perf_counter()
        if not marks and now - start > WARM_UP_SECONDS:
            marks.append((now, trainer.state))
        elif marks and now - marks[0][0] > arguments.seconds:
            marks.append((now, trainer.state))
            return "SIGTERM"  # ends the training
        return ""

    trainer, data, config = make_trainer(arguments, arguments.one_size, device, enough)
    model = trainer.model
    trainer.train()
    (began, before), (ended, after) = marks
    speed = (after.tgt_tokens - before.tgt_tokens) / (ended - began)
    # 6 operations for each weight and token: the encoder sees source tokens, decoder and projection target tokens.
    encoder = count_parameters(model.encoder_layers)
    decoder = count_parameters(model.decoder_layers) + model.output.weight.numel()
    src_tokens, tgt_tokens = (data.train.n_tokens(side) + len(data.train) for side in ("src", "tgt"))
    gflops = 6e-9 * speed * (encoder * src_tokens / tgt_tokens + decoder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    packed = device.device.type == "cpu" and model.reads_packed
    waste = padding(data.train, config.batch_tokens, config.max_tokens, packed=packed)
    column = list(SIZES).index(arguments.one_size)
    if arguments.result:
        arguments.result.write_text(json.dumps(speed), encoding="ascii")
    label = f"aiayn, {'bf16' if device.dtype is torch.bfloat16 else 'fp32'}"
    print(
        f"{label:34}{'':{10 * column}}{speed:10,.0f}{'':{10 * (1 - column)}}  "
        f"{count_parameters(model):,} parameters, {gflops:,.0f} GFLOP/s = {100 * gflops / rate:.0f} % of the "
        f"{rate:,.0f} of a matrix product, peak {peak:,.0f} MB, "
        f"{waste}"
    )


def make_trainer(
    arguments: argparse.Namespace,
    size: str,
    device: object,
    interrupted: Callable[[], str],
    max_updates: int = 10**9,
    log_every_steps: int = 10**9,
    metrics: Path | None = None,
) -> tuple[Any, Any, Any]:
    """A trainer of fresh weights, its data and its settings."""
    data = PreparedData.load(arguments.data)
    shape = ModelConfig(**SIZES[size])
    torch.manual_seed(1)
    model = build_model(shape, data.vocab_size).to(device.device)
    config = TrainingConfig(
        batch_tokens=arguments.batch_tokens,
        max_tokens=arguments.max_tokens or 4096,
        max_updates=max_updates,
        save_every_steps=10**9,
        log_every_steps=log_every_steps,
    )
    weights = {name: p.detach().float().clone() for name, p in model.named_parameters()}
    model = model.to(device.dtype)
    adam, hooks = MasterAdam(model, config, weights), Hooks(save=lambda *_: None, interrupted=interrupted)
    trainer = Trainer(model, adam, data.train, config, Worker(), MetricsLog(metrics), hooks, TrainingState())
    return trainer, data, config


def compare_with_fp32(arguments: argparse.Namespace, size: str) -> None:
    """Train the same updates from the same weights in bf16 and fp32; print the loss of each tenth of them."""
    losses = {}
    every = max(1, arguments.curve // 10)
    for precision in ("bf16", "fp32"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "metrics.jsonl"
            device = choose_device("auto", precision)
            make_trainer(arguments, size, device, lambda: "", arguments.curve, every, path)[0].train()
            losses[precision] = [r["loss"] for r in read_metrics(path) if r["event"] == "train"]
    print(f"{size}: loss per target token, mean of every {every} updates of {arguments.batch_tokens:,} tokens")
    for precision, values in losses.items():
        print(f"  {precision}  " + "  ".join(f"{value:6.3f}" for value in values))
    print("  apart " + "  ".join(f"{a - b:6.3f}" for a, b in zip(losses["bf16"], losses["fp32"], strict=True)))


def soak(arguments: argparse.Namespace, size: str) -> None:
    """Train for some epochs; print the resident memory after each."""
    held: list[float] = []

    def enough() -> str:
        if trainer.state.position.epoch > len(held):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            held.append(pages * resource.getpagesize() / 1e6)
        return "enough" if len(held) == arguments.soak else ""

    trainer = make_trainer(arguments, size, choose_device("auto", arguments.precision), enough)[0]
    trainer.train()
    print(f"{size}: resident MB after each of {arguments.soak} epochs: " + ", ".join(f"{x:,.0f}" for x in held))


def matmul_gflops(device: object, dtype: object) -> float:
    """Best of several timings of one large product, in 1e9 operations a second."""
    x, w = (torch.randn(shape, device=device).to(dtype) for shape in ((4096, 512), (2048, 512)))
    best = 0.0
    for _ in range(30):
        start = time.perf_counter()
        torch.nn.functional.linear(x, w)
        if x.is_cuda:
            torch.cuda.synchronize()
        best = max(best, 2e-9 * 4096 * 512 * 2048 / (time.perf_counter() - start))
    return best


if __name__ == "__main__":
    main()
