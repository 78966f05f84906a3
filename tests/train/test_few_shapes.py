"""Batches take few shapes, and little more than they need."""

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiayn_cli.data.batches import Indices, Position, plan_updates, pool_pairs_for, split_update
from aiayn_cli.data.collate import Shape
from aiayn_cli.data.store import SIDES, Side
from aiayn_cli.train.compilation import few_counts, few_shapes

lengths = st.integers(1, 2_000)


class LengthsAlone:
    """What planning reads of a store: lengths as cleaned corpora have them, log-normal, and similar on both sides."""

    def __init__(self, pairs: int, median: float) -> None:
        random = np.random.default_rng(3)
        src = np.clip(random.lognormal(np.log(median), 0.6, pairs), 1, 250)
        self.sides = {"src": src.astype(np.int32)}
        self.sides["tgt"] = np.clip(src * random.lognormal(0.03, 0.17, pairs), 1, 250).astype(np.int32)

    def __len__(self) -> int:
        return len(self.sides["src"])

    def lengths(self, pairs: Indices, side: Side) -> NDArray[np.int32]:
        return self.sides[side][pairs]


@given(pairs=st.integers(1, 30_000), src=lengths, tgt=lengths, room=st.integers(0, 400))
def test_a_shape_holds_the_batch_and_is_little_larger(pairs: int, src: int, tgt: int, room: int) -> None:
    longest = max(src, tgt) + room
    found = few_shapes(Shape(pairs, src, tgt), longest)
    assert pairs <= found.pairs <= pairs * 33 / 32 + 3
    assert found.pairs % 4 == 0
    for needed, length in ((src, found.src_length), (tgt, found.tgt_length)):
        assert needed <= length <= min(longest, max(8, needed * 9 / 8))
    assert max(found[1:]) <= max(8, max(src, tgt) * 33 / 32)
    assert few_shapes(found, longest) == found


@given(tokens=st.integers(1, 200_000))
def test_counts_of_tokens_are_little_larger(tokens: int) -> None:
    assert tokens <= few_counts(tokens) <= tokens * 33 / 32
    assert few_counts(few_counts(tokens)) == few_counts(tokens)


def batches_of(store: LengthsAlone, batch_tokens: int, epochs: int) -> Iterator[tuple[int, Shape, int]]:
    """Each batch of some epochs: the epoch, its shape, and tokens on both sides."""
    plan = plan_updates(store, batch_tokens, 1, Position(), pool_pairs_for(batch_tokens))  # type: ignore[arg-type]
    epoch = 0
    for update in plan:
        for part in split_update(store, update.pairs, batch_tokens):  # type: ignore[arg-type]
            src, tgt = (store.lengths(part, side) + 1 for side in SIDES)
            yield epoch, Shape(len(part), int(src.max()), int(tgt.max())), int(src.sum() + tgt.sum())
        epoch = update.after.epoch
        if epoch == epochs:
            return


def test_padding_of_the_base_recipe_is_below_5_percent() -> None:
    places = tokens = 0
    for _, exact, count in batches_of(LengthsAlone(524_288, median=23), 25_000, epochs=1):
        shape = few_shapes(exact, 251)
        places += shape.pairs * (shape.src_length + shape.tgt_length)
        tokens += count
    assert 1 - tokens / places < 0.05


def test_epochs_that_are_cut_in_other_places_bring_hardly_any_new_shapes() -> None:
    few: list[set[Shape]] = [set() for _ in range(6)]
    exact: list[set[Shape]] = [set() for _ in range(6)]
    for epoch, shape, _ in batches_of(LengthsAlone(100_000, median=12), 4_096, epochs=6):
        exact[epoch].add(shape)
        few[epoch].add(few_shapes(shape, 251))

    def new_in_the_second_half(shapes: list[set[Shape]]) -> float:
        before = set().union(*shapes[:3])
        return len(set().union(*shapes[3:]) - before) / len(before)

    assert len(set().union(*few)) < 0.5 * len(set().union(*exact))
    assert new_in_the_second_half(few) < 0.2 < new_in_the_second_half(exact)
