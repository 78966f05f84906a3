"""How the built-in corpus says things in English and German: words, phrases and clauses.

Every sentence has one translation: "you" is always du, "it" only the weather, present and progressive are both the
German present, and the English past is the German perfect (of sein, haben and modal verbs the preterite).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

Pair = tuple[str, str]  # English, German
Table = tuple[tuple[str, ...], ...]  # nominative, accusative, dative; of masculine, feminine, neuter, plural
NOM, ACC, DAT = range(3)
HE, THEY = 2, 4  # of the persons that verbs agree with: ich, du, er, wir, sie
NOTHING: Pair = ("", "")

_RELATIVE = ("der die das die", "den die das die", "dem der dem denen")  # relative pronouns
_BE = {"present": ("am", "are", "is", "are", "are"), "past": ("was", "were", "was", "were", "were")}
_CONTRACTIONS = {"an dem": "am", "in dem": "im", "in das": "ins", "von dem": "vom", "zu dem": "zum", "zu der": "zur"}


@dataclass(frozen=True, eq=False)
class Noun:
    index: int  # in its list, for the split of the corpus
    en: str
    en_plural: str
    article: str
    de: str
    oblique: str  # accusative and dative singular
    de_plural: str  # nominative; "" for what cannot be counted
    kind: str

    def german(self, case: int, column: int) -> str:
        if column < 3:
            return self.de if case == NOM else self.oblique
        return self.de_plural + ("n" if case == DAT and self.de_plural[-1] not in "ns" else "")


@dataclass(frozen=True, eq=False)
class Modifier:
    """An adjective or a preposition."""

    index: int
    en: str
    de: str
    stem: str  # of an adjective, before endings
    of: tuple[str, ...]  # kinds of nouns that it goes with


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb; demo_lexicon.yaml explains the fields."""

    index: int  # -1: outside the split of the corpus
    en: tuple[str, ...]
    de: tuple[str, ...]
    preterite: tuple[str, ...]  # where it is used instead of the perfect
    particle: str = ""
    to: str = ""
    prefix: str = ""
    by: tuple[str, ...] = ("adult", "youth")
    of: tuple[str, ...] = ()
    case: int = ACC
    after: str = ""
    gives: bool = False
    type: str = "action"
    goal: Sequence[str] = ()
    adds: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Determiner:
    en: str
    en_plural: str
    de: Table
    adjective_endings: Table
    definite: bool  # in German, definite objects stand before adverbials

    def of(self, en: str, de: str) -> "Determiner":
        """Fill in the owner: her dog is ihr Hund, Anna's dog Annas Hund."""
        forms = tuple(tuple(form.replace("MY", de) for form in row) for row in self.de)
        return replace(self, en=en, en_plural=en, de=forms)


class Lexicon:
    """The words of demo_lexicon.yaml, which explains them."""

    def __init__(self) -> None:
        rows = yaml.safe_load(Path(__file__).with_name("demo_lexicon.yaml").read_bytes())
        # By table: what is drawn, and the running sums of its weights.
        self.weights: dict[str, tuple[list[str], list[int]]]
        self.weights = {key: ([*row], [*accumulate(row.values())]) for key, row in rows["weights"].items()}
        self.pairs: dict[str, list[Pair]] = {key: [*row.items()] for key, row in rows.items() if isinstance(row, dict)}
        self.words: dict[str, list[str]] = {key: row.split() for key, row in rows.items() if isinstance(row, str)}
        self.nouns = [Noun(i, *row) for i, row in enumerate(rows["nouns"])]
        self.kinds = tuple(noun.kind for noun in self.nouns)
        self.adjectives = [_modifier(i, *row) for i, row in enumerate(rows["adjectives"])]
        self.prepositions = {row[0]: _modifier(i, *row) for i, row in enumerate(rows["prepositions"])}
        self.verbs = [_verb(i, rows["preterite"], **row) for i, row in enumerate(rows["verbs"])]
        self.lasting_verbs = [verb for verb in self.verbs if verb.type == "action"]
        special = [_verb(-1, rows["preterite"], **row) for row in (*rows["special verbs"], *rows["modals"])]
        pronouns = [((subject, other), tuple(de.split()), person) for subject, other, de, person in rows["pronouns"]]
        self.names = [Phrase((name, name), (name, name, name)) for name in self.words["names"]]
        self.pronouns = [Phrase(*forms, is_pronoun=True) for forms in pronouns]
        ends = {name: _table(text) for name, text in rows["endings"].items()}
        forms = {key: (*row[:2], _table(row[2]), ends[row[3]], row[4]) for key, row in rows["determiners"].items()}
        self.determiners = {key: Determiner(*form) for key, form in forms.items()}
        self.special = {verb.de[0]: verb for verb in special}  # by infinitive


