"""Other toolkits' training speed on this machine, for train.py: the same pairs, sizes and batches, by their own logs.

A peer is a Python with eole or fairseq installed, in a virtual environment of its own:

    python3 -m venv peer-eole && peer-eole/bin/pip install eole==0.6.4
    python3 -m venv peer-fairseq && peer-fairseq/bin/pip install torch && \\
        peer-fairseq/bin/pip install --no-deps fairseq-fixed==0.12.3.1 hydra-core 'omegaconf<2.4' \\
        antlr4-python3-runtime==4.9.3 && \\
        peer-fairseq/bin/pip install bitarray cython packaging pyyaml regex sacrebleu scikit-learn tqdm

Where eole's pins do not suit, `pip install --no-deps eole==0.6.4` and then what `eole train --help` misses will do,
with any recent torch. Each is measured in its fastest mode that works on a CPU: eole in bf16, fairseq in fp32 with
products by oneDNN, which it does not choose itself.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import SIDES
from aiayn_cli.recipe_keys import ModelConfig, TrainingConfig

_SPECIAL_TOKENS = 4  # the first ids, which every toolkit has in a form of its own

# What it is called, and which distributions may hold it.
_DISTRIBUTIONS = {"eole": ("eole",), "fairseq": ("fairseq-fixed", "fairseq")}
_VERSIONS = """
import importlib.metadata as m, json, sys
found = {}
for name in sys.argv[1:]:
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""
_FAIRSEQ_BY_ONEDNN = (
    "import torch; torch.set_float32_matmul_precision('medium'); from fairseq_cli.train import cli_main; cli_main()"
)
# "Step  8/100000; ... bsz: 3499/3796/170; ...": source tokens, target tokens and pairs of an update, on average.
_EOLE_REPORT = re.compile(r"Step\s+(\d+)/.*bsz:\s*\d+/\s*(\d+)/")
# "train_inner | ... wpb=3713.5, bsz=240.5, num_updates=8, ...": target tokens and pairs of an update, likewise.
_FAIRSEQ_STEP = re.compile(r"\bnum_updates=(\d+)")
_FAIRSEQ_TOKENS = re.compile(r"\bwpb=([\d.]+)")


@dataclass(frozen=True)
class Peer:
    """Another toolkit."""

    python: Path  # that has it installed
    name: str  # "eole" or "fairseq"
    version: str

    @property
    def label(self) -> str:
        """For a table: its version and how it computes."""
        return f"{self.name} {self.version}, {'bf16' if self.name == 'eole' else 'fp32 by oneDNN'}"


def find_peer(python: Path) -> Peer:
    """What a Python has installed."""
    names = [name for some in _DISTRIBUTIONS.values() for name in some]
    result = subprocess.run([python, "-c", _VERSIONS, *names], capture_output=True, text=True, check=True)
    found = json.loads(result.stdout)
    for peer, distributions in _DISTRIBUTIONS.items():
        for name in distributions:
            if name in found:
                return Peer(python, peer, found[name])
    raise SystemExit(f"{python} has none of {', '.join(names)} installed")


def write_text(folder: Path, data: PreparedData) -> None:
    """Write the training pairs as lines of numbers, which are the peer's words: it then learns from the same tokens."""
    for side in SIDES:
        with (folder / f"train.{side}").open("w", encoding="ascii") as file:
            for number in range(len(data.train)):
                file.write(" ".join(map(str, data.train.gather([number], side)[0].tolist())) + "\n")


def tokens_per_second(
    peer: Peer, folder: Path, vocab_size: int, shape: ModelConfig, batch_tokens: int, warm_up: float, seconds: float
) -> float:
    """Train with a peer for a while; give its target tokens a second, end tokens included and padding not.

    `folder` has what write_text() wrote; `warm_up` are seconds after the first report that do not count.
    """
    words = [str(i) for i in range(_SPECIAL_TOKENS, vocab_size)]
    make = _eole_command if peer.name == "eole" else _fairseq_command
    reports: list[tuple[float, float]] = []  # when it came, and target tokens so far
    tokens, last_step = 0.0, 0
    for line in output_of(make(peer, folder, words, shape, batch_tokens)):
        now = time.perf_counter()
        step, mean = reported(line)
        if step <= last_step:
            continue
        tokens += mean * (step - last_step)
        last_step = step
        reports.append((now, tokens))
        counted = [report for report in reports if report[0] - reports[0][0] >= warm_up]
        if counted and now - counted[0][0] >= seconds:
            return (counted[-1][1] - counted[0][1]) / (counted[-1][0] - counted[0][0])
    raise SystemExit(f"{peer.label} ended before it was measured")


def reported(line: str) -> tuple[int, float]:
    """What a line of a peer's log says: updates so far, and target tokens of one; (0, 0.0) where it is no report."""
    if match := _EOLE_REPORT.search(line):
        return int(match[1]), float(match[2])
    step, tokens = _FAIRSEQ_STEP.search(line), _FAIRSEQ_TOKENS.search(line)
    return (int(step[1]), float(tokens[1])) if step and tokens else (0, 0.0)


