"""A record of what the commands do, which a change that should change nothing must leave as it is.

    python tests/record/record.py                  compare with tests/record/record.json, within the tolerances below
    python tests/record/record.py --write          write tests/record/record.json anew: after a change that is meant
    python tests/record/record.py --exact FILE     compare bit for bit with FILE, or write it where it is not there

The commands run on the files in fixtures/, which are never written anew: they also show that prepared data, runs and
models of earlier versions keep loading. Each entry of the record holds up to three kinds of values:

    exact   the same on every processor
    near    depend on the order in which a processor adds: text alike, numbers within 1e-4, losses within 1e-3 of each
    local   the same on one machine only, such as the hash of trained weights: only in a FILE of --exact

Nothing here knows a module of the package but the one that has `main`.
"""

import argparse
import hashlib
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
RECORD = HERE / "record.json"

ABSOLUTE = 1e-4  # of scores and log-probabilities
RELATIVE = 1e-3  # of losses

_CPU = ("--device", "cpu", "--precision", "fp32")
_TEXT = "--train text/train.en text/train.de --valid text/valid.en text/valid.de --test text/test.en text/test.de"
_TREES = "--trees trees/train.trees --valid-trees trees/valid.trees --test-trees trees/test.trees --langs en-trees"
_SOON_OTHERWISE = ("bpe_dropout",)  # settings of the data that are no part of the record

Entry = dict[str, Any]


def call(command: str, stdin: str = "", code: int = 0) -> str:
    """What a command line writes to stdout; it runs here, in this process."""
    from aiayn_cli.app import main

    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    sys.stdout = out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    sys.stderr = err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    try:
        found = main(command.split())
        out.flush()
        err.flush()
        text, said = out.buffer.getvalue().decode(), err.buffer.getvalue().decode()
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
    if found != code:
        raise AssertionError(f"aiayn {command}: ends with {found}, not {code}\n{said}")
    return text


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights(folder: str) -> Entry:
    """The weights of a checkpoint: names and shapes, norms, and the hash of all."""
    import numpy as np
    from safetensors.numpy import load_file

    tensors = sorted(load_file(Path(folder) / "weights.safetensors").items())
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(name.encode() + str(tensor.shape).encode() + tensor.tobytes())
    return {
        "exact": {name: list(tensor.shape) for name, tensor in tensors},
        "near": {name: float(np.sqrt(np.mean(np.square(tensor, dtype=np.float64)))) for name, tensor in tensors},
        "local": digest.hexdigest(),
    }


def losses(run: str) -> list[Entry]:
    lines = map(json.loads, (Path(run) / "metrics.jsonl").read_text().splitlines())
    return [{"step": line["step"], "loss": line["loss"]} for line in lines if line["event"] in ("train", "validation")]