def _table(text: str) -> Table:
    return tuple(tuple(row.replace("-", "").split(" ")) for row in text.split(", "))


def _modifier(index: int, en: str, de: str, stem: str, of: str) -> Modifier:
    return Modifier(index, en, de, stem, tuple(of.split()))


def _verb(index: int, preterites: dict[str, str], **row: Any) -> Verb:
    lists: dict[str, Any] = {key: tuple(row.pop(key).split()) for key in ("en", "de", "by", "of", "adds") if key in row}
    preterite = tuple(preterites.get(row.get("prefix", "") + lists["de"][0], "").split())
    return Verb(index=index, preterite=preterite, case=DAT if row.pop("case", "") == "dat" else ACC, **lists, **row)


@dataclass(eq=False)
class Phrase:
    """A pronoun, a name, or a noun with what stands around it."""

    en: Pair  # as subject, and elsewhere
    de: tuple[str, ...]  # by case
    person: int = HE
    noun: Noun | None = None
    kind: str = "adult"
    column: int = 0  # of a Table
    definite: bool = True
    has_adjective: bool = False
    is_pronoun: bool = False
    kein: tuple[str, ...] = ()  # by case, where a negation is said on it: keinen Hund
    relative: Pair = NOTHING  # relative clause

    def with_relative(self, clause: "Clause", gap: str) -> "Phrase":
        """Add a clause in which the phrase is the subject or the object: "that Anna is waiting for"."""
        case, preposition = (NOM, "") if gap == "subject" else (clause.verb.case, clause.verb.after)
        pronoun = _RELATIVE[case].split()[self.column]
        english = "who" if gap == "subject" and self.kind in ("adult", "youth") else "that"
        german = clause.german("last", f"{preposition} {pronoun}".strip(), gap=gap)
        return replace(self, relative=(clause.english(english, gap=gap), german))


def noun_phrase(
    noun: Noun, article: Determiner, adjectives: list[Modifier], plural: bool, count: Pair, kein: Determiner | None
) -> Phrase:
    """Say "these two big dogs" in all cases; `count` is a number in both languages."""
    column = 3 if plural else ("der", "die", "das").index(noun.article)
    words = (count[0], *(adjective.en for adjective in adjectives), noun.en_plural if plural else noun.en)
    english, before = _joined(words), article.en_plural if plural else article.en
    english = _joined(("an" if before == "a" and english[0] in "aeiou" else before, english))

    def german(word: Determiner, case: int) -> str:
        described = (adjective.stem + word.adjective_endings[case][column] for adjective in adjectives)
        return _joined((word.de[case][column], count[1], *described, noun.german(case, column)))

    forms, negated = (tuple(german(word, case) for case in (NOM, ACC, DAT) if word) for word in (article, kein))
    person = THEY if plural else HE
    return Phrase(
        (english, english), forms, person, noun, noun.kind, column, article.definite, bool(adjectives), kein=negated
    )


def _joined(words: Iterable[str]) -> str:
    return " ".join(filter(None, words))


def after(preposition: str, phrase: Phrase, case: int) -> str:
    """Put a German phrase after a preposition, contracted with the article where that is usual: im, zum."""
    article, _, rest = phrase.de[case].partition(" ")
    short = _CONTRACTIONS.get(f"{preposition} {article}")
    return f"{short} {rest}" if short else f"{preposition} {phrase.de[case]}"


