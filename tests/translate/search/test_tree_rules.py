"""A search with rules for trees writes every tree that fits, and nothing that has to be repaired."""

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from known_words import WORDS as KNOWN_WORDS
from known_words import random_lines
from random_trees import BARE, BOTH, FORMS, TAGS, TREES, WORDS
from table_scorer import Prefix, TableScorer, log_prob_of, random_table, scorers
from translation_models import ModelMaker, TranslatorMaker

from aiayn_cli.parsing.tree_grammar import FREE, TreeGrammar
from aiayn_cli.parsing.tree_text import NO_TAG, Leaf, TagKind, TreeText, category, kind_of_tag, tags_for, words_of
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.special_tokens import EOS_ID, N_SPECIAL_TOKENS
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.vocab import Vocab, readable
from aiayn_cli.translate.options import Sampling, SearchOptions
from aiayn_cli.translate.search.beam import beam_search
from aiayn_cli.translate.search.restrictions import Restrictions, TreeRules
from aiayn_cli.translate.search.sentence_search import SearchSetup

SPECIAL = [b""] * N_SPECIAL_TOKENS
SMALL = [*SPECIAL, b" (A", b" )A", b" x", b" (", b"A", b" )"]
N_SMALL = len(SMALL) - N_SPECIAL_TOKENS
LEAST = [*SPECIAL, b" ", b"(", b")", b"A", b"x"]  # each character by itself


def written_by(sub_words: Sequence[bytes], tokens: Sequence[int]) -> str:
    return b"".join(sub_words[token] for token in tokens).decode("utf-8", "replace").removeprefix(" ")


def is_tree(form: TextConfig, line: str, text: str) -> bool:
    """Whether it is written as a tree is, and becomes one without a repair: found without the automaton."""
    symbols = text.split(" ") if text else []
    if not all(re.fullmatch(r"[()]?[^()]+", symbol) for symbol in symbols):
        return False
    leaves = [symbol for symbol in symbols if symbol[0] not in "()"]
    if form == BARE and any(leaf != NO_TAG for leaf in leaves):
        return False
    closing = [symbol[1:] for symbol in symbols if symbol[0] == ")"]
    return closing == [category(label) for label in closing] and not TreeText(form).restore(line, text).repairs


@cache
def trees_of(sub_words: tuple[bytes, ...], form: TextConfig, line: str, longest: int) -> frozenset[Prefix]:
    """All outputs of up to so many tokens that are trees."""
    tokens = range(N_SPECIAL_TOKENS, len(sub_words))
    return frozenset(
        output
        for n in range(longest + 1)
        for output in itertools.product(tokens, repeat=n)
        if (not output or sub_words[output[0]][:1] == b" ")
        and (text := written_by(sub_words, output)).count("(") == text.count(")")
        and is_tree(form, line, text)
    )


def rules(sub_words: Sequence[bytes], form: TextConfig, lines: Sequence[str], max_lengths: Sequence[int]) -> TreeRules:
    return TreeRules(TreeGrammar(sub_words, form), [words_of(line) for line in lines], max_lengths)


def restrictions(*arguments: object) -> Restrictions:
    return Restrictions(tree_rules=rules(*arguments))  # type: ignore[arg-type]


CASES = [
    (SMALL, TAGS, "a b", 7),
    (SMALL, TAGS, "a", 6),
    (SMALL, WORDS, "x xA", 7),
    (SMALL, BOTH, "x x", 7),
    (SMALL, BOTH, "x q", 6),  # a word that the vocabulary does not have
    ([*SPECIAL, b" (A", b" )", b"A", b" XX", b" X", b"X"], BARE, "a b", 7),
    (LEAST, TAGS, "a", 8),
    ([*SPECIAL, b" (", b"AB", b" )AB", b"x", b" "], TAGS, "a", 8),  # a tag takes two sub-words
]


