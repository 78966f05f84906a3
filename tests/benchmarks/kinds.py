"""The Transformer beside what it replaced: recurrent and convolutional models of the same size, trained the same way.

    python tests/benchmarks/kinds.py --data prepared/multi30k-en-de [--updates 1500] [--folder runs] [--kinds ...]

Each is trained by the recipe multi30k on the same batches for the same number of updates, averaged over the last eighth
of them, and scored on the test set of the prepared data, with the same beam and length penalty. The widths are such
that each has about as many parameters as the Transformer.

The recipe was made for the Transformer, so that the learning rate is chosen for each kind: one trial of --trial updates
for each of --rates, and the one with the lowest validation loss is taken. Dropout is the recipe's for all. Speed is
that of this implementation: on a CPU the Transformer alone computes without padding, and the LSTM is torch's.

A call that was interrupted goes on where it stopped; what is finished is only read again.
"""

import argparse
import math
from pathlib import Path
from typing import Any

from command_line import aiayn, bleu, print_header, train, translate_test_set

from aiayn_cli.logs import clock
from aiayn_cli.recipe import load_recipe
from aiayn_cli.train.options import peak_rate, short_schedule

SETTINGS = {
    "transformer": [],
    "recurrent": ["model.kind=recurrent", "model.d_model=132"],
    "convolutional": ["model.kind=convolutional", "model.d_model=148"],
}
RECIPE = "multi30k"


def main() -> None:
    """Train what is asked for, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="prepared data with a test set")
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[0.5, 1, 2], metavar="FACTOR",
        help="highest learning rates to try, times the recipe's; one is taken without a trial",
    )  # fmt: skip
    parser.add_argument("--trial", type=int, default=400, metavar="UPDATES", help="of each trial of a rate")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where runs are made")
    parser.add_argument("--kinds", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all of them")
    arguments = parser.parse_args()
    print_header(f"; {arguments.updates:,} updates each of the recipe {RECIPE}")
    rates = {kind: best_rate(kind, arguments) for kind in arguments.kinds}
    head = f"{'BLEU':>8}{'parameters':>13}{'target tokens/s':>18}{'training':>11}{'FLOPs':>10}{'highest rate':>15}"
    print(f"\n{'':16}{head}", flush=True)
    for kind, rate in rates.items():
        row = train_kind(kind, rate, arguments.updates, f"kind-{kind}", arguments.set, arguments)
        run = Path(row["run"])
        aiayn("average", run)
        score = bleu(translate_test_set(run, arguments.data, run / "test.hyp"), run / "test.hyp")
        print(
            f"{kind:16}{score:8.2f}{row['parameters']:13,}{row['tokens_per_second']:18,.0f}"
            f"{clock(row['train_seconds']):>11}{row['flops']:10.2g}{rate:15.2g}",
            flush=True,
        )


def best_rate(kind: str, arguments: argparse.Namespace) -> float:
    """The highest learning rate with which a kind learns best in a short time; each one tried is printed."""
    rates = [factor * peak_rate(load_recipe(RECIPE)) for factor in arguments.rates]
    if len(rates) == 1:
        return rates[0]
    only_loss = ["training.best_metric=loss", "training.validation_bleu_pairs=0", "training.validate_every_saves=32"]
    losses = {}
    for rate in rates:
        settings = [*arguments.set, *only_loss]
        trained = train_kind(kind, rate, arguments.trial, f"kind-{kind}-trial", settings, arguments)
        losses[rate] = math.inf if trained["best_value"] is None else trained["best_value"]
    tried = ", ".join(f"{loss:.3f} with {rate:.2g}" for rate, loss in losses.items())
    print(f"{kind}: validation loss after {arguments.trial:,} updates {tried}", flush=True)
    return min(losses, key=losses.__getitem__)


def train_kind(
    kind: str, rate: float, updates: int, name: str, overrides: list[str], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Train one kind up to a learning rate; give what `aiayn train` says."""
    schedule = short_schedule(load_recipe(RECIPE, [*SETTINGS[kind], *arguments.set]), updates, rate)
    run = arguments.folder / f"{name}-{updates}-{rate:.3g}"  # another rate or length is another run
    return train(RECIPE, arguments.data, run, [*SETTINGS[kind], *schedule, *overrides])


if __name__ == "__main__":
    main()