@dataclass(eq=False)
class Clause:
    """A subject, a verb and what goes with it."""

    subject: Phrase
    verb: Verb
    tense: str  # present, progressive, past, future
    modal: Verb | None = None
    object: Phrase | None = None
    recipient: Phrase | None = None
    complement: Pair = NOTHING  # predicate, direction, for whom: before the German verb's last place
    adverbs: Pair = NOTHING  # with whom, how, where
    time: Pair = NOTHING
    time_at: str = "end"  # in English: front, verb, end; in German in front or in the middle
    negated: bool = False

    def sentence(self, mark: str = ".") -> Pair:
        return punctuated(self.english(), self.german("second"), mark)

    def may_be_negated(self) -> bool:
        """Whether a negation has one meaning: not of "every child", "three books" or "every day"."""
        others = (self.subject, self.recipient, None if self.object and self.object.kein else self.object)
        is_habit = self.time != NOTHING and self.tense == "present" and self.modal is None
        return not is_habit and all(phrase.definite for phrase in others if phrase)

    def english(self, front: str = "", *, inverted: bool = False, gap: str = "") -> str:
        """Say it after `front` (a question word, a conjunction), without punctuation."""
        auxiliary, main = self._english_verb(inverted)
        subject = "" if gap == "subject" else _joined((self.subject.en[0], self.subject.relative[0]))
        time_at = "end" if self.time_at == "front" and (front or inverted) else self.time_at
        early, middle, late = (self.time[0] if time_at == place else "" for place in ("front", "verb", "end"))
        verb = (auxiliary, subject) if inverted else (subject, auxiliary)
        words = [front, early, *verb, "not" if self.negated else "", middle, main, *self._english_objects(gap)]
        return _joined((*words, self.complement[0], self.adverbs[0], late)).replace("can not", "cannot")

    def _english_verb(self, inverted: bool) -> Pair:
        """The auxiliary, empty in "buys", and the main verb, empty in "is (tired)"; with do where it is needed."""
        base, third, past, *ing = self.verb.en
        is_past, person, is_plain = self.tense == "past", self.subject.person, not (self.negated or inverted)
        if self.modal:
            modal, modal_third, modal_past, _ = self.modal.en
            if modal == "can":
                return (modal_past if is_past else modal), base
            if modal == "have" and is_plain and not is_past:
                return "must", base
            base, third, past = (f"{form} to {base}" for form in (modal, modal_third, modal_past))
        elif self.tense == "future":
            return "will", base
        elif self.tense == "progressive":
            return _BE["present"][person], ing[0]
        elif base == "be":
            return _BE[self.tense][person], ""
        if is_plain:
            return "", past if is_past else third if person == HE else base
        return ("did" if is_past else "does" if person == HE else "do"), base

    def _english_objects(self, gap: str) -> tuple[str, ...]:
        verb, recipient = self.verb, self.recipient.en[1] if self.recipient else ""
        if self.object is None or gap == "object":
            return recipient, verb.particle, verb.to
        if self.object.is_pronoun:
            return recipient, verb.to, self.object.en[1], verb.particle
        return recipient, verb.particle, verb.to, self.object.en[1], self.object.relative[0]

    def german(self, order: str, front: str = "", *, gap: str = "") -> str:
        """Say it with the finite verb in first, second or last place; `front` replaces the subject or early time."""
        finite, prefix, last = self._german_verb()
        subject, time = "" if gap == "subject" else self.subject.de[NOM], self.time[1]
        if subject and self.subject.relative[1]:
            subject += f", {self.subject.relative[1]},"
        if order == "second" and not front:
            front, subject, time = (time, subject, "") if time and self.time_at == "front" else (subject, "", time)
        middle = self._german_middle(subject, time, gap)
        if order == "last":
            text = _joined((front, *middle, f"{last} {finite}" if last else prefix + finite))
        else:
            text = _joined((front, finite, *middle, prefix or last))
        return f"{text}, {self.object.relative[1]}" if self.object and self.object.relative[1] else text

    def _german_verb(self) -> tuple[str, str, str]:
        """The finite verb, a separated prefix, and what stands last: "ruft" "an" "", "hat" "" "angerufen"."""
        verb, person, is_past = self.verb, self.subject.person, self.tense == "past"
        if self.modal:
            return (self.modal.preterite if is_past else self.modal.de[1:])[person], "", verb.prefix + verb.de[0]
        if self.tense == "future":
            return ("werde", "wirst", "wird", "werden", "werden")[person], "", verb.prefix + verb.de[0]
        if not is_past:
            return verb.de[1 + person], verb.prefix, ""
        if verb.preterite:
            return verb.preterite[person], "", ""
        perfect = {"sein": ("bin", "bist", "ist", "sind", "sind"), "haben": ("habe", "hast", "hat", "haben", "haben")}
        return perfect[verb.de[6]][person], "", verb.de[7]

    def _german_middle(self, subject: str, time: str, gap: str) -> list[str]:
        """Order the middle field: definite objects, time, nicht, adverbs, indefinite objects, the rest."""
        early, late = list[str](), list[str]()
        rest, nicht = "", "nicht" if self.negated else ""
        if self.recipient:
            (early if self.recipient.definite else late).append(self.recipient.de[DAT])
        if self.object and self.verb.after and gap != "object":
            rest = after(self.verb.after, self.object, self.verb.case)
        elif self.object and gap != "object":
            words = self.object.de
            if nicht and self.object.kein:
                words, nicht = self.object.kein, ""
            (early if self.object.definite else late).append(words[self.verb.case])
        return [subject, *early, time, nicht, self.adverbs[1], *late, rest, self.complement[1]]


def punctuated(english: str, german: str, mark: str) -> Pair:
    """Capitalise both and add the mark, before which the comma of a relative clause is dropped."""
    german = german.replace(",,", ",").removesuffix(",")
    return english[0].upper() + english[1:] + mark, german[0].upper() + german[1:] + mark
