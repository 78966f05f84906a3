"""Text files as a user has them, and documented command lines run on them at reduced size, in this process."""

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aiayn_cli.app import main

# Added to each command: a network of a few thousand weights, a dozen updates.
SMALLER = {
    "train": [
        *("--device", "cpu", "--set", "model.n_encoder_layers=1", "--set", "model.n_decoder_layers=1"),
        *("--set", "model.d_model=16", "--set", "model.d_ff=24", "--set", "model.n_heads=2"),
        *("--set", "model.d_k=5", "--set", "model.d_v=7", "--set", "training.batch_tokens=300"),
        *("--set", "training.max_updates=12", "--set", "training.save_every_steps=2"),
        *("--set", "training.validate_every_saves=3", "--set", "training.validation_bleu_pairs=3"),
    ],
    "translate": ["--device", "cpu"],
}
PAIRS = [
    (f"{who} {sees} the {thing} number {n}.", f"{wer} {sieht} {was} Nummer {n}.")
    for who, wer in (("Anna", "Anna"), ("the girl", "das Mädchen"), ("my friend", "mein Freund"))
    for sees, sieht in (("sees", "sieht"), ("hears", "hört"), ("finds", "findet"))
    for thing, was in (("house", "das Haus"), ("train", "den Zug"), ("clock", "die Uhr"))
    for n in range(1, 15)
]


def write_own_text(folder: Path) -> None:
    """train.en, train.de, and the same for valid and test."""
    for split, pairs in (("train", PAIRS[:-17]), ("valid", PAIRS[-17:-6]), ("test", PAIRS[-6:])):
        for language, texts in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def run_line(line: str, patch: pytest.MonkeyPatch) -> str:
    """Run `aiayn ...` with < and > as a shell would, or `printf ... | aiayn ...`; returns what went to no file."""
    given = b""
    if line.startswith("printf"):
        printed, _, line = line.partition(" | ")
        given = subprocess.run(["/bin/sh", "-c", printed], capture_output=True, check=True).stdout
    words = shlex.split(line, comments=True)
    if not words:
        return ""
    assert words.pop(0) == "aiayn", line
    files = {"<": "", ">": ""}
    for sign in files.keys() & set(words):
        at = words.index(sign)
        files[sign] = words[at + 1]
        del words[at : at + 2]
    if files["<"]:
        given = Path(files["<"]).read_bytes()
    shown = io.BytesIO()
    with patch.context() as streams:
        streams.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        streams.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="utf-8", write_through=True))
        assert main([*words, *SMALLER.get(words[0], [])]) == 0, line
        sys.stdout.flush()
        written = shown.getvalue()
    if files[">"]:
        Path(files[">"]).write_bytes(written)
        return ""
    return written.decode()


def blocks(page: Path, language: str = "sh") -> list[str]:
    """What stands in the page between ```sh, or another language, and ```."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
