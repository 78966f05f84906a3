"""How a result is printed: as text for people, as one JSON object for programs."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from aiayn_cli.command_line import print_result


@dataclass(frozen=True)
class Split:
    pairs: int
    dropped: dict[str, int]


@dataclass(frozen=True)
class Result:
    folder: Path
    train: Split
    best_bleu: float
    lost: float
    names: tuple[str, ...]
    resumed: bool
    note: str | None = None


@dataclass(frozen=True)
class Score:
    score: float

    def __str__(self) -> str:
        return f"BLEU = {self.score:.1f}"


RESULT = Result(
    Path("prepared/größe"), Split(29_000, {"too_long": 3, "empty": 0}), 39.123, float("nan"), ("a", "b"), True
)


def test_a_result_as_json_is_one_object_with_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(RESULT, as_json=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "größe" in out
    assert json.loads(out) == {
        "folder": "prepared/größe",
        "train": {"pairs": 29_000, "dropped": {"too_long": 3, "empty": 0}},
        "best_bleu": 39.123,
        "lost": None,  # JSON has no NaN
        "names": ["a", "b"],
        "resumed": True,
        "note": None,
    }


def test_a_mapping_as_text_has_a_line_for_each_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"html": Path("runs/größe.html")}, as_json=False)
    assert capsys.readouterr().out == "html  runs/größe.html\n"


def test_a_result_that_prints_itself_does(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(Score(37.25), as_json=False)
    print_result(Score(37.25), as_json=True)
    assert capsys.readouterr().out == 'BLEU = 37.2\n{"score": 37.25}\n'


def test_a_result_of_another_kind_is_our_bug() -> None:
    with pytest.raises(TypeError, match="set"):
        print_result({"names": {1, 2}}, as_json=True)
