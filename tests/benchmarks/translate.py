"""Translation speed on a CPU, beside CTranslate2 fed directly, in one run on the same weights.

    python tests/benchmarks/translate.py --model runs/multi30k --text multi30k test.en test.de \\
        [--text newstest2014 newstest2014.en newstest2014.de] [--sizes trained,small,base] [--threads 2] [--beam 4]

The trained model's outputs have their real lengths and a BLEU score. So have those of `trained-base`, a network of the
shape of `base` (6+6 layers, 512) that is made of the trained one and says the same (widen.py): it needs one of the
recipe `small` (4+4, 256). `small` and `base` have random weights and the trained model's vocabulary. They write a
planned number of tokens for each line, the mean length of the sources: no engine can stop early, and none has to wait
for a longer neighbour.

With trained weights both programs search for the same thing: the output with the highest log p, so without a length
penalty (CTranslate2's is another formula, n ** alpha), of up to 50 tokens more than the longest source of the text, and
never PAD, UNK or BOS. What is left are the ways in which they prune and stop, and rounding. `to float32` is the
difference in BLEU to CTranslate2's float32, and `equal` the number of outputs that are textually the same as its.

Each engine runs in a process of its own: peak memory is its own and that of the processes it starts, shared pages
counted once, looked at in a pass that is not timed. The first pass over the text is `cold`: it meets every shape of
product for the first time; `warm` is the best of those that follow. Our figures include sub-words and text;
CTranslate2's are translate_batch alone, with its fastest settings known here: one worker of one thread for each
processor, 64 sentences in a batch (fewer where there are too few for all). Where its 8-bit sums would overflow, it
multiplies by MKL (translate/ctranslate2_engine.py); CT2_USE_MKL=0 before the command leaves it its own choice. `first`
is the median time to the answer to one short line in a warm process. BLEU is that of the trained model's outputs; where
weights are random it is the agreement with torch in fp32, whose outputs are taken as reference, so that its own is 100.
`changed` counts the outputs that differ from those of torch in fp32; with random weights the next tokens are nearly as
likely, so that rounding changes many.
"""

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_line import print_header
from process_memory import family_mebibytes, repeating
from widen import widened