def output_of(command: list[str]) -> Iterator[str]:
    """Lines that a command prints, until nobody wants more of them; it is ended then, with all that it started."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONPATH", None)  # ours is not the peer's
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    seen: list[str] = []
    ended = False
    try:
        for line in process.stdout:
            seen = [*seen[-20:], line]
            yield line
        ended = True
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if ended:
            print("".join(seen))


def _eole_command(peer: Peer, folder: Path, words: list[str], shape: ModelConfig, batch_tokens: int) -> list[str]:
    """Write eole's vocabulary and settings; give the command that trains by them."""
    config = TrainingConfig()
    vocab = folder / "eole.vocab"
    vocab.write_text("".join(f"{word}\t1\n" for word in ("<unk>", "<blank>", "<s>", "</s>", *words)), encoding="ascii")
    layers = {"heads": shape.n_heads, "transformer_ff": shape.d_ff}
    settings = {
        "src_vocab": str(vocab), "tgt_vocab": str(vocab), "share_vocab": True, "vocab_size_multiple": 1,
        "src_vocab_size": len(words) + 100, "tgt_vocab_size": len(words) + 100,
        "overwrite": True, "report_every": 1, "seed": 1, "n_sample": 0, "transforms": [],
        "data": {"corpus_1": {"path_src": str(folder / "train.src"), "path_tgt": str(folder / "train.tgt")}},
        "training": {
            "model_path": str(folder / "eole-model"), "world_size": 0, "num_workers": 1, "bucket_size": 32768,
            "batch_type": "tokens", "batch_size": batch_tokens, "accum_count": [1], "accum_steps": [0],
            "normalization": "tokens", "compute_dtype": "bf16", "optim": "adam", "adam_beta2": config.adam_beta2,
            "learning_rate": 2, "decay_method": "noam", "warmup_steps": config.warmup_steps, "max_grad_norm": 0,
            "label_smoothing": config.label_smoothing, "param_init_method": "xavier_uniform",
            "dropout": [shape.dropout], "attention_dropout": [shape.attention_dropout], "dropout_steps": [0],
            "train_steps": 100_000, "valid_steps": 100_000, "save_checkpoint_steps": 100_000,
        },
        "model": {
            "architecture": "transformer", "hidden_size": shape.d_model,
            "share_embeddings": True, "share_decoder_embeddings": True,
            "embeddings": {"word_vec_size": shape.d_model, "position_encoding_type": "SinusoidalInterleaved"},
            "encoder": {"encoder_type": "transformer", "layers": shape.n_encoder_layers, **layers},
            "decoder": {"decoder_type": "transformer", "layers": shape.n_decoder_layers, **layers},
        },
    }  # fmt: skip
    path = folder / "eole.yaml"
    path.write_text(json.dumps(settings), encoding="ascii")  # JSON is YAML too
    return [str(peer.python.with_name("eole")), "train", "-c", str(path)]


def _fairseq_command(peer: Peer, folder: Path, words: list[str], shape: ModelConfig, batch_tokens: int) -> list[str]:
    """Let fairseq encode the text, once; give the command that trains on it."""
    config = TrainingConfig()
    binary = folder / "fairseq"
    if not binary.exists():
        dictionary = folder / "fairseq.dict"
        dictionary.write_text("".join(f"{word} 1\n" for word in words), encoding="ascii")
        subprocess.run(
            [peer.python, "-m", "fairseq_cli.preprocess", "--source-lang", "src", "--target-lang", "tgt",
             "--trainpref", folder / "train", "--srcdict", dictionary, "--joined-dictionary", "--destdir", binary],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    sides = {"encoder": shape.n_encoder_layers, "decoder": shape.n_decoder_layers}
    widths = {"embed-dim": shape.d_model, "ffn-embed-dim": shape.d_ff, "attention-heads": shape.n_heads}
    network = {f"--{side}-layers": str(layers) for side, layers in sides.items()}
    network |= {f"--{side}-{name}": str(width) for side in sides for name, width in widths.items()}
    return [
        str(peer.python), "-c", _FAIRSEQ_BY_ONEDNN, str(binary), "--cpu", "--task", "translation",
        "--arch", "transformer", *(word for pair in network.items() for word in pair), "--share-all-embeddings",
        "--dropout", str(shape.dropout), "--attention-dropout", str(shape.attention_dropout),
        "--optimizer", "adam", "--adam-betas", f"({config.adam_beta1},{config.adam_beta2})", "--clip-norm", "0",
        "--lr", "1e-3", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", str(config.warmup_steps),
        "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(config.label_smoothing),
        "--max-tokens", str(batch_tokens), "--max-update", "100000", "--log-format", "simple", "--log-interval", "1",
        "--num-workers", "1", "--seed", "1", "--disable-validation", "--no-save",
        "--save-dir", str(folder / "fairseq-model"),
    ]  # fmt: skip
