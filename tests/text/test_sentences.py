"""Where a line is cut into sentences, against sentences cut by hand; nothing of a line is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.text.sentences import knows_single_sentences, split_sentences

SENTENCES = [
    ("en", ["They will forget these blue flowers.", "The old present is cheap."]),
    ("en", ["Mr. Smith met Dr. Jones at 3 p.m. on Monday.", "They talked."]),
    ("en", ["No.", "Yes!", "Really?", "I see."]),
    ("en", ['"Come in," she said.', '"It is late!"', "He left."]),
    ("en", ["The U.S. economy grew 2.5 percent.", "J. R. R. Tolkien wrote it."]),
    ("en", ["He works at Apple Inc. in California.", "See Fig. 3 for details."]),
    ("en", ["Visit www.example.com.", "Prices e.g. 3.50 vary."]),
    ("en", ["What?!", "You cannot be serious..."]),
    ("de", ["Wir treffen uns am 3. Mai um 10 Uhr.", "Bring z. B. Brot mit.", "Danke!"]),
    ("de", ["Dr. Müller wohnt in der Hauptstr. 5.", "Er ist ca. 40 Jahre alt."]),
    ("de", ["Das war im 19. Jahrhundert.", "Niemand weiß es genau."]),
    ("de", ["„Kommst du?“", "Sie schwieg."]),
    ("fr", ["M. Dupont est arrivé.", "Il a 30 ans !", "Où est-il ?"]),
    ("es", ["¿Cómo estás?", "¡Muy bien!", "El Sr. García llegó."]),
    ("hi", ["मैं घर जा रहा हूँ।", "तुम कहाँ हो?", "वह यहाँ है।"]),
    ("ur", ["یہ کتاب ہے۔", "وہ گھر ہے۔"]),
    ("ar", ["أين أنت؟", "أنا هنا.", "شكرا!"]),
    ("zh", ["你好。", "今天天气很好！", "你去哪儿？"]),
    ("ja", ["これは本です。", "「行こう。」", "彼は言った。"]),
    ("hy", ["Ես գնում եմ տուն։", "Դու որտե՞ղ ես։"]),
    ("am", ["ሰላም ነው።", "እንዴት ነህ?"]),
    ("my", ["သူသွားသည်။", "ကျွန်တော်လာသည်။"]),
    ("ru", ["Он родился в 1980 г. в Москве.", "Это т. е. правда.", "Да."]),
    ("tr", ["Bugün hava güzel.", "Nereye gidiyorsun?"]),
    ("pl", ["To jest np. dom.", "Prof. Nowak mieszka tu."]),
    ("th", ["สวัสดีครับ"]),
    ("en", ["twenty sentences!", "lower case starts here.", "and here!"]),
    ("el", ["Πού είσαι;", "Είμαι εδώ."]),
    ("en", ["The meeting is at 5 p.m.", "Everyone is invited."]),
    ("en", ["Is it 3.14?", "It is.", "(See above.)", "Good."]),
    ("fr", ["Mme. Curie a gagné.", "Elle est célèbre."]),
    ("km", ["ខ្ញុំទៅផ្ទះ។", "អ្នកទៅណា។"]),
    ("bo", ["ང་ཁྱིམ་ལ་འགྲོ།", "ཁྱེད་གང་འགྲོ།"]),
    ("en", ["(He left.)", "She stayed."]),
]
WITHOUT_BLANKS = ("zh", "ja")


@pytest.mark.parametrize(("lang", "sentences"), SENTENCES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_line_is_cut_into_its_sentences(lang: str, sentences: list[str]) -> None:
    assert split_sentences(("" if lang in WITHOUT_BLANKS else " ").join(sentences), lang) == sentences


def test_what_has_no_letters_stays_with_its_neighbour() -> None:
    assert split_sentences("1. The dog sleeps. (3) ...", "en") == ["1. The dog sleeps. (3) ..."]
    assert split_sentences("42", "en") == ["42"]
    assert split_sentences(" ", "en") == []


@pytest.mark.parametrize("lang", ["en", "eng", "deu_Latn", "zh_Hans", "xx", "nonsense"])
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\n")))
def test_nothing_is_lost_and_nothing_made_up(lang: str, text: str) -> None:
    assert "".join("".join(split_sentences(text, lang)).split()) == "".join(text.split())


@given(st.text("ab. !?\"'()1", max_size=60))
def test_nothing_is_lost_among_marks(text: str) -> None:
    assert "".join("".join(split_sentences(text, "de")).split()) == "".join(text.split())


def test_a_model_of_single_sentences_is_known_by_its_training_text() -> None:
    assert knows_single_sentences(0.0)
    assert knows_single_sentences(0.02)
    assert not knows_single_sentences(0.3)
    assert not knows_single_sentences(None)  # nobody counted