def jsonl(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def data(folder: str) -> Entry:
    manifest = json.loads((Path(folder) / "manifest.json").read_text())
    for name in _SOON_OTHERWISE:
        manifest["settings"].pop(name, None)
    kept = ("format", "format_version", "corpus", "src_lang", "tgt_lang", "vocab", "splits", "settings")
    files = sorted(path for path in Path(folder).iterdir() if path.name != "manifest.json")
    return {"manifest": {name: manifest[name] for name in kept}, "files": {path.name: sha(path) for path in files}}


# What is recorded, one function for each command. -----------------------------------------------------------------


def prepare() -> Iterator[tuple[str, Entry]]:
    runs = {
        "plain": f"--recipe model.yaml --langs en-de {_TEXT}",
        "held-out": "--recipe model.yaml --langs en-de --train text/train.en text/train.de --seed 3",
        "mixed": f"--recipe model.yaml --langs en-de {_TEXT} --tsv pairs.tsv --tmx memory.tmx --weight memory.tmx=3",
        "limits": f"--recipe model.yaml --langs en-de {_TEXT} --max-length 12 --max-ratio 1.2 --no-dedupe",
        "given-vocab": f"--recipe model.yaml --langs en-de {_TEXT} --vocab prepared",
        "text": f"--recipe data-text.yaml --langs en-de {_TEXT} --tsv pairs.tsv",
        "separate": f"--recipe data-separate.yaml --langs en-de {_TEXT}",
        "trees": f"--recipe parser.yaml {_TREES}",
        "trees-words": f"--recipe data-trees.yaml {_TREES}",
    }
    for name, options in runs.items():
        call(f"prepare {options} --out data/{name} --workers 1 -q --json")
        yield f"prepare {name}", {"exact": data(f"data/{name}")}
    call(f"prepare --recipe data-unigram.yaml --langs en-de {_TEXT} --out data/unigram --workers 1 -q")
    found = data("data/unigram")
    yield "prepare unigram", {"exact": sorted(found["files"]), "local": found}


def train() -> Iterator[tuple[str, Entry]]:
    base = f"train --recipe model.yaml --data prepared -q {' '.join(_CPU)} --set training.log_every_steps=10"
    saving = "--set training.save_every_steps=30 --set training.validation_bleu_pairs=0 --set training.best_metric=loss"

    call(f"{base} {saving} --out t/plain --set model.dropout=0.0 --set training.max_updates=60")
    yield "train", {"near": losses("t/plain")}
    yield "train weights", weights("t/plain/checkpoints/step-00000060")

    call(f"{base} {saving} --out t/whole --set training.max_updates=40 --set training.save_every_steps=20")
    call(f"{base} {saving} --out t/parts --set training.max_updates=20 --set training.save_every_steps=20")
    call(f"{base} {saving} --out t/parts --set training.max_updates=40 --set training.save_every_steps=20")
    whole, parts = (weights(f"t/{name}/checkpoints/step-00000040") for name in ("whole", "parts"))
    same = losses("t/whole") == losses("t/parts") and whole["local"] == parts["local"]
    yield "train resumed", {"exact": same, "local": whole["local"]}

    shapes = {
        "pre-norm": "model.norm=pre model.positions=learned model.max_positions=64 model.share_embeddings=none",
        "window": "model.attention_window=3 model.share_embeddings=decoder model.attention_bias=true",
        "ema": "training.ema_decay=0.9 training.clip_norm=0.5 training.max_tokens=120 training.label_smoothing=0.0",
        "recurrent": "model.kind=recurrent model.d_k=32 model.d_v=32 model.n_heads=1",
        "convolutional": "model.kind=convolutional model.d_k=32 model.d_v=32 model.n_heads=1",
    }
    for name, settings in shapes.items():
        changes = " ".join(f"--set {setting}" for setting in settings.split())
        call(f"{base} {saving} --out t/{name} --set model.dropout=0.0 --set training.max_updates=10 {changes}")
        yield (
            f"train {name}",
            {"near": losses(f"t/{name}")} | {"local": weights(f"t/{name}/checkpoints/step-00000010")["local"]},
        )

    # The run of an earlier version goes on; its text is that of the data in prepared/.
    call(f"train --recipe model.yaml --data prepared -q {' '.join(_CPU)} {saving} --out run "
         "--set training.log_every_steps=5 --set training.max_updates=810 --set training.validation_bleu_pairs=10 "
         "--set training.best_metric=bleu")  # fmt: skip
    yield "train goes on", {"near": [line for line in losses("run") if line["step"] > 800]}


def average() -> Iterator[tuple[str, Entry]]:
    steps = " ".join(f"t/plain/checkpoints/step-000000{step}" for step in (30, 60))
    call(f"average {steps} --out averages/two -q")
    yield "average", weights("averages/two")
    call("average t/ema --ema --out averages/ema -q")
    yield "average ema", {"local": weights("averages/ema")["local"]}
    call("average run --last 2 --out averages/run -q")
    yield "average run", {"exact": json.loads(Path("averages/run/model.json").read_text())["parents"]}


def translate() -> Iterator[tuple[str, Entry]]:
    source = Path("input.en").read_text()
    trees = Path("parser-input.en").read_text()

    def say(options: str, stdin: str = source, models: str = "-m run/averaged") -> str:
        return call(f"translate {models} -q {' '.join(_CPU)} {options}", stdin)

    yield "translate", {"exact": say("").splitlines()}
    yield "translate checkpoint", {"exact": say("", models="-m run/checkpoints/step-00000800").splitlines()}
    yield "translate greedy", {"exact": say("--beam 1").splitlines()}
    yield "translate small batches", {"exact": say("--batch-tokens 20").splitlines()}
    yield "translate alpha", {"exact": say("--beam 6 --alpha 1.5 --max-extra 3").splitlines()}
    yield "translate lengths", {"exact": say("--min-length 9 --max-length 14").splitlines()}
    yield "translate no repeat", {"exact": say("--no-repeat-ngram 1").splitlines()}
    for name, options in {
        "jsonl": "--scores --alignments",
        "n-best": "--nbest 3 --beam 5",
        "sample": "--sample --seed 3 --nbest 2 --scores",
        "sample top": "--sample --top-k 5 --top-p 0.9 --temperature 0.7",
        "prefix": "--prefix prefix.de --scores",
        "glossary": "--glossary glossary.tsv --scores",
    }.items():
        yield f"translate {name}", {"near": jsonl(say(f"--input-format text --format jsonl {options}"))}
    ensemble = "-m run/averaged -m run/checkpoints/step-00000800"
    options = "--input-format text --format jsonl --scores"
    yield "translate ensemble", {"near": jsonl(say(options, models=ensemble))}
    yield "translate alignments", {"exact": say("--alignments").splitlines()}
    yield (
        "translate score-against",
        {"near": [line.split("\t") for line in say("--score-against input.de").splitlines()]},
    )
    yield "translate markup", {"exact": say("--markup -i markup.en").splitlines()}
    yield "translate jsonl input", {"near": jsonl(say("--format jsonl -i input.jsonl"))}
    for action in ("keep", "retry", "empty", "copy"):
        said = say(f"--on-suspect {action} --report report.jsonl -i suspect.en").splitlines()
        yield f"translate on suspect {action}", {"exact": said, "near": jsonl(Path("report.jsonl").read_text())}
    yield "translate int8", {"exact": say("--int8").count("\n"), "local": say("--int8")}
    for name, option in {"sample": "--sample", "search": ""}.items():
        summary = json.loads(say(f"{option} --json"))
        kept = ("models", "lines", "blank_lines", "suspect_lines", "flags", "stopped", "translations")
        yield f"translate {name} --json", {"near": {key: summary[key] for key in kept}}
    for name, model in {"window": "t/window", "recurrent": "t/recurrent", "convolutional": "t/convolutional"}.items():
        yield f"translate {name}", {"local": jsonl(say(f"{options} --nbest 2", models=f"-m {model}"))}
    for name, option in {"parser": "", "parser without rules": "--no-tree-rules"}.items():
        yield f"translate {name}", {"near": jsonl(say(f"{options} {option}", trees, "-m parser-model"))}
    yield "translate parser text", {"exact": say("", trees, "-m parser-model").splitlines()}


def score() -> Iterator[tuple[str, Entry]]:
    hyp = "text/test.de --hyp hyp-a.de"
    runs = {
        "metrics": f"{hyp} --metric bleu,chrf,chrf++,ter --json",
        "text": f"{hyp} --metric bleu,chrf,ter",
        "confidence": f"{hyp} --confidence --resamples 100 --json",
        "compare": f"{hyp} --hyp hyp-b.de --compare --resamples 100 --trials 200 --metric bleu,chrf --json",
        "by length": f"{hyp} --by length --json",
        "worst": f"{hyp} --hyp hyp-b.de --worst 3 --source text/test.en",
        "options": f"{hyp} --tokenize intl --lowercase --smooth floor --smooth-value 0.2 --compound-split --json",
        "sentences": f"{hyp} --sentences --metric bleu,chrf,ter",
        "brackets": "trees/test.trees --hyp hyp.trees --brackets --json",
        "brackets text": "trees/test.trees --hyp hyp.trees --brackets",
    }
    for name, options in runs.items():
        text = re.sub(r"version:[\w.]+", "version:V", call(f"score -q {options}"))
        if "--json" in options:
            yield f"score {name}", {"exact": json.loads(text)}
        else:
            yield f"score {name}", {"exact": text.splitlines()}


def export() -> Iterator[tuple[str, Entry]]:
    for name, option in {"export": "", "export int8": "--int8"}.items():
        said = json.loads(
            call(f"export run/averaged --out exported/{name[7:]} {option} -q --json --check text/test.en")
        )
        folder = Path("exported") / name[7:]
        files = {path.name: sha(path) for path in sorted(folder.iterdir())}
        kept = {key: said[key] for key in ("int8", "check_sentences")} | {"files": sorted(files)}
        configs = {key: files[key] for key in ("config.json", "shared_vocabulary.json")}
        yield name, {"exact": kept | {"configs": configs}, "local": files}
        shutil.rmtree(folder)


# Running, comparing, writing. -------------------------------------------------------------------------------------


@contextmanager
def working_copy() -> Iterator[None]:
    """Work in a copy of the fixtures, so that no path of this machine gets into what is recorded."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(FIXTURES, folder, dirs_exist_ok=True)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def record() -> dict[str, Entry]:
    """All entries, by name."""
    import torch

    torch.set_num_threads(1)
    entries: dict[str, Entry] = {}
    parts: list[Callable[[], Iterator[tuple[str, Entry]]]] = [prepare, train, average, translate, score, export]
    with working_copy():
        for part in parts:
            entries |= part()
    loaded: dict[str, Entry] = json.loads(json.dumps(entries))
    return loaded


def portable(entries: dict[str, Entry]) -> dict[str, Entry]:
    """The entries without what holds on one machine only."""
    return {
        name: kept
        for name, entry in entries.items()
        if (kept := {kind: values for kind, values in entry.items() if kind != "local"})
    }


def differences(before: Any, after: Any, place: str = "", *, near: bool = False) -> list[str]:
    """Where two values differ; numbers may by a little where they are near."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = [
            f"{place}: {name} {'gone' if name in before else 'new'}" for name in sorted(before.keys() ^ after.keys())
        ]
        for name in before.keys() & after.keys():
            found += differences(before[name], after[name], f"{place}/{name}", near=near or name == "near")
        return found
    if isinstance(before, list) and isinstance(after, list):
        found = [f"{place}: {len(before)} items before, {len(after)} after"] if len(before) != len(after) else []
        for number, (old, new) in enumerate(zip(before, after, strict=False)):
            found += differences(old, new, f"{place}/{number}", near=near)
        return found
    if near and (old := _number(before)) is not None and (new := _number(after)) is not None and math.isfinite(old):
        same = abs(old - new) <= max(ABSOLUTE, RELATIVE * abs(old) if place.endswith("/loss") else 0.0)
    else:
        same = before == after
    return [] if same else [f"{place}: before {before!r}, after {after!r}"]


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def write(entries: dict[str, Entry], path: Path) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in entries.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _command() -> int:
    parser = argparse.ArgumentParser(description="Compare what the commands do with what they did.")
    parser.add_argument("--write", action="store_true", help="write record.json anew")
    parser.add_argument("--exact", type=Path, metavar="FILE", help="bit for bit; writes FILE where there is none")
    arguments = parser.parse_args()
    entries = record()
    if arguments.write:
        write(portable(entries), RECORD)
        return 0
    if arguments.exact is not None and not arguments.exact.exists():
        write(entries, arguments.exact)
        return 0
    if arguments.exact is not None:
        before, after = json.loads(arguments.exact.read_text(encoding="utf-8")), entries
        found = [line for name in sorted(before.keys() | after.keys())
                 for line in _exact(before.get(name), after.get(name), name)]  # fmt: skip
    else:
        found = differences(json.loads(RECORD.read_text(encoding="utf-8")), portable(entries))
    print("\n".join(found) or f"{len(entries)} entries, all as before")
    return 1 if found else 0


def _exact(before: Any, after: Any, name: str) -> list[str]:
    """Differences with no tolerance."""
    renamed = [{("-" if kind == "near" else kind): values for kind, values in (entry or {}).items()}
               for entry in (before, after)]  # fmt: skip
    return differences(renamed[0], renamed[1], name)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(_command())
