"""`score --stress`: disguises that keep the meaning, and what is counted of their translations."""

import json
import random
import unicodedata
from pathlib import Path

import pytest
from commands import Aiayn
from translation_models import make_checkpoint

from aiayn_cli.score.stress import DISGUISES

LINE = "Die Katze läuft; 3 Jagdhunde sehen sie."


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("upper case", "DIE KATZE LÄUFT; 3 JAGDHUNDE SEHEN SIE."),
        ("title case", "Die Katze Läuft; 3 Jagdhunde Sehen Sie."),
        ("no final mark", "Die Katze läuft; 3 Jagdhunde sehen sie"),
        ("double blanks", "Die  Katze  läuft;  3  Jagdhunde  sehen  sie."),
        ("no-break spaces", "Die\u00a0Katze\u00a0läuft;\u00a03\u00a0Jagdhunde\u00a0sehen\u00a0sie."),
        ("curly quotes", f"“{LINE}”"),
    ],
)
def test_a_disguise_changes_the_look_alone(name: str, expected: str) -> None:
    assert DISGUISES[name].change(LINE, random.Random(1)) == expected


def test_disguises_can_be_taken_off() -> None:
    changed = {name: each.change(LINE, random.Random(1)) for name, each in DISGUISES.items()}
    assert unicodedata.normalize("NFC", changed["decomposed (NFD)"]) == LINE != changed["decomposed (NFD)"]
    assert changed["soft hyphens"].replace("\u00ad", "") == LINE != changed["soft hyphens"]
    assert sorted(changed["typos"]) == sorted(LINE)
    for name in ("curly quotes", "emoji", "placeholders"):
        assert DISGUISES[name].view(changed[name]) == LINE != changed[name]
    for each in DISGUISES.values():
        each.change("", random.Random(1))  # blank lines have nothing to change


def test_the_table_counts_what_each_disguise_costs(
    aiayn: Aiayn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = make_checkpoint(tmp_path / "model", seed=1)
    for lang in ("de", "en"):
        Path(f"test.{lang}").write_text("der hund läuft\neine katze sieht\ndie maus springt.\n", encoding="utf-8")
    found = aiayn("score", "test.en", "--stress", str(model), "--json")
    assert (found.code, found.json) == (0, json.loads((model / "stress.json").read_text()))
    rows = {row["disguise"]: row for row in found.json["rows"]}
    assert list(rows) == list(DISGUISES)
    assert (rows["as it is"]["cost"], rows["as it is"]["unchanged"], rows["typos"]["unchanged"]) == (0, 1, None)
    assert [rows[name]["changed"] for name in ("as it is", "joined by fives", "no final mark", "emoji")] == [0, 1, 1, 3]
    assert aiayn("score", "test.en", "--stress", str(model)).out.startswith("disguise")


def test_a_reference_and_a_model_are_needed(aiayn: Aiayn) -> None:
    assert "no reference is named" in aiayn("score", "--stress", "none").err
    assert "none does not exist" in aiayn("score", "test.en", "--stress", "none").err


@pytest.mark.parametrize("other", ["--hyp test.en", "--by length", "--brackets"])
def test_options_for_translations_that_exist_are_refused(other: str, aiayn: Aiayn) -> None:
    found = aiayn("score", "test.en", "--stress", "model", *other.split())
    assert found.code == 2
    assert "remove one of the two" in found.err
