"""What benchmarks share: the lines above their figures, and the toolkit's own commands, from training to a score."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any


def print_header(details: str = "") -> None:
    """Print the date, the command and the machine."""
    print(f"{date.today()}  {shlex.join(sys.argv)}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    print(f"machine: {platform.machine()}, {platform.processor() or 'processor not named'}, {cores} cores{details}")


def aiayn(*words: object) -> dict[str, Any]:
    """Run a command and give its result; what it says on stderr comes through."""
    command = [sys.executable, "-m", "aiayn_cli", *map(str, words), "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def train(recipe: str, data: Path, run: Path, settings: Iterable[str]) -> dict[str, Any]:
    """Train by a recipe with some settings; a run that was interrupted is resumed."""
    sets = (word for setting in settings for word in ("--set", setting))
    return aiayn("train", "--recipe", recipe, "--data", data, "--out", run, *sets)


def translate_test_set(model: Path, data: Path, hypotheses: Path) -> Path:
    """Translate the test set of prepared data; give the file of its references."""
    manifest = json.loads((data / "manifest.json").read_bytes())
    source, reference = (data / f"test.{manifest[side]}" for side in ("src_lang", "tgt_lang"))
    aiayn("translate", "--model", model, "-i", source, "-o", hypotheses)
    return reference


def bleu(reference: Path, hypotheses: Path) -> float:
    return float(aiayn("score", reference, "--hyp", hypotheses)["systems"][0]["scores"][0]["score"])
