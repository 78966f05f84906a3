"""The built-in corpus: its sizes, its split, that it is the same everywhere, and its German by hand-made cases."""

import hashlib
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from aiayn_cli.corpora import demo_corpus
from aiayn_cli.corpora.demo_corpus import TEST, TRAIN, VALID, Pairs, Sampler, generate, split_of, tokens
from aiayn_cli.corpora.demo_grammar import NOTHING, Clause, Lexicon, Phrase, after, noun_phrase

WORDS = Lexicon()
NOUN = {noun.en: noun for noun in WORDS.nouns}
ADJECTIVE = {adjective.en: adjective for adjective in WORDS.adjectives}
VERB = {f"{verb.en[0]} {verb.particle or verb.to}".strip(): verb for verb in (*WORDS.special.values(), *WORDS.verbs)}
ME, YOU, HE, SHE, WE, THEY = WORDS.pronouns
ANNA = next(name for name in WORDS.names if name.en[0] == "Anna")


@pytest.fixture(scope="module")
def corpus() -> dict[str, Pairs]:
    return generate(1)


def test_the_same_seed_gives_the_same_corpus_in_any_process(corpus: dict[str, Pairs]) -> None:
    found = hashlib.sha256(repr(tuple(corpus.values())).encode()).hexdigest()
    assert found == "6297a21360954bebae36bfc67a8d850eec943b77a2a125749c84f34988cf5d2d"  # changes with the grammar only
    script = (
        "import random; from aiayn_cli.corpora.demo_corpus import Sampler, draw_distinct\n"
        "from aiayn_cli.corpora.demo_grammar import Lexicon\n"
        "print(ascii(draw_distinct(Sampler(random.Random(1), Lexicon(), ('train',)), 500, set())))"
    )
    # Sets of strings are ordered as in no other run of the tests.
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert result.stdout.decode().strip() == ascii(corpus[TRAIN][:500])


def test_it_has_the_promised_sizes_and_all_sentences_differ_in_each_language(corpus: dict[str, Pairs]) -> None:
    assert (len(corpus[TRAIN]), len(corpus[VALID]), len(corpus[TEST])) == (demo_corpus.TRAIN_SIZE, 500, 500)
    pairs = corpus[TRAIN] + corpus[VALID] + corpus[TEST]
    assert len({english for english, _ in pairs}) == len({german for _, german in pairs}) == len(pairs) == 25_000


def test_sentences_are_plain_text(corpus: dict[str, Pairs]) -> None:
    for text in (text for pair in corpus[TRAIN] + corpus[VALID] + corpus[TEST] for text in pair):
        assert text.isprintable()
        assert re.fullmatch(r"[A-ZÄÖÜ0-9][^.?]*[.?]", re.sub(r"(\d)\. ", r"\1 ", text)), text  # "am 3. Mai"
        assert not re.search(r"  | [,.?]|,,|,[.?]|MY|True|None", text), text
        assert len(tokens(text)) <= 30


def test_one_english_sentence_has_one_translation() -> None:
    sampler = Sampler(random.Random(3), WORDS, (TRAIN, VALID, TEST))
    translations: dict[str, set[str]] = {}
    drawn = [pair for pair in (sampler.sentence() for _ in range(8_000)) if pair]
    for english, german in drawn:
        translations.setdefault(english, set()).add(german)
    assert [(english, found) for english, found in translations.items() if len(found) > 1] == []
    assert len(translations) < len(drawn)  # some English sentences were indeed drawn twice


def test_sentences_for_training_use_no_held_out_pair_and_those_of_the_test_do() -> None:
    train, test = (Sampler(random.Random(4), WORDS, splits) for splits in ((TRAIN,), (TRAIN, TEST)))
    found: Counter[str] = Counter()
    for _ in range(2_000):
        train.sentence()
        test.sentence()
        assert train.splits_used <= {TRAIN}
        found.update(test.splits_used)
    assert found[TEST] > 100
    assert not found[VALID]


def held_out(split: str) -> set[str]:
    return {
        f"{adjective.en} {noun.en}"
        for adjective in WORDS.adjectives
        for noun in WORDS.nouns
        if noun.kind in adjective.of and split_of(adjective, noun) == split
    }


def test_held_out_adjectives_and_nouns_meet_in_their_split_only(corpus: dict[str, Pairs]) -> None:
    found = {split: " ".join(english for english, _ in pairs) for split, pairs in corpus.items()}
    for own, other in ((VALID, TEST), (TEST, VALID)):
        phrases = re.compile(rf"\b({'|'.join(held_out(own))})\b")
        assert not phrases.findall(found[TRAIN] + found[other])
        assert len(set(phrases.findall(found[own]))) > 25


def test_every_word_keeps_most_of_its_partners_in_training() -> None:
    for word in (*WORDS.adjectives, *WORDS.prepositions.values(), *WORDS.verbs):
        kinds = word.of
        nouns = [noun for noun in WORDS.nouns if noun.kind in kinds]
        assert sum(split_of(word, noun) == TRAIN for noun in nouns) >= len(nouns) / 2, word


def test_every_word_form_of_validation_and_test_is_well_known_from_training(corpus: dict[str, Pairs]) -> None:
    for language in (0, 1):
        known = Counter(token for pair in corpus[TRAIN] for token in tokens(pair[language]))
        for pair in corpus[VALID] + corpus[TEST]:
            assert min(known[token] for token in tokens(pair[language])) >= demo_corpus.MIN_COUNT, pair