@given(case=st.sampled_from(CASES), cut=st.integers(0, 4), seed=st.integers(0, 2**32), alpha=st.floats(0, 2))
@settings(max_examples=30, deadline=None)
def test_a_beam_that_holds_every_tree_finds_what_exhaustive_search_finds(
    case: tuple[list[bytes], TextConfig, str, int], cut: int, seed: int, alpha: float
) -> None:
    sub_words, form, line, max_length = case
    outputs = trees_of(tuple(sub_words), form, line, max_length - 1)
    max_length -= cut
    outputs = frozenset(output for output in outputs if len(output) < max_length)
    if form == BOTH and "q" in line:
        assert not outputs  # whatever is written, it is the wrong word
        return
    assume(outputs)
    table = random_table(seed, len(sub_words) - N_SPECIAL_TOKENS)
    beam = len(outputs)  # whatever goes on can become an output that nothing else becomes
    found = beam_search(
        TableScorer(table, [0]), [max_length], beam_size=beam, alpha=alpha, n_best=beam,
        restrictions=restrictions(sub_words, form, [line], [max_length]),
    )[0]  # fmt: skip
    penalty = {output: ((5 + len(output) + 1) / 6) ** alpha for output in outputs}
    expected = sorted(outputs, key=lambda output: -log_prob_of(table, 0, output) / penalty[output])
    assert [each.tokens for each in found] == expected
    assert [each.score for each in found] == pytest.approx(
        [log_prob_of(table, 0, output) / penalty[output] for output in expected]
    )


WITH_SIGNS = [*SPECIAL, b" (A", b" )A", b" x", b" ,", b" .", b" $"]
SIGN_PARTS = [*SPECIAL, b" ", b"(A", b")A", b"x", b",", b" .", b" ,", b" x"]


def fits(line: str, text: str) -> bool:
    """Whether each tag of a tree can be one of its word."""
    tags = [symbol for symbol in text.split(" ") if symbol[0] not in "()"]
    for word, tag in zip(line.split(" "), tags, strict=True):
        allowed, found = tags_for(word), [kind_of_tag(character.encode()) for character in tag]
        if allowed not in (TagKind.ANY, found[0]) or (allowed is TagKind.SIGN and TagKind.WORD in found):
            return False
    return True


@pytest.mark.parametrize(
    ("sub_words", "line", "max_length"),
    [
        (WITH_SIGNS, "a ,", 7),
        (WITH_SIGNS, ", a", 7),
        (WITH_SIGNS, "'", 6),
        (WITH_SIGNS, "! 7 -", 5),
        (SIGN_PARTS, "a .", 6),
        (SIGN_PARTS, ".", 7),  # a tag such as ,x is of no treebank
        (SIGN_PARTS[:-1], "a .", 6),  # no tag of a word begins with its blank: then nothing is known
    ],
)
def test_tags_of_signs_come_for_signs_alone_and_all_else_as_before(
    sub_words: list[bytes], line: str, max_length: int
) -> None:
    trees = trees_of(tuple(sub_words), TAGS, line, max_length - 1)
    outputs = {output for output in trees if fits(line, written_by(sub_words, output))}
    if sub_words == SIGN_PARTS[:-1]:
        outputs = set(trees)
    else:
        assert (outputs == trees) == (line == "'")
    grammar = TreeGrammar(sub_words, TAGS, sign_tags=True)
    table = random_table(5, len(sub_words) - N_SPECIAL_TOKENS)
    [found] = beam_search(
        TableScorer(table, [0]), [max_length], beam_size=len(outputs), alpha=0.6, n_best=len(outputs),
        restrictions=Restrictions(tree_rules=TreeRules(grammar, [words_of(line)], [max_length])),
    )  # fmt: skip
    assert {each.tokens for each in found} == outputs


@pytest.mark.parametrize(
    ("sub_words", "form", "sign_tags"),
    [
        (WITH_SIGNS, TAGS, False),
        (WITH_SIGNS, BOTH, True),
        ([*SPECIAL, b" (A", b" )A", b" PUNCT", b" x"], TAGS, True),
        ([*SPECIAL, b" (A", b" )A", b" ,", b" ."], TAGS, True),
    ],
)
def test_where_no_tag_is_known_to_be_of_signs_a_comma_may_have_any(
    sub_words: list[bytes], form: TextConfig, sign_tags: bool
) -> None:
    grammar, same = TreeGrammar(sub_words, form, sign_tags=sign_tags), TreeGrammar(sub_words, form)
    for words in ([","], ["a"]):
        (row, more), (expected_row, expected) = (g.choices(g.start(words), 9) for g in (grammar, same))
        assert grammar.table[row].tolist() == same.table[expected_row].tolist()
        assert more == expected


