"""Step by step a model of any kind says what it says of whole targets, whatever a search chooses and drops."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from aiayn_cli.model import attention
from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.build import build_model
from aiayn_cli.recipe_keys import ModelConfig

_VOCAB = 19
_SHAPE = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 5, "d_v": 7}


def _model(**changes: Any) -> Any:
    bias = "kind" not in changes  # only a Transformer has it
    config = ModelConfig(**{**_SHAPE, "max_positions": 90, "attention_bias": bias, "kernel_size": 4, **changes})
    model = build_model(config, _VOCAB).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


class _Search:
    """Hypotheses decoded step by step, and beside them the same prefixes run through the model as a whole."""

    def __init__(self, model: Any, src_lengths: list[int], n_beams: int) -> None:
        self.model = model
        self.src_mask = torch.arange(max(src_lengths)) < torch.tensor(src_lengths)[:, None]
        self.src = torch.randint(_VOCAB, self.src_mask.shape)
        self.cache = model.start(model.encode(self.src, self.src_mask), self.src_mask)
        self.prefixes = torch.zeros(len(src_lengths) * n_beams, 0, dtype=torch.int64)

    def step(self, new_len: int = 1) -> None:
        """Append random tokens to every hypothesis; both ways must give the same logits."""
        tokens = torch.randint(_VOCAB, (len(self.prefixes), new_len))
        logits = self.model.step(tokens, self.cache)
        self.prefixes = torch.cat([self.prefixes, tokens], dim=1)
        n_beams = len(self.prefixes) // len(self.src)
        src, src_mask = (x.repeat_interleave(n_beams, dim=0) for x in (self.src, self.src_mask))
        expected = self.model(src, src_mask, self.prefixes)[:, -1]
        assert logits.shape == (len(self.prefixes), _VOCAB)
        assert self.cache.lengths == [self.prefixes.shape[1]] * len(self.src)
        torch.testing.assert_close(logits, expected)

    def reorder(self, n_beams: int) -> None:
        """Give every sentence n_beams hypotheses, each a random one of its present ones."""
        old_beams = len(self.prefixes) // len(self.src)
        first = torch.arange(len(self.src))[:, None] * old_beams
        rows = (first + torch.randint(old_beams, (len(self.src), n_beams))).flatten()
        self.cache.reorder(rows)
        self.prefixes = self.prefixes[rows]

    def keep(self, sentences: list[int]) -> None:
        """Drop all other sentences and their hypotheses."""
        n_beams = len(self.prefixes) // len(self.src)
        index = torch.tensor(sentences)
        rows = (index[:, None] * n_beams + torch.arange(n_beams)).flatten()
        self.cache.keep(index, rows)
        self.src, self.src_mask, self.prefixes = self.src[index], self.src_mask[index], self.prefixes[rows]
        assert len(self.cache.lengths) == len(sentences)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "positions": "learned"},
        {"positions": "learned", "attention_window": 3},
        {"kind": "recurrent"},
        {"kind": "convolutional"},
    ],
    ids=str,
)
@torch.no_grad()
def test_every_step_equals_the_full_pass(changes: dict[str, Any]) -> None:
    search = _Search(_model(**changes), src_lengths=[6, 1, 4], n_beams=2)
    for new_len in (1, 1, 2, 1, 5):
        search.step(new_len)
    search.reorder(n_beams=4)
    search.step()
    search.keep([2, 0])
    search.step()
    search.step()
    search.reorder(n_beams=4)
    search.keep([1])
    search.step()


@torch.no_grad()
def test_steps_through_the_fused_path_equal_the_full_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_WRITTEN_OUT_BELOW", 0)
    search = _Search(_model(), src_lengths=[6, 1, 4], n_beams=2)
    search.step()
    search.step(new_len=2)
    search.reorder(n_beams=3)
    search.keep([2, 1])
    search.step()


_OPERATIONS = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("reorder"), st.integers(1, 4)),
    st.tuples(st.just("keep"), st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)),
)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    operations=st.lists(_OPERATIONS, min_size=1, max_size=8),
    n_beams=st.integers(1, 3),
    first=st.integers(1, 4),
    window=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_any_order_of_steps_and_choices_equals_the_full_pass(
    operations: list[tuple[str, object]], n_beams: int, first: int, window: int, seed: int
) -> None:
    torch.manual_seed(seed)
    search = _Search(_model(attention_window=window), src_lengths=[4, 6, 2], n_beams=n_beams)
    search.step(first)
    for name, value in operations:
        if isinstance(value, list):
            search.keep([i for i in value if i < len(search.src)] or [0])
        elif isinstance(value, int):
            (search.step if name == "step" else search.reorder)(value)
    search.step()


@torch.no_grad()
def test_a_source_without_padding_needs_no_mask() -> None:
    model = _model()
    src, tokens = torch.randint(_VOCAB, (2, 5)), torch.randint(_VOCAB, (2, 3))
    cache = model.start(model.encode(src, None), None)
    torch.testing.assert_close(model.step(tokens, cache), model(src, torch.ones(2, 5).bool(), tokens)[:, -1])
    cache.keep(torch.tensor([1]), torch.tensor([1]))
    assert model.step(tokens[:1], cache).shape == (1, _VOCAB)


@torch.no_grad()
def test_the_memory_is_projected_once_and_a_choice_of_hypotheses_copies_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = _model()
    cache = model.start(model.encode(torch.randint(_VOCAB, (3, 5)), None), None)

    def fail(self: MultiHeadAttention, memory: Tensor) -> tuple[Tensor, Tensor]:
        raise AssertionError("the memory is projected again")

    def places() -> list[tuple[int, ...]]:
        return [tuple(x.data_ptr() for x in (each.memory_k, each.memory_v, each._k)) for each in cache.layers]

    monkeypatch.setattr(MultiHeadAttention, "project_kv", fail)
    model.step(torch.randint(_VOCAB, (12, 1)), cache)
    before = places()
    cache.reorder(torch.tensor([3, 2, 1, 0, 4, 4, 4, 4, 11, 8, 9, 10]))
    model.step(torch.randint(_VOCAB, (12, 1)), cache)
    assert places() == before
    assert all(layer.memory_k.shape == (3, 3, 5, 5) for layer in cache.layers)
    assert all(layer.memory_v.shape == (3, 3, 5, 7) for layer in cache.layers)


@pytest.mark.parametrize(
    "changes",
    [{"attention_window": 3}, {"positions": "learned"}, {"kind": "recurrent"}, {"kind": "convolutional"}],
    ids=str,
)
@torch.no_grad()
def test_sentences_that_take_the_places_of_others_are_decoded_as_if_alone(changes: dict[str, Any]) -> None:
    model = _model(**changes)
    first, second, third = (_Search(model, lengths, n_beams=2) for lengths in ([6, 3, 5], [9, 4], [5, 5]))
    third.cache = model.start(model.encode(third.src, None), None)  # no padding
    for _ in range(20):
        first.step()
        first.reorder(2)
    for _ in range(2):
        second.step()
        second.reorder(2)
    third.step()
    for place, other, sentence in ((2, second, 0), (0, third, 1)):
        first.cache.take(torch.tensor([place]), other.cache, slice(sentence, sentence + 1))
    assert first.cache.lengths == [1, 20, 2]
    owners = [(third, 1), (first, 1), (second, 0)]
    prefixes = [owner.prefixes[2 * sentence : 2 * sentence + 2] for owner, sentence in owners]
    for turn in range(12):
        tokens = torch.randint(_VOCAB, (6, 1))
        logits = model.step(tokens, first.cache)
        parents = (torch.arange(3)[:, None] * 2 + torch.randint(2, (3, 2))).flatten()
        for place, (owner, sentence) in enumerate(owners):
            rows = slice(2 * place, 2 * place + 2)
            prefixes[place] = torch.cat([prefixes[place], tokens[rows]], dim=1)
            src, src_mask = (x[sentence].expand(2, -1) for x in (owner.src, owner.src_mask))
            if owner is third:
                src_mask = torch.ones_like(src_mask)
            torch.testing.assert_close(logits[rows], model(src, src_mask, prefixes[place])[:, -1])
            prefixes[place] = prefixes[place][parents[rows] - 2 * place]
        if turn == 7:
            first.cache.keep(torch.arange(3), parents)
        else:
            first.cache.reorder(parents)


@torch.no_grad()
def test_what_no_hypothesis_descends_from_makes_room_for_new_tokens() -> None:
    model = _model()
    search = _Search(model, [6, 3], n_beams=4)
    for _ in range(40):
        search.step()
        search.reorder(1)  # one survivor
        search.reorder(4)
    assert search.cache.layers[0]._k.shape[2] == 48  # 40 tokens of the survivor and 4 new ones, in steps of 16


@pytest.mark.parametrize("window", [0, 3])
@torch.no_grad()
def test_where_the_host_does_not_wait_for_free_slots_steps_equal_the_full_pass_too(window: int) -> None:
    model = _model(attention_window=window)
    search, other = _Search(model, [6, 1, 4], n_beams=2), _Search(model, [3, 3], n_beams=2)
    for cache in (search.cache, other.cache):
        cache._counts_slots = False
    for _ in range(9):
        search.step()
        search.reorder(2)
    other.step()
    search.cache.take(torch.tensor([1]), other.cache, slice(1, 2))
    assert search.cache.layers[0]._k.shape[2] == (16 if window else 32)  # for 2 * 3 + 2 tokens or 2 * 9, in steps of 16
    logits = model.step(tokens := torch.randint(_VOCAB, (6, 1)), search.cache)
    src, src_mask = (x[1].expand(2, -1) for x in (other.src, other.src_mask))
    taken = model(src, src_mask, torch.cat([other.prefixes[2:], tokens[2:4]], dim=1))
    torch.testing.assert_close(logits[2:4], taken[:, -1])
    src, src_mask = (x[2].expand(2, -1) for x in (search.src, search.src_mask))
    stayed = model(src, src_mask, torch.cat([search.prefixes[4:], tokens[4:]], dim=1))
    torch.testing.assert_close(logits[4:], stayed[:, -1])
