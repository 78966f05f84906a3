"""Runs the sacrebleu command many times in one fresh interpreter, which is loaded once."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The command opens the descriptors of stdin and stdout anew; what held them before must not close them.
_PROGRAM = """
import json, sys
from sacrebleu.sacrebleu import main
kept = []
for arguments in json.load(open(sys.argv[1], encoding="utf-8")):
    sys.argv = ["sacrebleu", *arguments]
    kept += [sys.stdin, sys.stdout]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    print("\\x00", flush=True)
"""

TEXT = [
    "Der Hund läuft über die Straße.",
    'Sie sagte: "Um 3.15 Uhr kommt der Zug (endlich)!"',
    "Es kostet 1,234.50 € – viel zu viel?",
    "",
    "Zwei Männer spielen Fußball im Park.",
    "E-Mail-Adressen, Ost-West-Konflikt und a-b-c: alles mit Bindestrich.",
    "Ja.",
    "我喜欢喝绿茶和咖啡。",
    "Er sah, wie sie kam, und ging, ohne ein Wort zu sagen, aus dem Haus.",
]


def noisy(lines: Sequence[str], seed: int) -> list[str]:
    """Leave out some words and exchange others with their neighbours."""
    chance = random.Random(seed)
    found = []
    for line in lines:
        words = [word for word in line.split(" ") if chance.random() < 0.85]
        for number in range(len(words) - 1):
            if chance.random() < 0.15:
                words[number : number + 2] = words[number + 1], words[number]
        found.append(" ".join(words))
    return found


def written(path: Path, lines: Sequence[str]) -> str:
    """Write lines to a file; return its name."""
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def run_sacrebleu(folder: Path, calls: Sequence[Sequence[str]]) -> list[str]:
    """What the command prints for each list of arguments."""
    (folder / "calls.json").write_text(json.dumps(calls), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder / "calls.json")],
        capture_output=True,
        check=False,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\x00\n")[:-1]


def results(output: str) -> list[dict[str, Any]]:
    """The JSON objects of a call, one for each metric or system."""
    found = json.loads(output)
    return found if isinstance(found, list) else [found]