@pytest.mark.parametrize(
    ("word", "tag", "is_possible"),
    [
        (",", ",", True), (",", "NN", False), (".", ".", True), ("!", ".", True), ("?", "-LRB-", False),
        ("dog", "NN", True), ("dog", ",", False), ("'s", "POS", True), ("'s", "''", False), ("7", ".", False),
        ("U.S.", "NNP", True), ("U.S.", ".", False), ("-LRB-", "-LRB-", True), ("$", "$", True), ("US$", "$", True),
        ("ß", "``", False), ("語", "名", True), ("語", ".", False), ("'", "POS", True), ("'", "''", True),
        ("-", "HYPH", True), ("-", ":", True),
    ],
)  # fmt: skip
def test_which_tags_a_word_can_have(word: str, tag: str, is_possible: bool) -> None:
    assert (tags_for(word) in (TagKind.ANY, kind_of_tag(tag.encode()))) == is_possible


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_in_any_batch_just_that_may_come_which_some_tree_goes_on_with(data: st.DataObject) -> None:
    """Sentences that stand at different steps, in any order, each step asked about by itself."""
    cases = [each for each in CASES if each[0] is SMALL and each[2] != "x q"]
    form = data.draw(st.sampled_from([BOTH, TAGS, WORDS]))
    chosen = [(line, longest, data.draw(st.integers(0, 2))) for _, other, line, longest in cases if other == form]
    lines = [line for line, _, _ in chosen]
    max_lengths = [longest - cut for _, longest, cut in chosen]
    trees = [
        sorted(tree for tree in trees_of(tuple(SMALL), form, line, longest - 1) if len(tree) < longest - cut)
        for line, longest, cut in chosen
    ]
    assume(all(trees))
    restrict = restrictions(SMALL, form, lines, max_lengths)
    vocab = len(SMALL) + 3  # as where the source side has more sub-words
    for _ in range(3):
        sentences = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=4))
        beams = data.draw(st.integers(1, 3))
        lengths = [data.draw(st.integers(0, min(map(len, trees[sentence])))) for sentence in sentences]
        outputs = torch.full((len(sentences), beams, 9), 4)
        for row, (sentence, length) in enumerate(zip(sentences, lengths, strict=True)):
            for beam in range(beams):
                outputs[row, beam, :length] = torch.tensor(data.draw(st.sampled_from(trees[sentence]))[:length])
        log_probs = torch.zeros(len(sentences), beams, vocab)
        restrict.apply(log_probs, outputs, torch.tensor(lengths), sentences)
        for row, (sentence, length) in enumerate(zip(sentences, lengths, strict=True)):
            for beam in range(beams):
                before = tuple(outputs[row, beam, :length].tolist())
                ways = {(*tree, EOS_ID)[length] for tree in trees[sentence] if tree[:length] == before}
                assert set(log_probs[row, beam].eq(0).nonzero().flatten().tolist()) == ways


CHUNKS = st.text(st.sampled_from("ABx-=é中"), min_size=1, max_size=3)


@st.composite
def vocabularies(draw: st.DrawFn) -> list[bytes]:
    """All characters as bytes or as sub-words of their own, and some that hold more."""
    singles = draw(st.sampled_from([["A", "B", "x", "-", "=", "é", "中"], ["A", "x"], ["A", "B", "-"]]))
    pieces = [each.encode() for each in singles]
    if draw(st.booleans()):
        pieces += [bytes([byte]) for byte in "AB-=é中x".encode()]
    pieces += [b" ", b"(", b")"]
    for bracket in draw(st.lists(st.sampled_from(["", "(", ")"]), max_size=12)):
        pieces.append(f" {bracket}{draw(CHUNKS)}".encode())
    pieces += [each.encode() for each in draw(st.lists(CHUNKS, max_size=5))]
    pieces += draw(st.sampled_from([[], [b" (", b" )"], [b" XX", b"X"], [b" )("]]))
    return [*SPECIAL, *pieces]


