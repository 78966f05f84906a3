"""How sinusoidal and learned positions do on sentences longer than any in training (paper, Section 3.5).

    python tests/benchmarks/positions.py --train a.en a.de --valid v.en v.de --test t.en t.de --langs en-de
        [--longest 15] [--updates 1500] [--folder DIR]

Pairs with more than --longest sub-words on a side are left out of training. Both models are trained by the recipe
multi30k on the same batches, each averaged over the last eighth of its updates, and the test set is scored by the
length of its sources. Learned positions have rows for the longer sentences too; no training pair reaches them, so that
they stay as they were drawn. A call that was interrupted goes on where it stopped.
"""

import argparse
from itertools import pairwise
from pathlib import Path

from command_line import aiayn, bleu, print_header, train, translate_test_set

from aiayn_cli.recipe import load_recipe
from aiayn_cli.text.lines import read_file, write_records
from aiayn_cli.text.vocab import Vocab
from aiayn_cli.train.options import short_schedule


def main() -> None:
    """Prepare, train both, and print a row for each range of lengths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for split in ("train", "valid", "test"):
        parser.add_argument(f"--{split}", nargs=2, required=True, metavar=("SRC", "TGT"))
    parser.add_argument("--langs", required=True, metavar="SRC-TGT")
    parser.add_argument("--longest", type=int, default=15, help="sub-words of a side in training, at most")
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where to work")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for both of them")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    data = arguments.folder / f"positions-data-{arguments.longest}"
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", *getattr(arguments, split))]
    limit = ("--max-length", arguments.longest, "--langs", arguments.langs, "--out", data)
    prepared = aiayn("prepare", "--recipe", "multi30k", *files, *limit)
    hypotheses = {kind: translate(kind, data, arguments) for kind in ("sinusoidal", "learned")}
    src_lang, tgt_lang = arguments.langs.split("-")
    references = read_file(data / f"test.{tgt_lang}")
    lengths = list(map(len, Vocab.load(data / "vocab.model").encode(read_file(data / f"test.{src_lang}"))))

    print_header(f"\n{arguments.updates:,} updates of {prepared['pairs_kept']:,} pairs with at")
    print(f"most {arguments.longest} sub-words on a side; BLEU of the test set by sub-words of the source\n")
    print(f"{'sub-words':>12}{'sentences':>12}{'sinusoidal':>13}{'learned':>10}")
    bounds = [0, *(round(share * arguments.longest) for share in (0.67, 1, 1.33, 1.67)), 1 << 30]
    for low, high in pairwise(bounds):
        chosen = [number for number, length in enumerate(lengths) if low < length <= high]
        if chosen:
            name = f"above {low}" if high == bounds[-1] else f"{low + 1} to {high}"
            row = [score(arguments.folder, chosen, hypotheses[kind], references, tgt_lang) for kind in hypotheses]
            print(f"{name:>12}{len(chosen):12,}{row[0]:13.2f}{row[1]:10.2f}", flush=True)


def translate(positions: str, data: Path, arguments: argparse.Namespace) -> list[str]:
    """Train one of the two, and give its translations of the test set."""
    run = arguments.folder / f"positions-{positions}-{arguments.longest}-{arguments.updates}"
    schedule = short_schedule(load_recipe("multi30k", arguments.set), arguments.updates)
    train("multi30k", data, run, [f"model.positions={positions}", *schedule, *arguments.set])
    aiayn("average", run)
    translate_test_set(run, data, run / "test.hyp")
    return read_file(run / "test.hyp")


def score(folder: Path, chosen: list[int], hypotheses: list[str], references: list[str], tgt_lang: str) -> float:
    """BLEU of some lines."""
    paths = folder / "chosen.hyp", folder / f"chosen.{tgt_lang}"
    for path, lines in zip(paths, (hypotheses, references), strict=True):
        with path.open("wb") as file:
            write_records(file, [lines[number] for number in chosen])
    return bleu(paths[1], paths[0])


if __name__ == "__main__":
    main()
