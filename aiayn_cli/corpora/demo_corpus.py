"""The built-in English-German corpus: made by a grammar, so that it needs no network and has one right answer.

What is hard in German is in it: genders, cases, declensions of adjectives, verbs in second and last place, separable
verbs, two-way prepositions, subordinate and relative clauses, kein and nicht, clock times. The split is compositional:
one of 14 pairs of a word (adjective, preposition, verb) and a noun belongs to validation, as many to the test, and
none of them occurs in training; every sentence of validation and test has such a pair of well-known words.
"""

import random
import re
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from aiayn_cli.corpora import demo_grammar as grammar
from aiayn_cli.corpora.demo_grammar import ACC, DAT, HE, NOTHING, Clause, Modifier, Noun, Pair, Phrase, Verb

TRAIN_SIZE = 24_000
HELD_OUT_SIZE = 500  # of validation and of test
MIN_COUNT = 5  # occurrences in training of every word form of validation and test
TRAIN, VALID, TEST = "train", "valid", "test"

Pairs = tuple[Pair, ...]
Word = Modifier | Verb
T = TypeVar("T")

_TOKEN = re.compile(r"\w+(?:[-:'.]\w+)*|[^\w\s]")
_WHO = Phrase(("who", "who"), ("wer", "wen", "wem"))
_WHAT = Phrase(("what", "what"), ("was", "was", ""))
_IT = Phrase(("it", "it"), ("es", "es", "ihm"))
_WRONG_TYPE = {"now": "chance", "habit": "deed", "future": "state"}  # of verb for a clause of this time
_PERSONS, _LIVING = ("adult", "youth"), ("adult", "youth", "animal")


class Wish(NamedTuple):
    """What a random clause should be like; the defaults leave all to chance."""

    when: str = ""  # now, past, future or habit
    time: bool = True  # may say when
    free: bool = True  # may have additions, a negation and a modal verb
    lasting: bool = False  # only what lasts a while: is sleeping, not sees


def generate(seed: int = 1) -> dict[str, Pairs]:
    """Make the (English, German) sentences of each split, in each language all different.

    A seed gives the same ones everywhere; the held-out pairs of words are the same for all seeds.
    """
    lexicon, draw, seen = grammar.Lexicon(), random.Random(seed), set[str]()
    train = draw_distinct(Sampler(draw, lexicon, (TRAIN,)), TRAIN_SIZE, seen)
    counts = [Counter(token for pair in train for token in tokens(pair[side])) for side in (0, 1)]
    known = [{token for token, count in each.items() if count >= MIN_COUNT} for each in counts]
    samplers = {split: Sampler(draw, lexicon, (TRAIN, split)) for split in (VALID, TEST)}
    scored = {split: draw_distinct(sampler, HELD_OUT_SIZE, seen, known) for split, sampler in samplers.items()}
    return {TRAIN: train, **scored}


def draw_distinct(sampler: "Sampler", size: int, seen: set[str], known: Sequence[set[str]] = ()) -> Pairs:
    """Draw sentences unlike all `seen` ones. For validation and test, `known` has the word forms that they may have, in
    English and in German, and each has a held-out pair of words.
    """
    pairs: list[Pair] = []
    while len(pairs) < size:
        pair = sampler.sentence()
        if pair is None or not seen.isdisjoint(pair) or (known and sampler.allowed[-1] not in sampler.splits_used):
            continue
        if all(words.issuperset(tokens(text)) for words, text in zip(known, pair, strict=False)):
            seen.update(pair)
            pairs.append(pair)
    return tuple(pairs)


def tokens(text: str) -> list[str]:
    """Split a sentence into words, as spelt ("o'clock", "17:45" whole), and punctuation marks."""
    return _TOKEN.findall(text)


@cache
def split_of(word: Word, noun: Noun) -> str:
    """Which split a pair belongs to, spread so that every word keeps most of its partners in training."""
    return {0: VALID, 7: TEST}.get((3 * word.index + 5 * noun.index) % 14, TRAIN) if word.index >= 0 else TRAIN