PHENOMENA = {  # a pattern of the German sentence and the least share of sentences that have it
    "dative articles": (r"\b([Dd]em|[Ee]inem|[Mm]einem|im|am|zum)\b", 0.15),
    "accusative masculine articles": (r"\b(den|einen|meinen|keinen) ", 0.10),
    "adjectives": (r"\b(alt|neu|jung|groß|klein|rot|schön|müd|klug)(e|en|er|es|em)\b", 0.15),
    "subordinate clauses": (r"\b([Ww]eil|dass|[Oo]bwohl|[Ww]enn|[Aa]ls|[Ww]ährend|[Bb]evor|ob) ", 0.15),
    "relative clauses": (r", (\w+ )?(der|die|das|den|dem|denen) .*(\w)", 0.03),
    "separated prefixes": (r"\w.* (an|auf|zu|ein|ab|mit|aus|weg|fern|zurück)\b[.,?]", 0.02),
    "perfect": (r"\b([Hh]at|[Hh]aben|[Ii]st|[Ss]ind|[Hh]abe|[Bb]in) .*(t|en)\b", 0.20),
    "future": (r"\b[Ww](ird|erde|erden|irst)\b", 0.08),
    "modal verbs": (r"\b([Kk]ann|[Kk]onnte|[Mm]uss|[Mm]usste|[Ww]ill|[Ww]ollte)n?\b", 0.03),
    "nicht": (r"\bnicht\b", 0.03),
    "kein": (r"\bkeine?[nmr]?\b", 0.003),
    "questions": (r"\?$", 0.07),
    "digits": (r"\d", 0.02),
    "clock times": (r"\b(Uhr|halb|Viertel|nach \w+|vor \w+)\b", 0.02),
}


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_every_split_has_its_share_of_every_phenomenon(corpus: dict[str, Pairs], phenomenon: str) -> None:
    pattern, least = PHENOMENA[phenomenon]
    for pairs in corpus.values():
        assert sum(bool(re.search(pattern, german)) for _, german in pairs) / len(pairs) >= least


def say(noun: str, kind: str = "the", *adjectives: str, plural: bool = False) -> Phrase:
    kein = WORDS.determiners["kein"] if kind in ("a", "bare") else None
    own = WORDS.determiners["own"].of("her", "ihr")
    determiner = own if kind == "her" else WORDS.determiners[kind]
    return noun_phrase(NOUN[noun], determiner, [ADJECTIVE[each] for each in adjectives], plural, NOTHING, kein)


def clause(subject: Phrase, verb: str, tense: str, what: Phrase | None = None) -> Clause:
    return Clause(subject, VERB[verb], tense, object=what)


GARDEN = ("in the garden", "im Garten")
MAN = say("man").with_relative(clause(ANNA, "wait for", "progressive", say("man")), "object")
STATEMENTS = [
    ("I have an old dog.", "Ich habe einen alten Hund.", clause(ME, "have", "present", say("dog", "a", "old"))),
    ("He does not have a dog.", "Er hat keinen Hund.",
     replace(clause(HE, "have", "present", say("dog", "a")), negated=True)),
    ("You are reading her new book.", "Du liest ihr neues Buch.",
     clause(YOU, "read", "progressive", say("book", "her", "new"))),
    ("The small children were happy.", "Die kleinen Kinder waren glücklich.",
     replace(clause(say("child", "the", "small", plural=True), "be", "past"), complement=("happy", "glücklich"))),
    ("Yesterday we picked him up.", "Gestern haben wir ihn abgeholt.",
     replace(clause(WE, "pick up", "past", HE), time=("yesterday", "gestern"), time_at="front")),
    ("She must help the student.", "Sie muss dem Studenten helfen.",
     replace(clause(SHE, "help", "present", say("student")), modal=WORDS.special["müssen"])),
    ("The man that Anna is waiting for will go home.", "Der Mann, auf den Anna wartet, wird nach Hause gehen.",
     replace(clause(MAN, "go", "future"), complement=("home", "nach Hause"))),
    ("They are giving the teachers green apples.", "Sie geben den Lehrern grüne Äpfel.",
     replace(clause(THEY, "give", "progressive", say("apple", "bare", "green", plural=True)),
             recipient=say("teacher", plural=True))),
    ("Anna is not turning off this radio in the garden.", "Anna macht dieses Radio nicht im Garten aus.",
     replace(clause(ANNA, "turn off", "progressive", say("radio", "this")), negated=True, adverbs=GARDEN)),
]  # fmt: skip


@pytest.mark.parametrize(("english", "german", "tree"), STATEMENTS)
def test_a_statement_is_said_as_by_hand(english: str, german: str, tree: Clause) -> None:
    assert tree.sentence() == (english, german)


def test_questions_and_subordinate_clauses_move_the_verbs() -> None:
    tree = replace(clause(HE, "turn on", "past", say("lamp")), time=("yesterday", "gestern"))
    assert tree.english(inverted=True) == "did he turn on the lamp yesterday"
    assert tree.german("first") == "hat er die Lampe gestern angemacht"
    assert tree.german("last", "weil") == "weil er die Lampe gestern angemacht hat"
    assert replace(tree, tense="present").german("last", "dass") == "dass er die Lampe gestern anmacht"
    assert clause(HE, "think of", "progressive", SHE).german("second", "an wen", gap="object") == "an wen denkt er"


def test_articles_contract_with_prepositions() -> None:
    cases = (
        (("zu", "station", 2), "zum Bahnhof"),
        (("in", "school", 2), "in der Schule"),
        (("in", "house", 1), "ins Haus"),
    )
    for (preposition, noun, case), expected in cases:
        assert after(preposition, say(noun), case) == expected
    assert after("mit", say("child", "the", "old", plural=True), 2) == "mit den alten Kindern"