def can_write(sub_words: Sequence[bytes], word: str) -> bool:
    first = b"|".join(re.escape(each) for each in sub_words if each[:1] == b" ")
    others = b"|".join(re.escape(each) for each in sub_words if each[:1] not in (b" ", b""))
    return re.fullmatch(b"(?:%b)(?:%b)*" % (first, others), f" {word}".encode()) is not None


@given(
    sub_words=vocabularies(),
    form=st.sampled_from(FORMS),
    words=st.lists(CHUNKS, max_size=5),
    extra=st.integers(0, 30),
    likes=st.sampled_from(["any", "brackets"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=50, deadline=None)
def test_whatever_the_rules_let_end_is_a_tree_and_it_always_ends(
    sub_words: list[bytes], form: TextConfig, words: list[str], extra: int, likes: str, seed: int
) -> None:
    grammar, line, chance = TreeGrammar(sub_words, form), " ".join(words), random.Random(seed)
    state = grammar.start(words_of(line))
    max_length = state.need + extra
    assume(max_length < 500)  # a vocabulary that can write a tag
    output: list[int] = []
    while True:
        assert state is not None
        row, more = grammar.choices(state, max_length - len(output))
        assert row != FREE
        allowed = sorted({*(~grammar.table[row]).nonzero().flatten().tolist(), *more})
        assert allowed, "nothing may come"
        if likes == "brackets":
            allowed = [token for token in allowed if b"(" in sub_words[token]] or allowed
        token = chance.choice(allowed)
        if token == EOS_ID:
            break
        output.append(token)
        state = grammar.follow(state, token)
    assert len(output) + 1 <= max_length
    text = written_by(sub_words, output)
    repairs = TreeText(form).restore(line, text).repairs
    assert repairs.keys() <= {"wrong word"}
    assert not repairs or not all(can_write(sub_words, word) for word in words_of(line))


VOCAB = Vocab(
    train_vocab(
        Counter({"(S": 9, ")S": 9, "(NP": 9, ")NP": 9, "NN": 20, "abc": 3}) + Counter("abcdefghij()SNP"),
        330,
        byte_fallback=True,
        mixed_scripts=True,
    ),
    "test",
)
GRAMMARS = {form: TreeGrammar(VOCAB.written(), form) for form in FORMS}


@given(TREES, st.sampled_from(FORMS))
@settings(deadline=None)
def test_the_sequence_of_every_tree_is_let_through(tree: tuple, form: TextConfig) -> None:
    if not tree:
        return
    grammar = GRAMMARS[form]
    [tokens] = VOCAB.encode([readable(TreeText(form).linearise(tree))])
    state = grammar.start([event.word for event in tree if isinstance(event, Leaf)])
    for n, token in enumerate([*tokens, EOS_ID]):
        assert state is not None
        row, more = grammar.choices(state, 2 * len(tokens) + 9 - n)
        assert row != FREE
        assert token in more or not grammar.table[row][token], VOCAB.pieces(tokens[: n + 1])
        state = grammar.follow(state, token)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [((), "in a tree"), ((SMALL.index(b" x"),), "in a tree"), ((SMALL.index(b" )A"),), "free"), ((7, 8), "in a tree")],
)
def test_a_forced_beginning_goes_before_the_rules_which_hold_behind_it_where_they_can(
    prefix: Prefix, expected: str
) -> None:
    restrict = Restrictions([], [prefix], tree_rules=rules(SMALL, TAGS, ["a b"], [7]))
    [outputs] = beam_search(
        TableScorer(random_table(3, N_SMALL), [0]), [7], beam_size=200, alpha=0.6, n_best=200, restrictions=restrict
    )
    trees = {tree for tree in trees_of(tuple(SMALL), TAGS, "a b", 6) if tree[: len(prefix)] == prefix}
    found = {each.tokens for each in outputs}
    assert found
    assert all(tokens[: len(prefix)] == prefix for tokens in found)
    if expected == "in a tree":
        assert found == trees
    else:
        assert not found & trees
        assert len(found) == 200


def test_what_would_leave_nothing_else_gives_way_to_the_rules() -> None:
    """Two words need a tag twice, and an output of eight tokens would need another word."""
    only_tag = [*SPECIAL, b" x"]
    table = random_table(1, 1)
    restrict = Restrictions([9], [], 1, rules(only_tag, TAGS, ["a b c"], [9]))
    [[output]] = beam_search(TableScorer(table, [0]), [9], beam_size=1, alpha=0.6, restrictions=restrict)
    assert output.tokens == (4, 4, 4)


def test_where_no_tree_fits_the_search_is_free() -> None:
    table = random_table(8, N_SMALL)
    free = beam_search(TableScorer(table, [0]), [3], beam_size=3, alpha=0.6, n_best=3)
    rules = restrictions(SMALL, TAGS, ["a b c"], [3])
    assert free == beam_search(TableScorer(table, [0]), [3], beam_size=3, alpha=0.6, n_best=3, restrictions=rules)


def test_neighbours_and_waiting_sentences_change_nothing() -> None:
    table = random_table(4, N_SMALL)
    lines = ["a b", "a", "a b c d", "a b c", "a", "a b c d e"]
    longest = [9, 5, 14, 8, 2, 30]
    groups = scorers(table, len(lines), 2)
    together = beam_search(
        next(groups), longest, beam_size=3, alpha=0.6, n_best=3, waiting=groups, at_once=2,
        restrictions=restrictions(SMALL, TAGS, lines, longest),
    )  # fmt: skip
    for number, line in enumerate(lines):
        alone = beam_search(
            TableScorer(table, [number]), [longest[number]], beam_size=3, alpha=0.6, n_best=3,
            restrictions=restrictions(SMALL, TAGS, [line], [longest[number]]),
        )  # fmt: skip
        assert alone == [together[number]]
        assert all(is_tree(TAGS, line, written_by(SMALL, each.tokens)) for each in alone[0])


TREE_TOKENS = ("(S", ")S", "(NP", ")NP", "(VP", ")VP", "DT", "NN", "VBZ", ".")


@pytest.fixture(scope="module")
def codecs() -> dict[TextConfig, Codec]:
    words = Counter("abcdefghijklmnopqrstuvwxyzäöüß.") + Counter(dict.fromkeys(KNOWN_WORDS, 9))
    src = Vocab(train_vocab(words, 97), "test")
    tgt = Vocab(train_vocab(Counter(dict.fromkeys(TREE_TOKENS, 30)), 45), "test")
    both = Vocab(train_vocab(words + Counter(dict.fromkeys([*TREE_TOKENS, NO_TAG], 30)), 97), "test")
    return {form: Codec(src, tgt if form == TAGS else both, form, "words", "trees") for form in FORMS}


@pytest.mark.parametrize(
    ("form", "n_models", "n_best", "options"),
    [
        (TAGS, 1, 3, SearchOptions()),
        (BOTH, 2, 1, SearchOptions()),
        (WORDS, 1, 2, SearchOptions(sampling=Sampling(seed=3))),
        (BARE, 1, 1, SearchOptions(min_length=15, no_repeat_ngram=2)),
    ],
)
def test_every_kind_of_search_writes_trees_that_need_no_repair(
    form: TextConfig, n_models: int, n_best: int, options: SearchOptions, codecs: dict[TextConfig, Codec],
    make_model: ModelMaker, make_translator: TranslatorMaker,
) -> None:  # fmt: skip
    codec = codecs[form]
    written = codec.tgt_written()
    assert written is not None
    models = [make_model(seed) for seed in range(n_models)]
    lines = random_lines(6, longest=4)
    repairs: dict[bool, int] = {}
    for tree_rules in (True, False):
        translator = make_translator(
            *models, codec=codec, options=replace(options, n_best=n_best), max_extra=35, batch_tokens=20,
            tree_rules=tree_rules, setup=SearchSetup(tree_grammar=TreeGrammar(written, form)),
        )  # fmt: skip
        found = translator.translate_n_best(lines)
        repairs[tree_rules] = sum(
            bool(TreeText(form).restore(line, output.text).repairs)
            for line, outputs in zip(lines, found, strict=True)
            for output in outputs
            if output.log_prob > -math.inf
        )
    assert repairs[True] == 0
    assert repairs[False] > 3