class Sampler:
    """Draws sentences whose pairs of words belong to `allowed` splits."""

    def __init__(self, draw: random.Random, lexicon: grammar.Lexicon, allowed: tuple[str, ...]) -> None:
        self.splits_used: set[str] = set()  # in the latest sentence
        # random() is the one method whose sequence for a seed is guaranteed on every platform and version.
        self._random, self.allowed, self._lexicon = draw.random, allowed, lexicon
        self._pairs, self._words, self._special = lexicon.pairs, lexicon.words, lexicon.special
        self._nouns, self._adjectives = cache(self._find_nouns), cache(self._find_adjectives)

    def sentence(self) -> Pair | None:
        """Draw a sentence; None where two clauses turned out too alike."""
        self.splits_used = set()
        match self._weighted("sentence"):
            case "statement":
                return self._clause(Wish()).sentence()
            case "relative":
                clause = self._clause(Wish(free=False))
                clause.time_at = "verb" if clause.time_at == "verb" else "front"
                if clause.object and clause.complement == NOTHING and self._of(0.6):
                    clause.object = self._with_relative(clause.object)
                else:
                    clause.subject = self._with_relative(clause.subject)
                return clause.sentence()
            case "two clauses":
                return self._two_clauses(*self._weighted("conjunction").split())
            case "sein" | "kosten" | "regnen" | "schneien" as verb:
                return self._about(self._special[verb]).sentence()
            case kind:
                return self._question(kind)

    def _with_relative(self, phrase: Phrase) -> Phrase:
        if not phrase.noun or phrase.noun.en in self._words["family"]:
            return phrase
        wish = Wish(when="now" if self._of(0.5) else "past", time=False, free=False)
        if self._of(0.5) and self._verbs(wish, None, phrase):
            return phrase.with_relative(self._clause(wish, what=phrase), "object")
        return phrase.with_relative(self._clause(wish, subject=phrase), "subject")

    def _two_clauses(self, en: str, de: str, when: str, other: str) -> Pair | None:
        """Join two clauses by a conjunction; `when` is a verb where the second says what somebody says or believes."""
        lasting = en in ("when", "if", "while", "before")
        if (verb := self._special.get(when)) is not None:
            first = Clause(self._person(_PERSONS, verb), verb, "progressive" if en == "whether" else "present")
        else:
            first = self._clause(Wish(when, time=False, free=not lasting and self._of(0.5), lasting=lasting))
        second = self._clause(Wish(other, time=verb is not None, free=not lasting and self._of(0.5), lasting=lasting))
        one, two = first.subject, second.subject
        if first.verb is second.verb or one == two or (one.noun is not None and one.noun is two.noun):
            return None
        if en in ("and", "but"):
            comma = "," if en == "but" else ""
            english = f"{first.english()}{comma} {en} {second.english()}"
            return grammar.punctuated(english, f"{first.german('second')}{comma} {de} {second.german('second')}", ".")
        english, german = second.english(en), second.german("last", de)
        if verb is None and self._of(0.35):  # the other clause is in first place, so that the verb comes next
            first.time_at = "end"
            english = f"{english}, {first.english()}"
            return grammar.punctuated(english, f"{german}, {first.german('first')}", ".")
        return grammar.punctuated(f"{first.english()} {english}", f"{first.german('second')}, {german}", ".")

    def _question(self, kind: str) -> Pair:
        """Ask who, whom or what, whether, where, when or why."""
        if kind == "who":
            return self._clause(Wish(time=False), subject=_WHO).sentence("?")
        verb, what, gap = None, None, ""
        front = {"where": "wo", "when": "wann", "why": "warum"}.get(kind, "")
        if kind == "where":
            verb = self._pick([verb for verb in self._lexicon.verbs if "at" in verb.adds])
        elif kind == "what":
            verb, gap = self._pick([verb for verb in self._lexicon.verbs if verb.of]), "object"
            what = _WHO if verb.case == DAT or verb.after or ("adult" in verb.of and self._of(0.8)) else _WHAT
            kind, front = what.en[0], f"{verb.after} {what.de[verb.case]}".strip()
        when = self._pick(("past", "future")) if kind == "when" else ""
        wish = Wish(when, time=not front or gap != "", free=kind != "where")
        clause = self._clause(wish, what=what, verb=verb)
        clause.negated = False
        german = clause.german("second", front, gap=gap) if front else clause.german("first")
        return grammar.punctuated(clause.english(kind if front else "", inverted=True, gap=gap), german, "?")

    def _about(self, verb: Verb) -> Clause:
        """How old somebody is, what something costs or what the weather is like."""
        if verb.en[0] in ("rain", "snow"):
            tense, place = self._pick(("past", "future")), self._pick(self._pairs["in city"])
            return Clause(_IT, verb, tense, adverbs=place, time=self._when(tense))
        who, (en, de) = self._person(verb.by, verb), self._number(99)
        unit = ("years old", "Jahre alt") if verb.en[0] == "be" else ("euros", "Euro")
        return Clause(who, verb, "present", complement=(f"{en} {unit[0]}", f"{de} {unit[1]}"))

    def _clause(
        self, wish: Wish, *, subject: Phrase | None = None, what: Phrase | None = None, verb: Verb | None = None
    ) -> Clause:
        """Draw a clause, with a verb that goes with the subject or object if one is given."""
        verbs = [verb] if verb else self._verbs(wish, subject, what)
        may_be = not (verb or what or wish.lasting) and wish.when != "future"
        if not verbs or (may_be and self._of(0.16)):
            return self._be(wish, subject)
        verb = self._pick(verbs)
        who = subject or self._person(verb.by, verb, what)
        clause = Clause(who, verb, *self._tense(verb, who, wish), what)
        if verb.of and what is None:
            clause.object = self._person(verb.of, verb, who)
        if verb.gives:
            clause.recipient = self._person(_PERSONS, verb, who)
        if verb.goal:
            clause.complement = self._adverbial(self._pick(verb.goal), who)
        if wish.time and verb.type != "state" and self._of(0.5):
            tense = "future" if clause.modal and clause.tense == "present" else clause.tense
            often = tense == "present" and self._of(0.5)
            clause.time = self._pick(self._pairs["often"]) if often else self._when(tense)
            clause.time_at = "verb" if often else "front" if self._of(0.45) else "end"
        if wish.free and self._of(0.2) and clause.may_be_negated():
            clause.negated = True
        elif wish.free and verb.adds and clause.complement == NOTHING and self._of(0.5):
            clause.adverbs = self._adverbial(self._pick(verb.adds), who)
        return clause

    def _verbs(self, wish: Wish, subject: Phrase | None, what: Phrase | None) -> list[Verb]:
        """The verbs that go with a time, a subject and an object, where they are given."""
        verbs = self._lexicon.lasting_verbs if wish.lasting else self._lexicon.verbs
        if wrong := _WRONG_TYPE.get(wish.when):
            verbs = [v for v in verbs if v.type != wrong]
        if subject is not None:
            verbs = [v for v in verbs if subject.kind in v.by and self._may_join(v, subject.noun)]
        if what is not None:
            verbs = [v for v in verbs if what.kind in v.of and self._may_join(v, what.noun)]
        return verbs

    def _tense(self, verb: Verb, who: Phrase, wish: Wish) -> tuple[str, Verb | None]:
        lasts = verb.type in ("action", "deed")
        if wish.free and lasts and who.kind in _LIVING and wish.when != "habit" and self._of(0.2):
            tense = "past" if wish.when == "past" or (not wish.when and self._of(0.35)) else "present"
            return tense, self._special[self._pick(self._words["modal"])]
        now = "progressive" if lasts else "present"
        tense = {"past": "past", "future": "future", "habit": "present", "now": now}.get(wish.when, "")
        tense = tense or self._weighted(verb.type)
        # "they read" and "they put" are left to the past, which is spelt alike.
        is_ambiguous = tense == "present" and verb.en[0] == verb.en[2] and who.person != HE
        return ("progressive" if is_ambiguous else tense), None

    def _be(self, wish: Wish, subject: Phrase | None) -> Clause:
        """The car is red; the child is in the garden."""
        be = self._special["sein"]
        who = subject or self._person(_PERSONS if self._of(0.4) else self._lexicon.kinds, be)
        tense = "past" if wish.when == "past" or (not wish.when and self._of(0.35)) else "present"
        clause = Clause(who, be, tense, negated=wish.free and who.definite and self._of(0.15))
        if who.has_adjective or (who.kind in _LIVING and self._of(0.25)):
            clause.complement = self._adverbial("at", who) if who.kind in _LIVING else ("here", "hier")
            return clause
        adjective = self._pick(self._adjectives(who.kind, who.noun))
        self._use(adjective, who.noun)
        clause.complement = adjective.en, adjective.de
        return clause

    def _adverbial(self, kind: str, who: Phrase) -> Pair:
        """Where one is or goes, with or for whom, by what or how; see `goal` and `adds` in the lexicon."""
        if kind in self._pairs:
            return self._pick(self._pairs[kind])
        case = ACC if kind in ("onto", "for", "without") else DAT
        word = self._lexicon.prepositions[self._pick(("on", "under", "next to")) if kind == "onto" else kind]
        phrase = self._person(word.of, word, who)
        return f"{word.en} {phrase.en[1]}", grammar.after(word.de, phrase, case)

    def _person(self, kinds: tuple[str, ...], word: Word, other: Phrase | None = None) -> Phrase:
        """A noun of these kinds or, if it is a person, a pronoun or a name; not what `other` says."""
        noun = self._pick(self._nouns(kinds, word, other.noun if other else None))
        kind = self._weighted("person") if noun.kind in _PERSONS else "noun"
        if kind == "noun":
            self._use(word, noun)
            return self._noun_phrase(noun)
        options = self._lexicon.pronouns if kind == "pronoun" else self._lexicon.names
        taken = (0, 3) if other and other.person in (0, 3) else ()  # neither "I see us" nor "we see me"
        return self._pick([each for each in options if each != other and each.person not in taken])

    def _find_nouns(self, kinds: tuple[str, ...], word: Word, taken: Noun | None) -> list[Noun]:
        return [n for n in self._lexicon.nouns if n.kind in kinds and n is not taken and self._may_join(word, n)]

    def _noun_phrase(self, noun: Noun) -> Phrase:
        """Draw number, determiner and adjectives."""
        words, family = self._words, noun.en in self._words["family"]
        plural = bool(noun.de_plural) and noun.en not in words["single"] and self._of(0.28)
        table = ("relatives" if family else "plural") if plural else "relative" if family else "singular"
        kind = self._weighted(table if noun.de_plural else "mass")
        kind = "the" if kind in ("own", "name") and noun.en in words["unowned"] else kind
        determiner = self._lexicon.determiners[kind]
        if kind in ("own", "name"):
            determiner = determiner.of(*self._pick(self._pairs[kind]))
        adjectives = [self._pick(self._adjectives(noun.kind, noun))] if self._of(0.4) else []
        for adjective in adjectives:
            self._use(adjective, noun)
        count = self._number(12) if kind == "count" else NOTHING
        kein = self._lexicon.determiners["kein"] if kind in ("a", "bare") else None
        return grammar.noun_phrase(noun, determiner, adjectives, plural, count, kein)

    def _find_adjectives(self, kind: str, noun: Noun | None) -> list[Modifier]:
        return [word for word in self._lexicon.adjectives if kind in word.of and self._may_join(word, noun)]

    def _number(self, most: int) -> Pair:
        """A number from two on, in words up to twelve."""
        n = self._pick(range(2, most + 1))
        return self._pairs["numbers"][n - 2] if n <= 12 else (str(n), str(n))

    def _when(self, tense: str) -> Pair:
        """A time that suits a tense."""
        kind = self._weighted("time") if tense in ("past", "future") else "fixed"
        if kind == "date":
            day, (en, de) = self._pick(range(1, 29)), self._pick(self._pairs["months"])
            return f"on {day} {en}", f"am {day}. {de}"
        if kind == "distance":
            (n, m), (en, de) = self._number(12), self._pick(self._pairs["spans"])
            return (f"{n} {en} ago", f"vor {m} {de}") if tense == "past" else (f"in {n} {en}", f"in {m} {de}")
        en, de = self._pick(self._pairs[tense if kind == "fixed" else "clock"])
        return (en, de) if kind == "fixed" else (f"at {en}", f"um {de}")

    def _may_join(self, word: Word, noun: Noun | None) -> bool:
        return noun is None or split_of(word, noun) in self.allowed

    def _use(self, word: Word, noun: Noun | None) -> None:
        self.splits_used |= {split_of(word, noun)} if noun else set()

    def _of(self, probability: float) -> bool:
        return self._random() < probability

    def _pick(self, items: Sequence[T]) -> T:
        return items[int(self._random() * len(items))]

    def _weighted(self, table: str) -> str:
        items, bounds = self._lexicon.weights[table]
        return items[bisect(bounds, self._random() * bounds[-1])]
