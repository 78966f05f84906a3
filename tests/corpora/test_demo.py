"""The built-in corpus as a whole: its sizes, its split, and that it is the same everywhere."""

import hashlib
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from aiayn_cli.corpora.demo import HELD_OUT_SIZE, MAX_TOKENS, MIN_COUNT, MIN_TOKENS, ToyCorpus, generate, tokens
from aiayn_cli.corpora.demo_grammar.chance import Chance
from aiayn_cli.corpora.demo_grammar.heldout import TEST, TRAIN, VALID, held_out, split_of
from aiayn_cli.corpora.demo_grammar.lexicon import NOUNS
from aiayn_cli.corpora.demo_grammar.phrases import plural
from aiayn_cli.corpora.demo_grammar.sentence_sampling import SentenceSampler
from aiayn_cli.corpora.demo_grammar.sentences import Pair
from aiayn_cli.corpora.demo_grammar.verbs import VERBS

SINGULAR = {noun.en for noun in NOUNS}
# Verbs that are one word, each form of it no other verb's, and no word of another use ("put on", "is lying").
FORMS = Counter(form for verb in VERBS for form in (verb.en_past, verb.en_ing))
SIMPLE_VERBS = [
    verb
    for verb in VERBS
    if not (verb.particle or verb.goal or verb.recipient) and FORMS[verb.en_past] == FORMS[verb.en_ing] == 1
]


@pytest.fixture(scope="module")
def corpus() -> ToyCorpus:
    return generate(1)


def digest(corpus: ToyCorpus) -> str:
    return hashlib.sha256(repr((corpus.train, corpus.valid, corpus.test)).encode()).hexdigest()


