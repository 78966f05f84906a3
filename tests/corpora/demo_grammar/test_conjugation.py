"""Verb forms, against forms written by hand: ich, du, er, wir, sie."""

import pytest

from aiayn_cli.corpora.demo_grammar.conjugation import Modal, Person, Tense, english_verb, german_verb, third_person
from aiayn_cli.corpora.demo_grammar.verbs import BE, BY_KEY, KNOW_THAT, Verb

PRESENT = {
    "sleep": "schlafe schläfst schläft schlafen schlafen",
    "see": "sehe siehst sieht sehen sehen",
    "read": "lese liest liest lesen lesen",
    "eat": "esse isst isst essen essen",
    "wash": "wasche wäschst wäscht waschen waschen",
    "work": "arbeite arbeitest arbeitet arbeiten arbeiten",
    "find": "finde findest findet finden finden",
    "draw": "zeichne zeichnest zeichnet zeichnen zeichnen",
    "dance": "tanze tanzt tanzt tanzen tanzen",
    "have": "habe hast hat haben haben",
    "give": "gebe gibst gibt geben geben",
    "run": "laufe läufst läuft laufen laufen",
    "meet": "treffe triffst trifft treffen treffen",
    "forget": "vergesse vergisst vergisst vergessen vergessen",
    "invite": "lade lädst lädt laden laden",
    "throw away": "werfe wirfst wirft werfen werfen",
    "be": "bin bist ist sind sind",
    "know that": "weiß weißt weiß wissen wissen",
}


def verb(key: str) -> Verb:
    return {"be": BE, "know that": KNOW_THAT}.get(key) or BY_KEY[key]


@pytest.mark.parametrize("key", PRESENT)
def test_the_present_has_its_five_forms(key: str) -> None:
    forms = [german_verb(verb(key), Tense.PRESENT, person, modal=None).finite for person in Person]
    assert " ".join(forms) == PRESENT[key]


def both(key: str, tense: Tense, person: Person, modal: Modal | None = None) -> tuple[str, str]:
    """Say what ends a main clause, after its finite verb, and what ends a subordinate clause."""
    group = german_verb(verb(key), tense, person, modal=modal)
    return f"{group.finite} ... {group.second}".strip(), group.final


def test_separable_verbs_part_in_main_clauses_only() -> None:
    assert both("call", Tense.PRESENT, Person.HE) == ("ruft ... an", "anruft")
    assert both("call", Tense.PAST, Person.WE) == ("haben ... angerufen", "angerufen haben")
    assert both("fall asleep", Tense.PAST, Person.I) == ("bin ... eingeschlafen", "eingeschlafen bin")
    assert both("call", Tense.FUTURE, Person.YOU) == ("wirst ... anrufen", "anrufen wirst")
    assert both("call", Tense.PRESENT, Person.THEY, Modal.CAN) == ("können ... anrufen", "anrufen können")


def test_sein_haben_and_modals_say_the_past_with_the_preterite() -> None:
    assert both("be", Tense.PAST, Person.YOU) == ("warst ...", "warst")
    assert both("be", Tense.PAST, Person.THEY) == ("waren ...", "waren")
    assert both("have", Tense.PAST, Person.YOU) == ("hattest ...", "hattest")
    assert both("have", Tense.PAST, Person.WE) == ("hatten ...", "hatten")
    assert both("swim", Tense.PAST, Person.I, Modal.MUST) == ("musste ... schwimmen", "schwimmen musste")
    assert both("swim", Tense.PRESENT, Person.YOU, Modal.SHOULD) == ("solltest ... schwimmen", "schwimmen solltest")


@pytest.mark.parametrize(
    ("key", "tense", "person", "modal", "statement", "question"),
    [
        ("carry", Tense.PRESENT, Person.HE, None, "carries", "does carry"),
        ("carry", Tense.PRESENT, Person.WE, None, "carry", "do carry"),
        ("write", Tense.PROGRESSIVE, Person.I, None, "am writing", "am writing"),
        ("swim", Tense.PROGRESSIVE, Person.THEY, None, "are swimming", "are swimming"),
        ("lie", Tense.PROGRESSIVE, Person.HE, None, "is lying", "is lying"),
        ("give", Tense.PAST, Person.HE, None, "gave", "did give"),
        ("give", Tense.FUTURE, Person.HE, None, "will give", "will give"),
        ("be", Tense.PAST, Person.THEY, None, "were", "were"),
        ("sing", Tense.PRESENT, Person.HE, Modal.MUST, "must sing", "does have to sing"),
        ("sing", Tense.PAST, Person.HE, Modal.MUST, "had to sing", "did have to sing"),
        ("sing", Tense.PAST, Person.I, Modal.CAN, "could sing", "could sing"),
        ("sing", Tense.PRESENT, Person.HE, Modal.WANT, "wants to sing", "does want to sing"),
        ("sing", Tense.PRESENT, Person.YOU, Modal.GLADLY, "like to sing", "do like to sing"),
    ],
)
def test_english_verbs_take_do_where_they_need_it(
    key: str, tense: Tense, person: Person, modal: Modal | None, statement: str, question: str
) -> None:
    def say(*, inverted: bool, negated: bool) -> str:
        group = english_verb(verb(key), tense, person, modal=modal, negated=negated, inverted=inverted)
        return f"{group.auxiliary} {group.main}".strip()

    assert say(inverted=False, negated=False) == statement
    assert say(inverted=True, negated=False) == question
    assert say(inverted=False, negated=True) == question


def test_the_english_third_person_follows_the_spelling_rules() -> None:
    bases = ("go", "wash", "watch", "carry", "play", "have", "see")
    assert " ".join(map(third_person, bases)) == "goes washes watches carries plays has sees"
