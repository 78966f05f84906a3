"""How long training takes until its averaged model reaches a BLEU score on a test set.

    python tests/benchmarks/time_to_bleu.py --data prepared/multi30k-en-de [--recipe multi30k] [--goals 35 37 39]
        [--every 4] [--folder DIR] [--set training.max_updates=5250]

Trains and keeps all checkpoints, then averages, at every fourth of them, the last ones that the recipe's average takes,
and scores what that model makes of the test set. Minutes are those of updates, and with validation and checkpoints.
A call that was interrupted goes on where it stopped.
"""

import argparse
import json
import platform
import shutil
import sys
from datetime import date
from pathlib import Path

from command_line import aiayn

from aiayn_cli.checkpoint.metrics_log import read_metrics, standing
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
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
    sets = [word for setting in [*arguments.set, "training.keep_checkpoints=100000"] for word in ("--set", setting)]
    aiayn("train", "--recipe", arguments.recipe, "--data", arguments.data, "--out", run, *sets)
    manifest = json.loads((arguments.data / "manifest.json").read_bytes())
    source, reference = (arguments.data / f"test.{manifest[side]}" for side in ("src_lang", "tgt_lang"))

    window = load_recipe(arguments.recipe, arguments.set).training.average_last
    print(f"{date.today()}  {' '.join(sys.argv)}")
    print(f"machine: {platform.machine()}; the average of {window} checkpoints at each row\n")
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
        aiayn("translate", "--model", model, "-i", source, "-o", hypotheses)
        bleu = aiayn("score", reference, "--hyp", hypotheses)["systems"][0]["scores"][0]["score"]
        step = int(chosen[-1].name.split("-")[1])
        for goal in arguments.goals:
            if bleu >= goal:
                reached.setdefault(goal, seconds[step])
        print(f"{step:8,}{clock(seconds[step]):>10}{bleu:8.2f}", flush=True)
    for goal in arguments.goals:
        print(f"BLEU {goal:g}: " + (f"after {clock(reached[goal])} of training" if goal in reached else "not reached"))


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    main()