def test_the_same_seed_gives_the_same_corpus_in_any_process(corpus: ToyCorpus) -> None:
    script = (
        "import hashlib; from aiayn_cli.corpora.demo import generate; c = generate(1); "
        "print(hashlib.sha256(repr((c.train, c.valid, c.test)).encode()).hexdigest())"
    )
    # Here sets of strings are ordered as in no other run of the tests.
    environment = {"PYTHONHASHSEED": "1", "PYTHONUTF8": "1", "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert result.stdout.decode().strip() == digest(corpus)


def test_another_seed_gives_other_sentences_but_the_same_held_out_pairs(corpus: ToyCorpus) -> None:
    other = generate(2)
    assert len(set(other.train) & set(corpus.train)) < len(corpus.train) / 10
    assert not neighbours(other.train) & {*adjective_pairs(TEST), *adjective_pairs(VALID)}


def test_it_has_the_promised_sizes(corpus: ToyCorpus) -> None:
    assert len(corpus.train) >= 20_000
    assert len(corpus.valid) == len(corpus.test) == HELD_OUT_SIZE == 500


def test_all_sentences_differ_in_each_language_within_and_across_the_splits(corpus: ToyCorpus) -> None:
    pairs = corpus.train + corpus.valid + corpus.test
    assert len({english for english, _ in pairs}) == len(pairs)
    assert len({german for _, german in pairs}) == len(pairs)


def test_sentences_are_plain_text_of_the_promised_length(corpus: ToyCorpus) -> None:
    for text in (text for pair in corpus.train + corpus.valid + corpus.test for text in pair):
        assert text.isprintable()  # no control characters, no line or paragraph separators
        assert re.fullmatch(r"[A-ZÄÖÜ][^.?]*[.?]", re.sub(r"(\d)\. ", r"\1 ", text)), text  # "am 3. Mai"
        assert not re.search(r"  | [,.?]|,,|,[.?]", text), text
        assert MIN_TOKENS <= len(tokens(text)) <= MAX_TOKENS


def test_tokens_are_words_and_punctuation_marks() -> None:
    assert tokens("At 17:05 Felix' dog, twenty-one o'clock?") == [
        *("At", "17:05", "Felix", "'", "dog", ",", "twenty-one", "o'clock", "?")
    ]


def test_one_english_sentence_has_one_translation() -> None:
    sampler = SentenceSampler(Chance(3), (TRAIN, VALID, TEST))
    translations: dict[str, set[str]] = {}
    for _ in range(20_000):
        sentence = sampler.sentence()
        translations.setdefault(sentence.english(), set()).add(sentence.german())
    assert [(english, found) for english, found in translations.items() if len(found) > 1] == []
    assert len(translations) < 20_000  # some English sentences were indeed drawn twice


def test_sentences_for_training_have_no_held_out_word_pair() -> None:
    sampler = SentenceSampler(Chance(4), (TRAIN,))
    for _ in range(4000):
        sentence = sampler.sentence()
        assert {split_of(pair) for pair in sentence.combinations()} <= {TRAIN}, sentence.english()


@pytest.mark.parametrize("seed", range(20))
def test_any_seed_draws_sentences(seed: int) -> None:
    sampler = SentenceSampler(Chance(seed), (TRAIN, TEST))
    assert all(sampler.sentence().german() for _ in range(200))


def adjective_pairs(split: str) -> list[tuple[str, str]]:
    """List held-out adjectives and nouns, the nouns in both numbers."""
    plurals = {noun.en: noun.en_plural or plural(noun.en) for noun in NOUNS}
    pairs = [(first, second) for kind, first, second in held_out(split) if kind == "adjective"]
    return pairs + [(adjective, plurals[noun]) for adjective, noun in pairs]


def neighbours(pairs: tuple[Pair, ...]) -> set[tuple[str, str]]:
    """List all words that stand side by side in the English sentences."""
    return {both for english, _ in pairs for both in pairwise(tokens(english))}


def test_held_out_adjectives_and_nouns_meet_in_their_split_only(corpus: ToyCorpus) -> None:
    found = {TRAIN: neighbours(corpus.train), VALID: neighbours(corpus.valid), TEST: neighbours(corpus.test)}
    for own, other in ((VALID, TEST), (TEST, VALID)):
        pairs = set(adjective_pairs(own))
        assert not pairs & (found[TRAIN] | found[other])
        assert len(pairs & found[own]) > 50


def test_held_out_subjects_and_verbs_meet_in_their_split_only(corpus: ToyCorpus) -> None:
    """Read off "The boy saw" and "The boy is running" at the beginning of sentences."""
    forms = {verb.en_past: verb.key for verb in SIMPLE_VERBS} | {f"is {verb.en_ing}": verb.key for verb in SIMPLE_VERBS}

    def found(pairs: tuple[Pair, ...]) -> set[tuple[str, str, str]]:
        starts = [re.match(r"(?:The|A|An|This) (\w+) (is \w+|\w+) (?!to )", english) for english, _ in pairs]
        return {("subject", x[1], forms[x[2]]) for x in starts if x and x[2] in forms and x[1] in SINGULAR}

    assert {split_of(pair) for pair in found(corpus.train)} == {TRAIN}
    assert {split_of(pair) for pair in found(corpus.valid)} == {TRAIN, VALID}
    assert {split_of(pair) for pair in found(corpus.test)} == {TRAIN, TEST}


def test_held_out_verbs_and_objects_meet_in_their_split_only(corpus: ToyCorpus) -> None:
    """Read off "bought the hat", "is waiting for the bus"."""
    forms = {form: verb.key for verb in SIMPLE_VERBS if verb.objects for form in (verb.en_past, verb.en_ing)}
    shape = re.compile(r" (\w+) (?:(?:for|to|of|at) )?(?:the|a|an|this|every) (\w+)\b")

    def found(pairs: tuple[Pair, ...]) -> set[tuple[str, str, str]]:
        matches = [match for english, _ in pairs for match in shape.finditer(english)]
        return {
            ("object", forms[match[1]], match[2]) for match in matches if match[1] in forms and match[2] in SINGULAR
        }

    assert {split_of(pair) for pair in found(corpus.train)} == {TRAIN}
    assert {split_of(pair) for pair in found(corpus.valid)} == {TRAIN, VALID}
    assert {split_of(pair) for pair in found(corpus.test)} == {TRAIN, TEST}


def test_every_word_form_of_validation_and_test_is_well_known_from_training(corpus: ToyCorpus) -> None:
    for language in (0, 1):
        known = Counter(token for pair in corpus.train for token in tokens(pair[language]))
        for pair in corpus.valid + corpus.test:
            assert min(known[token] for token in tokens(pair[language])) >= MIN_COUNT, pair


# What must occur in each split: a pattern of the German sentence and the least share of sentences that have it.
PHENOMENA = {
    "dative articles": (r"\b([Dd]em|[Ee]inem|[Mm]einem|im|am|zum|vom)\b", 0.15),
    "accusative masculine articles": (r"\b(den|einen|meinen|keinen) ", 0.10),
    "plural": (r"\b(Männer|Frauen|Kinder|Hunde|Bücher|Autos|Äpfel|Lehrer|Gäste|Brüder)n?\b", 0.03),
    "adjectives": (r"\b(alt|neu|jung|groß|klein|rot|schön|müd|klug)(e|en|er|es|em)\b", 0.20),
    "subordinate clauses": (r"\b([Ww]eil|dass|[Oo]bwohl|[Ww]enn|[Aa]ls|[Ww]ährend|[Bb]evor|ob) ", 0.20),
    "relative clauses": (r", (\w+ )?(der|die|das|den|dem|denen) .*(\w)", 0.05),
    "separated prefixes": (r"\w.* (an|auf|zu|ein|ab|mit|aus|weg|fern|zurück)\b[.,?]", 0.02),
    "joined prefixes": (r"\b(an|auf|ein|ab|mit|aus|weg|fern|zurück)(ge)?\w{4,}(t|en)\b", 0.04),
    "perfect": (r"\b([Hh]at|[Hh]aben|[Ii]st|[Ss]ind|[Hh]abe|[Bb]in) .*(t|en)\b", 0.20),
    "future": (r"\b[Ww](ird|erde|erden|irst)\b", 0.08),
    "modal verbs": (r"\b([Kk]ann|[Kk]onnte|[Mm]uss|[Mm]usste|[Ww]ill|[Ww]ollte|[Ss]ollte)n?\b", 0.05),
    "nicht": (r"\bnicht\b", 0.04),
    "kein": (r"\bkeine?[nmr]?\b", 0.005),
    "gern": (r"\bgern\b", 0.003),
    "questions": (r"\?$", 0.07),
    "digits": (r"\d", 0.03),
    "number words": (r"\b(zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf)\b", 0.03),
    "clock times": (r"\b(Uhr|halb|Viertel|nach \w+|vor \w+)\b", 0.02),
    "names": (r"\b(Anna|Ben|Clara|David|Emma|Felix|Greta|Hannah|Jonas|Julia)s?\b", 0.15),
    "comparisons": (r"\w+er als ", 0.005),
}


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_every_split_has_its_share_of_every_phenomenon(corpus: ToyCorpus, phenomenon: str) -> None:
    pattern, least = PHENOMENA[phenomenon]
    for pairs in (corpus.train, corpus.valid, corpus.test):
        found = sum(bool(re.search(pattern, german)) for _, german in pairs)
        assert found / len(pairs) >= least


def test_the_finite_verb_is_second_after_an_early_time(corpus: ToyCorpus) -> None:
    early = re.compile(r"(?:Gestern|Heute|Morgen|Jetzt|Im Moment|Am \w+(?:tag|woch)) (?!Abend|Morgen|früh|um )(\w+)")
    starts = [early.match(german) for _, german in corpus.train]
    second = Counter(start[1] for start in starts if start)
    odd = {"bin", "sind", "war", "wird", "kann", "muss", "will"}  # finite forms without the usual endings
    assert second.total() > 500
    assert not [word for word in second if word not in odd and not re.fullmatch(r"[a-zäöüß]{2,}(e|t|st|en)", word)]
    assert not second.keys() & {"die", "sie", "eine", "meine", "deine", "seine", "ihre", "unsere", "diese"}
