import random
import unicodedata

import pytest

from aiayn_cli.score.checks import suspicions

REFERENCE = ["Der Hund läuft.", "Sie sagte: Halt!", "Es kostet 3 Euro, viel zu viel.", "", "Zwei Männer spielen."]


def sentences(count: int, seed: int = 1) -> list[str]:
    """Different sentences of some words each, with repeated small words."""
    chance = random.Random(seed)
    words = [f"wort{number}" for number in range(300)]
    return [
        " ".join(
            chance.choice(["der", "die", "und", *chance.choices(words, k=4)]) for _ in range(chance.randint(5, 12))
        )
        for _ in range(count)
    ]


def imperfect(lines: list[str], seed: int = 2) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(word if chance.random() < 0.6 else "anders" for word in line.split(" ")) for line in lines]


def test_plain_text_raises_no_suspicion() -> None:
    assert suspicions(["Ein Hund rennt.", "Sie sagte: Stopp!", "3 Euro sind viel.", "", "Männer."], [REFERENCE]) == []
    assert suspicions([], [[]]) == []
    lines = sentences(300)
    assert suspicions(imperfect(lines), [lines], imperfect(lines, seed=3)) == []
    assert suspicions(sentences(300, seed=9), [lines]) == []  # bad, but nowhere better


@pytest.mark.parametrize(
    ("hypotheses", "sign"),
    [
        (["Der Hu@@ nd läuft.", *REFERENCE[1:]], "20% of the hypotheses contain sub-word marks"),
        (["▁Der ▁Hund ▁läuft.", *REFERENCE[1:]], "20% of the hypotheses contain sub-word marks"),
        (["Der Hu ##nd läuft.", *REFERENCE[1:]], "20% of the hypotheses contain sub-word marks"),
        (["Der Hund läuft .", "Sie sagte : Halt !", *REFERENCE[2:]], "40% of the hypotheses look tokenised"),
        (["Der Hund &quot;läuft&quot;", *REFERENCE[1:]], "the hypotheses have HTML entities such as &quot; in 1 line"),
        (
            [unicodedata.normalize("NFD", line) for line in REFERENCE],
            "the hypotheses have decomposed characters in 2 lines",
        ),
        ([*REFERENCE[:3], "Was?", REFERENCE[4]], "blank references: 1 line of 5"),
        ([line.lower() for line in REFERENCE], "no hypothesis has a capital letter"),
        ([" "] * 5, "every line of the hypotheses is blank"),
        (["", *REFERENCE[1:]], "blank where a reference is not: 1 line of 5"),
    ],
)
def test_a_form_that_would_give_a_false_score_is_named(hypotheses: list[str], sign: str) -> None:
    [found] = suspicions(hypotheses, [REFERENCE])
    assert found.startswith(sign)


def test_markup_given_as_text_is_named_on_each_side() -> None:
    markup = ["<refset>", '<seg id="1">Der Hund läuft.</seg>', "</refset>"]
    found = suspicions(markup, [markup])
    assert [line.partition(" look like SGML or XML")[0] for line in found] == ["the hypotheses", "the references"]
    assert suspicions(["<b>Halt!</b>"], [["<b>Stopp!</b>"]]) == []  # tags within text


def test_cedilla_and_comma_below_are_told_apart_where_the_sides_differ() -> None:
    turkish, romanian = ["Şimdi iş var."], ["Știe toți pașii."]
    assert suspicions(turkish, [turkish]) == suspicions(["Bugün yok."], [turkish]) == []
    [found] = suspicions(["Ştie toţi paşii."], [romanian])
    assert found.startswith("the hypotheses have ş or ţ with a cedilla in 1 line, the references in 0")
    [found] = suspicions(romanian, [["Ştie toţi paşii."]])
    assert found.startswith("the references have ş or ţ with a cedilla in 1 line, the hypotheses in 0")


def test_what_the_references_have_too_is_no_sign_and_a_few_capitals_hide_nothing() -> None:
    french = ["Quoi ?", "Non !", "Si : oui ; non."]
    assert suspicions(french, [french]) == []
    caseless = ["你好。", "再见。"]
    assert suspicions(caseless, [caseless]) == []
    assert suspicions(["", "再见。"], [["", "再见。"]]) == []
    reference = REFERENCE * 20
    [found] = suspicions(["Der Hund läuft.", *[line.lower() for line in reference[1:]]], [reference])
    assert found.startswith("only 1% of the hypotheses have a capital letter")


def test_references_or_hypotheses_that_are_the_source_are_named() -> None:
    source = ["The dog runs.", "She said: stop!", "It costs 3 euros.", "", "Berlin"]
    [found] = suspicions(REFERENCE, [source], source)
    assert found.startswith("the reference looks like the source: 100% of its lines are the same")
    [found] = suspicions(REFERENCE, [REFERENCE, source], source)
    assert found.startswith("reference 2 looks like the source")
    [found] = suspicions(source, [REFERENCE], source)
    assert found.startswith("the hypotheses look like the source")
    assert suspicions(REFERENCE, [[*REFERENCE[:4], "Berlin"]], source) == []  # some names are the same everywhere


@pytest.mark.parametrize("by", [1, 2, 3, -1, -3])
def test_lines_that_are_shifted_from_some_place_on_are_named(by: int) -> None:
    reference = sentences(300)
    hypotheses = imperfect(reference)
    shifted = hypotheses[:120] + (
        hypotheses[120 + by :] + ["Ende"] * by if by > 0 else ["Anfang"] * -by + hypotheses[120:by]
    )
    assert len(shifted) == 300
    [found] = suspicions(shifted, [reference])
    assert found.startswith("lines seem shifted from line 121 on: 9 of 15 windows of 20 lines fit better")


def test_lines_without_blanks_are_compared_by_character() -> None:
    chance = random.Random(1)
    reference = ["".join(chr(0x4E00 + chance.randrange(3_000)) for _ in range(12)) for _ in range(100)]
    assert suspicions(reference, [reference]) == []
    [found] = suspicions([*reference[1:], "完"], [reference])
    assert "shifted from line 1 on: 5 of 5" in found