SIZES: dict[str, dict[str, int]] = {
    "small": {"n_encoder_layers": 4, "n_decoder_layers": 4, "d_model": 256, "d_ff": 1024, "n_heads": 4},
    "base": {},
}
BATCH_TOKENS = {"small": 4_000, "base": 2_000}  # as in the recipes of these names
TRAINED = "trained"  # and "trained-base", say
ENGINES = {
    "torch fp32": {"precision": "fp32"},
    "torch bf16": {"precision": "bf16"},
    "torch int8": {"int8": True},
    "CTranslate2 float32": {"direct": "float32"},
    "CTranslate2 int8": {"direct": "int8"},
    "--engine ctranslate2, int8": {"engine": "ctranslate2", "int8": True},
}
TEXT = ["multi30k", "prepared/multi30k-en-de/test.en", "prepared/multi30k-en-de/test.de"]
MAX_EXTRA = 50  # tokens that an output may have beyond the longest source of a text (paper, Section 6.1)
SHORT_LINE = "A dog runs on the grass."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("runs/multi30k"), help="a trained checkpoint or run")
    parser.add_argument(
        "--text", nargs=3, action="append", metavar=("NAME", "SOURCE", "REFERENCE"), dest="texts",
        help="a text and its reference translation; default: the test set of prepared/multi30k-en-de",
    )  # fmt: skip
    parser.add_argument("--sizes", default="trained,small,base")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="ENGINE")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beam", type=int, default=4)
    of_each = "of each text with models of the size of {}; one number for all texts, or one for each"
    parser.add_argument("--lines", type=int, nargs="+", default=[1000], help=of_each.format("small"))
    parser.add_argument("--lines-base", type=int, nargs="+", default=[200], help=of_each.format("base"))
    parser.add_argument("--passes", type=int, default=2, help="warm ones")
    parser.add_argument("--run-with", default="", help="words before the command of each measurement, such as nice")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between measurements, for other work")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # what each child process measures
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(json.loads(arguments.one))))
        return
    print_header(f", {arguments.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes.split(","):
            model = prepare(size, arguments.model, Path(folder))
            for number, (name, source, reference) in enumerate(arguments.texts or [TEXT]):
                counts = arguments.lines_base if size.endswith("base") else arguments.lines
                lines = counts[min(number, len(counts) - 1)]
                compare(arguments, size, model, name, read(source)[:lines], read(reference)[:lines])


def read(path: str) -> list[str]:
    """The lines of a file, compressed or not."""
    from aiayn_cli.text.lines import RecordReader, open_text_bytes

    with open_text_bytes(path) as file:
        return [line or "" for block in RecordReader(file, path).blocks() for line in block]


def prepare(size: str, trained: Path, folder: Path) -> Path:
    """A checkpoint of the size, beside it what is exported from it."""
    import shutil
    from dataclasses import replace

    import torch

    from aiayn_cli.checkpoint.checkpoint import load_checkpoint, save_checkpoint
    from aiayn_cli.checkpoint.run_checkpoints import find_model
    from aiayn_cli.export.session import export
    from aiayn_cli.model.build import build_model
    from aiayn_cli.recipe_keys import ModelConfig
    from aiayn_cli.special_tokens import EOS_ID
    from aiayn_cli.text.codec import Codec
    from aiayn_cli.translate.ctranslate2_engine import EXPORTED, exported_pieces, fingerprint
    from aiayn_cli.translate.load_models import load_network

    path = folder / size
    checkpoint = load_checkpoint(find_model(trained))
    vocab_file = checkpoint.vocab_path
    if size == TRAINED:
        shutil.copytree(checkpoint.path, path, ignore=shutil.ignore_patterns("ctranslate2*", "training"))
        checkpoint = load_checkpoint(path)
    else:
        name = size.removeprefix(f"{TRAINED}-")
        shape = ModelConfig(**SIZES[name])
        torch.manual_seed(1)
        if name != size:
            model, shape = widened(load_network(checkpoint), checkpoint.model, shape)
        else:
            model = build_model(shape, checkpoint.vocab_size)
            with torch.no_grad():
                model.output.weight[EOS_ID] = 0  # among thousands of random scores never one of the best
        decoding = replace(checkpoint.decoding, batch_tokens=BATCH_TOKENS[name])
        checkpoint = replace(checkpoint, path=path, model=shape, decoding=decoding)
        checkpoint = save_checkpoint(checkpoint, dict(model.named_parameters()), vocab_file)
    codec = Codec.load(path, checkpoint.text, checkpoint.src_lang, checkpoint.tgt_lang)
    export(load_network(checkpoint), checkpoint.model, *exported_pieces(codec), path / "ctranslate2", int8=False)
    (path / "ctranslate2" / EXPORTED).write_text(json.dumps({"weights_sha256": fingerprint(checkpoint)}))
    return path


def compare(
    arguments: argparse.Namespace, size: str, model: Path, name: str, lines: list[str], references: list[str]
) -> None:
    """Measure all engines with one model on one text, and print a table."""
    from aiayn_cli.checkpoint.checkpoint import load_checkpoint
    from aiayn_cli.score.metrics import bleu
    from aiayn_cli.text.codec import load_vocabs

    lengths = [len(ids) + 1 for ids in load_vocabs(model)[0].encode(lines)]
    tokens = sum(lengths)
    steps = 0 if size.startswith(TRAINED) else round(tokens / len(lines))
    planned = f", {steps} tokens planned for each, EOS counted" if steps else ""
    vocab_size = load_checkpoint(model).vocab_size
    print(
        f"\n{size}, {name}: {len(lines):,} lines, {tokens / len(lines):.1f} tokens a line of a vocabulary of "
        f"{vocab_size:,}{planned}"
    )
    print(
        f"{'':28}{'sent/s':>8}{'cold':>8}{'tokens/s':>10}{'x float32':>11}{'x int8':>8}{'first ms':>10}"
        f"{'peak MB':>9}{'BLEU':>7}{'changed':>9}{'to float32':>12}{'equal':>7}"
    )
    results: dict[str, dict[str, Any]] = {}
    for engine in arguments.engines:
        options = ENGINES[engine]
        if results:
            time.sleep(arguments.pause)
        task = {
            "model": str(model), "lines": lines, "steps": steps, "longest": max(lengths) + MAX_EXTRA,
            "threads": arguments.threads, "beam": arguments.beam, "passes": arguments.passes, **options,
        }  # fmt: skip
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(task, file)
            file.flush()
            command = [*shlex.split(arguments.run_with), sys.executable, __file__, "--one", json.dumps(file.name)]
            environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
        results[engine] = json.loads(done.stdout)
    exact = results["torch fp32"]["outputs"] if "torch fp32" in results else None
    theirs = results["CTranslate2 float32"]["outputs"] if "CTranslate2 float32" in results else None
    for engine, result in results.items():
        others = [results.get(f"CTranslate2 {kind}") for kind in ("float32", "int8")]
        ratios = [f"{result['warm'] / other['warm']:.2f}" if other else "" for other in others]
        changed = "" if exact is None else sum(a != b for a, b in zip(result["outputs"], exact, strict=True))
        reference = exact if steps else references
        outputs = result["outputs"]
        score = "" if reference is None else f"{bleu(outputs, [reference]).score:.2f}"
        beside = equal = ""
        if theirs is not None:
            equal = str(sum(a == b for a, b in zip(outputs, theirs, strict=True)))
            if reference is not None:
                beside = f"{bleu(outputs, [reference]).score - bleu(theirs, [reference]).score:+.2f}"
        print(
            f"{engine:28}{result['warm']:8,.0f}{result['cold']:8,.0f}{result['tokens']:10,.0f}{ratios[0]:>11}"
            f"{ratios[1]:>8}{result['first']:10.1f}{result['peak']:9,.0f}{score:>7}{changed:>9}"
            f"{beside:>12}{equal:>7}",
            flush=True,
        )


def measure(path: str) -> dict[str, Any]:
    """Translate the lines of a task several times; speeds in lines and tokens a second, the first answer in ms."""
    task = json.loads(Path(path).read_bytes())
    translate = direct(task) if "direct" in task else ours(task)
    lines, seconds = task["lines"], []
    for _ in range(1 + task["passes"]):
        taken, outputs, tokens = translate(lines)
        seconds.append(taken)
    waits = [translate([SHORT_LINE])[0] for _ in range(25)][5:]
    return {
        "cold": len(lines) / seconds[0],
        "warm": len(lines) / min(seconds[1:]),
        "tokens": tokens / min(seconds[1:]),
        "first": 1000 * statistics.median(waits),
        "peak": max(peak_megabytes(), shared_megabytes(lambda: translate(lines))),
        "outputs": outputs,
    }


def peak_megabytes() -> float:
    """The most memory that this process has held; getrusage would count that of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def shared_megabytes(work: Callable[[], Any]) -> float:
    """The most memory that this process and those that it started hold at a time while something is done."""
    held = [0.0]
    with repeating(lambda: held.append(family_mebibytes(os.getpid())), 0.02):
        work()
    return max(held)


def ours(task: dict[str, Any]) -> Any:
    """What `aiayn translate` does for a group of lines."""
    from aiayn_cli import logs
    from aiayn_cli.translate.load_models import load_models
    from aiayn_cli.translate.options import DecodingOverrides, EngineOptions, SearchOptions, TranslateOptions

    logs.setup(logs.QUIET)
    steps = task["steps"]
    length = SearchOptions(max_length=(steps or task["longest"]) - 1)
    alike = {} if steps else {"alpha": 0.0, "max_extra": task["longest"]}
    engine = EngineOptions(
        models=(Path(task["model"]),), device="cpu", precision=task.get("precision", "auto"),
        engine=task.get("engine", "torch"), int8=task.get("int8", False),
    )  # fmt: skip
    decoding = DecodingOverrides(beam_size=task["beam"], **alike)
    translator = load_models(TranslateOptions(search=length, decoding=decoding, engine=engine)).translator

    def translate(lines: list[str]) -> tuple[float, list[str], int]:
        start = time.perf_counter()
        found = translator.translate_n_best(lines)
        taken = time.perf_counter() - start
        tokens = sum(len(part.tgt) + 1 for outputs in found for part in outputs[0].parts)
        return taken, [outputs[0].text for outputs in found], tokens

    return translate


def direct(task: dict[str, Any]) -> Any:
    """translate_batch of CTranslate2, whose time alone counts."""
    from aiayn_cli.checkpoint.checkpoint import load_checkpoint
    from aiayn_cli.special_tokens import BOS_ID, PAD_ID
    from aiayn_cli.text.codec import Codec
    from aiayn_cli.translate.ctranslate2_engine import load_package

    checkpoint = load_checkpoint(Path(task["model"]))
    codec = Codec.load(checkpoint.path, checkpoint.text, checkpoint.src_lang, checkpoint.tgt_lang)
    translator = load_package().Translator(
        str(checkpoint.path / "ctranslate2"), compute_type=task["direct"], inter_threads=task["threads"],
        intra_threads=1,
    )  # fmt: skip
    ids = {piece: number for number, piece in enumerate(codec.tgt_pieces(range(codec.tgt_size)))}
    steps = task["steps"]
    # What our search never writes either; outputs of random weights have only their length planned.
    unwanted = [[codec.tgt_pieces([special])[0]] for special in (PAD_ID, BOS_ID)]
    never = {} if steps else {"disable_unk": True, "suppress_sequences": unwanted}

    def translate(lines: list[str]) -> tuple[float, list[str], int]:
        pieces = [codec.pieces(sequence) for sequence in codec.encode(lines)]
        at_once = min(64, -(-len(lines) // task["threads"]))  # or some workers would have nothing to do
        start = time.perf_counter()
        results = translator.translate_batch(
            pieces, beam_size=task["beam"], length_penalty=checkpoint.decoding.alpha if steps else 0.0,
            max_batch_size=at_once, batch_type="examples", min_decoding_length=steps,
            max_decoding_length=steps or task["longest"] - 1, **never,
        )  # fmt: skip
        taken = time.perf_counter() - start
        outputs = [[ids[piece] for piece in result.hypotheses[0]] for result in results]
        return taken, codec.decode(outputs), sum(len(output) + (not steps) for output in outputs)

    return translate


if __name__ == "__main__":
    main()
