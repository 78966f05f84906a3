"""Speed, memory and exactness on one GPU; see check.sh.

Each check prints a line and adds its figures to the JSON; what is wrong makes the exit code 1. Speed is measured, and
set beside the goals, but decides nothing. Everything is made here: sentences with lengths like those of WMT14
English-German in 37,000 sub-words, and the built-in corpus for the runs that are stopped, continued and translated.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from figures import Figures, as_text, machine
from runs import decoding, distributed, resume
from setting import Setting
from speed import graphs, precision, speed

from aiayn_cli import logs
from aiayn_cli.device import choose_device
from aiayn_cli.recipe_keys import Compile


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--small", action="store_true", help="tiny networks for seconds: does this program work?")
    parser.add_argument("--compile", default="auto", choices=get_args(Compile), help="auto = on a GPU only")
    parser.add_argument("--seconds", type=float, help="measured seconds of each size; default 25, with --small 1")
    parser.add_argument("--only", default="", help="names of checks, with commas; default: all")
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"), help="the JSON to write")
    arguments = parser.parse_args()
    logs.setup(logs.QUIET)
    device = choose_device(arguments.device)
    print(device.explanation)
    checks: dict[str, Callable[[Setting], Figures]] = {
        "base": lambda setting: speed(setting, "base"),
        "big": lambda setting: speed(setting, "big"),
        "graphs": graphs,
        "precision": precision,
        "resume": resume,
        "distributed": distributed,
        "decoding": decoding,
    }
    wanted = [name for name in arguments.only.split(",") if name] or list(checks)
    results: Figures = {"machine": machine(device), "checks": {}}
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(arguments, device, Path(folder))
        for name in wanted:
            started = time.perf_counter()
            try:
                figures = checks[name](setting)
            except Exception as error:  # the other checks are worth their time all the same
                figures = {"passed": False, "error": f"{type(error).__name__}: {error}"}
                if arguments.small:
                    raise
            figures["check_seconds"] = round(time.perf_counter() - started, 1)
            results["checks"][name] = figures
            print(f"{'ok    ' if figures['passed'] else 'WRONG '} {name}: {as_text(figures)}", flush=True)
    results["passed"] = all(figures["passed"] for figures in results["checks"].values())
    results["seconds"] = round(sum(figures["check_seconds"] for figures in results["checks"].values()), 1)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"{results['seconds']:.0f} s; all figures: {arguments.out}")
    return 0 if results["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
