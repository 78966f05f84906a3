import pytest

from aiayn_cli.evaluation.checks import suspicions

REFERENCE = ["Der Hund läuft.", "Sie sagte: Halt!", "Es kostet 3 Euro, viel zu viel.", "", "Zwei Männer spielen."]


def test_plain_text_raises_no_suspicion() -> None:
    assert suspicions(["Ein Hund rennt.", "Sie sagte: Stopp!", "3 Euro sind viel.", "", "Männer."], [REFERENCE]) == []
    assert suspicions([], [[]]) == []


@pytest.mark.parametrize(
    ("hypotheses", "sign"),
    [
        (["Der Hu@@ nd läuft.", *REFERENCE[1:]], "20% of the hypotheses hold sub-word marks"),
        (["▁Der ▁Hund ▁läuft.", *REFERENCE[1:]], "20% of the hypotheses hold sub-word marks"),
        (["Der Hund läuft .", "Sie sagte : Halt !", *REFERENCE[2:]], "40% of the hypotheses look tokenised"),
        (["Der Hund &quot;läuft&quot;", *REFERENCE[1:]], "20% of the hypotheses look tokenised"),
        ([line.lower() for line in REFERENCE], "no hypothesis holds a capital letter"),
        (["", *REFERENCE[1:]], "1 of 5 hypotheses are blank where a reference is not"),
    ],
)
def test_a_form_that_would_give_a_false_score_is_named(hypotheses: list[str], sign: str) -> None:
    [found] = suspicions(hypotheses, [REFERENCE])
    assert found.startswith(sign)


def test_what_the_references_have_too_is_no_sign() -> None:
    french = ["Quoi ?", "Non !", "Si : oui ; non."]
    assert suspicions(french, [french]) == []
    caseless = ["你好。", "再见。"]
    assert suspicions(caseless, [caseless]) == []
    assert suspicions(["", "再见。"], [["", "再见。"]]) == []
