"""The Transformer beside what it replaced: recurrent and convolutional models of the same size, trained the same way.

    python tests/benchmarks/kinds.py --data prepared/multi30k-en-de [--updates 1500] [--folder runs] [--kinds ...]

Each is trained by the recipe multi30k on the same batches for the same number of updates, averaged, and scored on the
test set of the prepared data. The widths are such that each has about as many parameters as the Transformer. A call
that was interrupted goes on where it stopped; what is finished is only read again.
"""

import argparse
import json
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

from command_line import aiayn

SETTINGS = {
    "transformer": [],
    "recurrent": ["model.kind=recurrent", "model.d_model=132"],
    "convolutional": ["model.kind=convolutional", "model.d_model=148"],
}


def main() -> None:
    """Train what is asked for, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="prepared data with a test set")
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where runs are made")
    parser.add_argument("--kinds", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all of them")
    arguments = parser.parse_args()
    manifest = json.loads((arguments.data / "manifest.json").read_bytes())
    print(f"{date.today()}  {' '.join(sys.argv)}")
    print(f"machine: {platform.machine()}; {arguments.updates:,} updates each of the recipe multi30k\n")
    print(f"{'':16}{'BLEU':>8}{'parameters':>13}{'target tokens/s':>18}{'training':>11}{'FLOPs':>10}", flush=True)
    for kind in arguments.kinds:
        row = measure(kind, manifest["src_lang"], manifest["tgt_lang"], arguments)
        minutes, seconds = divmod(round(row["train_seconds"]), 60)
        print(
            f"{kind:16}{row['bleu']:8.2f}{row['parameters']:13,}{row['tokens_per_second']:18,.0f}"
            f"{f'{minutes}:{seconds:02}':>11}{row['flops']:10.2g}",
            flush=True,
        )


def measure(kind: str, src_lang: str, tgt_lang: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, average, translate and score one kind."""
    run = arguments.folder / f"kind-{kind}"
    settings = [*SETTINGS[kind], f"training.max_updates={arguments.updates}", *arguments.set]
    sets = [part for setting in settings for part in ("--set", setting)]
    train = aiayn("train", "--recipe", "multi30k", "--data", arguments.data, "--out", run, *sets)
    aiayn("average", run)
    hypotheses = run / "test.hyp"
    source, reference = (arguments.data / f"test.{lang}" for lang in (src_lang, tgt_lang))
    aiayn("translate", "--model", run, "-i", source, "-o", hypotheses)
    score = aiayn("score", reference, "--hyp", hypotheses)
    return {**train, "bleu": score["systems"][0]["scores"][0]["score"]}


if __name__ == "__main__":
    main()
