"""What is held out, repeated or scored leaves the training text; the rest keeps its order."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.data.clean import ScoredText
from aiayn_cli.data.pairs import Chunk
from aiayn_cli.data.selection import TrainingText

NOTHING = ScoredText(())
Pair = tuple[str, str]

pairs_of_text = st.lists(st.tuples(*[st.sampled_from(["a", "b", "c d", "", " "])] * 2), max_size=30)


def split_up(pairs: list[Pair], size: int) -> list[Chunk]:
    parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return [([src for src, _ in part], [tgt for _, tgt in part]) for part in parts]


def join(chunks: list[Chunk]) -> list[Pair]:
    return [pair for src, tgt in chunks for pair in zip(src, tgt, strict=True)]


def collected(folder: Path, pairs: list[Pair], scored: ScoredText = NOTHING, chunk: int = 7) -> TrainingText:
    text = TrainingText(folder)
    text.collect(((1, each) for each in split_up(pairs, chunk)), scored)
    return text


def numbered(n: int) -> list[Pair]:
    return [(f"source {i}", f"target {i}") for i in range(n)]


@given(pairs=pairs_of_text, scored=pairs_of_text, chunk=st.integers(1, 9))
def test_each_rule_claims_its_pairs_in_turn(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], scored: list[Pair], chunk: int
) -> None:
    text = collected(tmp_path_factory.mktemp("text"), pairs, ScoredText(split_up(scored, 99)), chunk)
    text.drop_repeats()
    usable = [(s, t) for s, t in pairs if s.strip() and t.strip()]
    scored_src, scored_tgt = {s.strip() for s, _ in scored} - {""}, {t.strip() for _, t in scored} - {""}
    unseen = [(s, t) for s, t in usable if s not in scored_src and t not in scored_tgt]
    kept = list(dict.fromkeys(unseen))
    assert join(list(text.chunks())) == kept
    assert len(text) == len(kept)
    assert {reason: n for reason, n in text.dropped.items() if n} == {
        reason: n
        for reason, n in {
            "blank": len(pairs) - len(usable),
            "overlap": len(usable) - len(unseen),
            "repeated": len(unseen) - len(kept),
        }.items()
        if n
    }


def test_held_out_pairs_and_their_like_leave_the_training_text(tmp_path: Path) -> None:
    pairs = [*numbered(200), *numbered(50), *((f"source {i}", "said otherwise") for i in range(200))]
    text = collected(tmp_path, pairs)
    held_out = join([text.hold_out(most=20, share=0.5, seed=3)])
    assert len(set(held_out)) == 20
    assert held_out == [pair for pair in dict.fromkeys(pairs) if pair in held_out]  # in the order of the text
    left = join(list(text.chunks()))
    sources, targets = {src for src, _ in held_out}, {tgt for _, tgt in held_out}
    assert left == [(src, tgt) for src, tgt in pairs if src not in sources and tgt not in targets]
    assert text.dropped["overlap"] == len(pairs) - 20 - len(left)


@pytest.mark.parametrize(
    ("n_pairs", "most", "share", "n"), [(200, 30, 0.05, 10), (1_000, 30, 0.05, 30), (7, 30, 0.05, 1), (2, 9, 0.05, 1)]
)
def test_as_many_are_held_out_as_asked(tmp_path: Path, n_pairs: int, most: int, share: float, n: int) -> None:
    text = collected(tmp_path, numbered(n_pairs))
    assert len(text.hold_out(most, share, seed=1)[0]) == n
    assert len(text) == n_pairs - n


@pytest.mark.parametrize("pairs", [[], numbered(1), numbered(1) * 9])
def test_nothing_is_held_out_of_one_pair(tmp_path: Path, pairs: list[Pair]) -> None:
    text = collected(tmp_path, pairs)
    assert text.hold_out(most=9, share=0.5, seed=1) == ([], [])
    assert len(text) == len(pairs)


def test_the_seed_decides_what_is_held_out_and_the_order_does_not(tmp_path: Path) -> None:
    def held_out(pairs: list[Pair], seed: int) -> set[Pair]:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return set(join([collected(folder, pairs).hold_out(most=30, share=0.5, seed=seed)]))

    first = held_out(numbered(300), 1)
    assert held_out(numbered(300)[::-1], 1) == first
    assert len(held_out(numbered(300), 2) & first) < 15


def test_a_sample_is_a_part_of_the_text_in_order(tmp_path: Path) -> None:
    pairs = numbered(2_000)
    text = collected(tmp_path, pairs, chunk=300)
    sample = join(list(text.sample(500, seed=1)))
    assert 420 < len(sample) < 580  # 500 expected, standard deviation 19
    positions = [pairs.index(pair) for pair in sample]
    assert positions == sorted(positions)
    assert join(list(text.sample(500, seed=1))) == sample
    assert join(list(text.sample(500, seed=2))) != sample
    assert join(list(text.sample(2_000, seed=1))) == pairs


def test_sampling_and_holding_out_are_independent(tmp_path: Path) -> None:
    pairs = numbered(2_000)
    text = collected(tmp_path, pairs)
    sample = set(join(list(text.sample(1_000, seed=1))))
    held_out = set(join([text.hold_out(most=1_000, share=0.5, seed=1)]))
    assert 420 < len(sample & held_out) < 580


def test_nothing_is_left_on_disk(tmp_path: Path) -> None:
    text = collected(tmp_path, numbered(9))
    assert list(tmp_path.iterdir())
    text.remove()
    assert not list(tmp_path.iterdir())


def test_copies_come_in_rounds_without_what_was_dropped(tmp_path: Path) -> None:
    pairs = numbered(9)
    text = TrainingText(tmp_path)
    weighted = [(3, pairs[:2]), (1, pairs[2:5]), (2, [*pairs[5:], pairs[0]])]
    text.collect(((weight, chunk) for weight, part in weighted for chunk in split_up(part, 9)), NOTHING)
    text.drop_repeats()
    assert join(list(text.chunks())) == pairs
    assert join(list(text.copies())) == [*pairs[:2], *pairs[5:], *pairs[:2]]
