"""How long training takes until its averaged model reaches a BLEU score on a test set.

    python tests/benchmarks/time_to_bleu.py --data prepared/multi30k-en-de [--recipe multi30k] [--goals 35 37 39]
        [--every 4] [--folder DIR] [--set training.max_updates=5250]

Trains and keeps all checkpoints, then averages, at every fourth of them, the last ones that the recipe's average takes,
and scores what that model makes of the test set. Minutes are those of updates, and with validation and checkpoints.
A call that was interrupted goes on where it stopped.
"""

import argparse
import shutil
from pathlib import Path

from command_line import aiayn, bleu, print_header, train, translate_test_set

from aiayn_cli.checkpoint.metrics_log import read_metrics, standing
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.logs import clock
from aiayn_cli.recipe import load_recipe


def main() -> None:
    """Train, score the way there, and print when each goal was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="prepared data with a test set")
    parser.add_argument("--recipe", default="multi30k")
    parser.add_argument("--goals", type=float, nargs="+", default=[35, 37, 39])
    parser.add_argument("--every", type=int, default=4, help="checkpoints from one score to the next")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where the run is made")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the run")
    arguments = parser.parse_args()
    run = arguments.folder / f"time-to-bleu-{arguments.recipe}"
    train(arguments.recipe, arguments.data, run, [*arguments.set, "training.keep_checkpoints=100000"])

    window = load_recipe(arguments.recipe, arguments.set).training.average_last
    print_header(f"; the average of {window} checkpoints at each row\n")
    print(f"{'update':>8}{'training':>10}{'BLEU':>8}", flush=True)
    seconds = {
        event["step"]: event["seconds"] for event in standing(read_metrics(run / "metrics.jsonl")) if "seconds" in event
    }
    checkpoints = list_checkpoints(run)
    reached: dict[float, float] = {}
    for last in range(len(checkpoints), 0, -arguments.every)[::-1]:
        chosen = checkpoints[max(last - window, 0) : last]
        model, hypotheses = run / "scored", run / "test.hyp"
        shutil.rmtree(model, ignore_errors=True)
        aiayn("average", *chosen, "--out", model)
        found = bleu(translate_test_set(model, arguments.data, hypotheses), hypotheses)
        step = int(chosen[-1].name.split("-")[1])
        for goal in arguments.goals:
            if found >= goal:
                reached.setdefault(goal, seconds[step])
        print(f"{step:8,}{clock(seconds[step]):>10}{found:8.2f}", flush=True)
    for goal in arguments.goals:
        print(f"BLEU {goal:g}: " + (f"after {clock(reached[goal])} of training" if goal in reached else "not reached"))


if __name__ == "__main__":
    main()
