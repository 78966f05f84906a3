"""Training text that is not what it should be is seen in a sample."""

from pathlib import Path

import pytest
from commands import Aiayn
from made_pairs import write_pairs

from aiayn_cli.prepare.signs import find_signs, shown

SRC = "the dog sees a house and the cat of my old friend is here with an apple on every table"
TGT = "der Hund sieht ein Haus und die Katze von meinem alten Freund ist hier mit einem Apfel auf jedem Tisch"


def pairs(n: int, start: int = 0) -> list[tuple[str, str]]:
    def line(words: list[str], step: int, i: int) -> str:
        return " ".join(words[(i * step + j * 3) % len(words)] for j in range(5)) + f" Anna {i}"

    return [(line(SRC.split(), 7, i), line(TGT.split(), 5, i)) for i in range(start, start + n)]


def swapped(some: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(tgt, src) for src, tgt in some]


GOOD, VALID = pairs(400), pairs(100, 1_000)
UNTRANSLATED = [(src, other) for (src, _), (other, _) in zip(GOOD[:100], GOOD[100:200], strict=True)]
BACK = [(other, tgt) for (_, tgt), (_, other) in zip(GOOD[:100], GOOD[100:200], strict=True)]


@pytest.mark.parametrize(
    ("train", "found"),
    [
        (GOOD, {}),
        (swapped(GOOD), {"swapped": 1.0}),
        (GOOD[100:] + UNTRANSLATED, {"tgt_in_src_lang": 0.25}),
        (GOOD[100:] + BACK, {"src_in_tgt_lang": 0.25}),
        (GOOD[40:] + [(f"{s} &amp;", f"{t} &quot;&#39;") for s, t in GOOD[:40]], {"html_entities": 0.1}),
        (GOOD[4:] + [("The dog sees. The cat is here.", "x")] * 4, {"several_sentences": 0.01}),
    ],
)
def test_each_sign_has_its_share(train: list[tuple[str, str]], found: dict[str, float]) -> None:
    src, tgt = (list(side) for side in zip(*VALID, strict=True))
    assert shown(find_signs(train, (src, tgt), "en")) == pytest.approx(found, abs=0.01)
    assert shown(find_signs(swapped(train)[:40], (src[:40], tgt[:40]), "en")).keys() <= {"several_sentences"}


def test_the_validation_text_may_be_held_out_of_the_same_text() -> None:
    assert shown(find_signs(GOOD[100:] + UNTRANSLATED, ([], []), "en")) == pytest.approx(
        {"tgt_in_src_lang": 0.25}, abs=0.01
    )
    held_out = GOOD[80:200] + UNTRANSLATED[:30]
    src, tgt = (list(side) for side in zip(*held_out, strict=True))
    assert shown(find_signs(GOOD[200:] + UNTRANSLATED[50:], (src, tgt), "en")) == pytest.approx(
        {"tgt_in_src_lang": 0.2}, abs=0.01
    )


def test_signs_are_rows_and_warnings_each_time(here: Path, aiayn: Aiayn) -> None:
    write_pairs(here, "a", swapped(GOOD))
    write_pairs(here, "v", VALID)
    line = "prepare --train a.en a.de --valid v.en v.de --langs en-de --vocab-size 60 --max-ratio 9 --out out"
    for _ in range(2):
        code, out, err = aiayn(*line.split())
        assert code == 0
        assert "\npairs with swapped sides " in out
        assert out.rstrip().endswith("100.0%")
        assert "warning: pairs with swapped sides: 100.0% of a sample; exchange the files of --train" in err


def test_names_of_files_tell_swapped_sides(here: Path, aiayn: Aiayn) -> None:
    write_pairs(here, "a", GOOD)
    write_pairs(here, "x.de-en", GOOD)
    line = (
        "--valid a.en a.de --langs en-de --vocab-size 60 --max-ratio 9 --no-dedupe --set data.drop_overlap=false --out"
    )
    said = "going by their names, the sides of en-de are swapped"
    for number, (names, warned) in enumerate(
        [("a.de a.en", True), ("a.en a.de", False), ("x.de-en.en x.de-en.de", False), ("x.de-en.de x.de-en.en", True)]
    ):
        err = aiayn(*f"prepare --train {names} {line} out{number}".split()).err
        assert (said in err) == warned, names
