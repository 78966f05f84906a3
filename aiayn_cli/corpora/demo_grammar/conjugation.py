"""Verb forms of the built-in corpus: what stands second and what stands last, in English and German.

`Person` counts the five agreement forms of the corpus: I, you (always du), he/she/it, we, they.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

from aiayn_cli.corpora.demo_grammar.verbs import BE, KNOW_THAT, Verb


class Person(IntEnum):
    """Agreement of a subject; German "ihr" and "Sie" do not occur, so that "you" has one translation."""

    I = 0  # noqa: E741
    YOU = 1
    HE = 2
    WE = 3
    THEY = 4


class Tense(Enum):
    """The English tense; present and progressive are both the German present, the past is the German perfect."""

    PRESENT = 0
    PROGRESSIVE = 1
    PAST = 2
    FUTURE = 3


class Modal(Enum):
    """What is added to a verb; SHOULD has no past."""

    CAN = "können"
    MUST = "müssen"  # in English "have to" in the past, in questions and negated
    WANT = "wollen"
    SHOULD = "sollen"
    GLADLY = "gern"  # no verb in German: likes to read, liest gern


@dataclass(frozen=True)
class EnglishVerb:
    """The English verb group: "does" | "buy"; the auxiliary is empty in "buys", the main verb in "is" (tired)."""

    auxiliary: str
    main: str


@dataclass(frozen=True)
class GermanVerb:
    """The German verb group: "ruft" | "an" | "", "hat" | "" | "angerufen", "will" | "" | "anrufen"."""

    finite: str
    prefix: str
    last: str

    @property
    def second(self) -> str:
        """What ends a main clause."""
        return self.prefix or self.last

    @property
    def final(self) -> str:
        """What ends a subordinate clause: everything."""
        return f"{self.last} {self.finite}" if self.last else self.prefix + self.finite


_BE = ("am", "are", "is", "are", "are")
_WAS = ("was", "were", "was", "were", "were")
_DO = ("do", "do", "does", "do", "do")

_SEIN = ("bin", "bist", "ist", "sind", "sind")
_HABEN = ("habe", "hast", "hat", "haben", "haben")
_WERDEN = ("werde", "wirst", "wird", "werden", "werden")
_PRESENT = {
    BE: _SEIN,
    KNOW_THAT: ("weiß", "weißt", "weiß", "wissen", "wissen"),
    Modal.CAN: ("kann", "kannst", "kann", "können", "können"),
    Modal.MUST: ("muss", "musst", "muss", "müssen", "müssen"),
    Modal.WANT: ("will", "willst", "will", "wollen", "wollen"),
    Modal.SHOULD: ("sollte", "solltest", "sollte", "sollten", "sollten"),
}
_PRETERITE_STEMS = {"sein": "war", "haben": "hatte", Modal.CAN: "konnte", Modal.MUST: "musste", Modal.WANT: "wollte"}


def english_verb(
    verb: Verb, tense: Tense, person: Person, *, modal: Modal | None, negated: bool, inverted: bool
) -> EnglishVerb:
    """Build the English verb group, with do-support where negation or inversion asks for it."""
    past = tense is Tense.PAST
    if modal in (Modal.CAN, Modal.SHOULD):
        return EnglishVerb(("could" if past else "can") if modal is Modal.CAN else "should", verb.en)
    if modal is Modal.MUST and not (past or negated or inverted):
        return EnglishVerb("must", verb.en)
    if tense is Tense.FUTURE:
        return EnglishVerb("will", verb.en)
    if tense is Tense.PROGRESSIVE:
        return EnglishVerb(_BE[person], verb.en_ing)
    if verb is BE:
        return EnglishVerb((_WAS if past else _BE)[person], "")
    base, third, past_form, tail = verb.en, third_person(verb.en), verb.en_past, ""
    if modal is not None:
        tail = " to " + verb.en
        base, third, past_form = {
            Modal.MUST: ("have", "has", "had"),
            Modal.WANT: ("want", "wants", "wanted"),
            Modal.GLADLY: ("like", "likes", "liked"),
        }[modal]
    if negated or inverted:
        return EnglishVerb("did" if past else _DO[person], base + tail)
    return EnglishVerb("", (past_form if past else third if person is Person.HE else base) + tail)


def german_verb(verb: Verb, tense: Tense, person: Person, *, modal: Modal | None) -> GermanVerb:
    """Build the German verb group: present, perfect (preterite for sein, haben and modals), future, or modal."""
    if modal is not None and modal is not Modal.GLADLY:
        finite = _preterite(_PRETERITE_STEMS[modal], person) if tense is Tense.PAST else _PRESENT[modal][person]
        return GermanVerb(finite, "", verb.prefix + verb.infinitive)
    if tense is Tense.FUTURE:
        return GermanVerb(_WERDEN[person], "", verb.prefix + verb.infinitive)
    if tense is Tense.PAST:
        if not verb.prefix and verb.infinitive in _PRETERITE_STEMS:
            return GermanVerb(_preterite(_PRETERITE_STEMS[verb.infinitive], person), "", "")
        return GermanVerb((_SEIN if verb.sein else _HABEN)[person], "", verb.participle)
    return GermanVerb(_present(verb, person), verb.prefix, "")


def third_person(base: str) -> str:
    """Spell the English third person singular: goes, washes, carries, has."""
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")


def _present(verb: Verb, person: Person) -> str:
    if verb in _PRESENT:
        return _PRESENT[verb][person]
    if person is Person.HE:
        return verb.er
    if person is Person.YOU:  # shares the stem of the er form: er schläft, du schläfst; er liest, du liest
        stem = verb.er[:-1]
        return stem + ("t" if stem.endswith(("s", "ß", "z")) else "st")
    if person is Person.I:
        return verb.infinitive.removesuffix("n").removesuffix("e") + "e"
    return verb.infinitive


def _preterite(stem: str, person: Person) -> str:
    plural = "n" if stem.endswith("e") else "en"  # hatten, waren
    return stem + ("", "st", "", plural, plural)[person]
