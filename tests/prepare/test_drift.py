"""The alarm names the line where one side of real-looking text lost or gained lines, and is silent about all else."""

import random
from collections.abc import Iterator, Sequence

import pytest

from aiayn_cli.corpora.demo_corpus import TRAIN, Sampler, draw_distinct
from aiayn_cli.corpora.demo_grammar import Lexicon
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.drift import FEWEST_LINES, HOP_LINES, WINDOW_LINES, Sides, line_features, watch

PAIRS = draw_distinct(Sampler(random.Random(1), Lexicon(), (TRAIN,)), 6_000, set())
SRC, TGT = (list(side) for side in zip(*PAIRS, strict=True))


def chunks_of(src: Sequence[str | None], tgt: Sequence[str | None], size: int) -> Iterator[Sides]:
    for start in range(0, len(src), size):
        yield list(src[start : start + size]), list(tgt[start : start + size])


def alarm(src: Sequence[str | None], tgt: Sequence[str | None], chunk: int = 64) -> tuple[int, str] | None:
    """Read two sides; give the number of lines read before the alarm, and what it says."""
    n = 0
    try:
        for n_lines in (len(lines) for lines, _ in watch(chunks_of(src, tgt, chunk), "a.en", "a.de")):
            n += n_lines
    except DataError as error:
        return n + chunk, error.problem
    return None


def place(problem: str) -> int:
    return int(problem.removeprefix("a.en:").split(":")[0])


def test_text_in_step_gives_no_alarm_in_any_order() -> None:
    pairs = list(zip(SRC, TGT, strict=True))
    random.Random(5).shuffle(pairs)
    by_length = sorted(pairs, key=lambda pair: len(pair[0]))
    for some in (list(zip(SRC, TGT, strict=True)), pairs, by_length):
        assert alarm(*zip(*some, strict=True)) is None


@pytest.mark.parametrize(("lost_at", "lost"), [(0, 1), (100, 3), (1_000, 1), (2_345, 40), (4_444, 3)])
def test_lines_lost_on_one_side_are_found_soon_and_placed_well(lost_at: int, lost: int) -> None:
    rest = TGT[:lost_at] + TGT[lost_at + lost :]
    for src, tgt, where in ((SRC, rest, "earlier"), (rest, SRC, "later")):
        n_lines = min(len(src), len(tgt))
        found = alarm(src[:n_lines], tgt[:n_lines])
        assert found is not None
        read, problem = found
        assert read <= lost_at + WINDOW_LINES + HOP_LINES
        assert abs(place(problem) - (lost_at + 1)) <= 15 + lost
        assert f"translations are {lost} line{'s' if lost > 1 else ''} {where} in a.de" in problem


def test_a_blank_line_inserted_on_one_side_is_found() -> None:
    found = alarm(SRC, [*TGT[:3_210], "", *TGT[3_210:-1]])
    assert found is not None
    assert abs(place(found[1]) - 3_211) <= 15


def test_the_message_names_both_files_and_the_way_out() -> None:
    with pytest.raises(DataError) as caught:
        next(watch(chunks_of(SRC[1:2_001], TGT[:2_000], 2_000), "a.en", "a.de"))
    assert caught.value.problem == (
        "a.en:1: from about here on, translations are 1 line later in a.de (by lengths, numbers and questions)"
    )
    assert caught.value.hint == (
        "one file lost or gained lines there: repair it, or turn the check off with --set data.drift_alarm=false"
    )


def test_it_can_be_said_once_instead_of_stopping(capsys: pytest.CaptureFixture[str]) -> None:
    read = list(watch(chunks_of(SRC[1:5_001], TGT[:5_000], 500), "a.en", "a.de", only_warn=True))
    assert read == list(chunks_of(SRC[1:5_001], TGT[:5_000], 500))
    said = capsys.readouterr().err
    assert said.startswith("warning: a.en:1: from about here on, ")
    assert said.count("warning") == 1


def test_the_chunks_make_no_difference() -> None:
    tgt = [*TGT[:2_000], *TGT[2_001:], ""]
    problems = {found[1] for chunk in (1_000, 64, 10_000) if (found := alarm(SRC, tgt, chunk))}
    assert len(problems) == 1


def test_a_short_file_and_the_end_of_a_long_one_are_looked_at() -> None:
    assert alarm(SRC[:700], [*TGT[:50], *TGT[51:701]]) is not None
    few = FEWEST_LINES - 1
    assert alarm(SRC[:few], TGT[1 : few + 1]) is None  # too few to tell
    assert alarm([], []) is None
    at = len(SRC) - 900
    assert alarm(SRC, [*TGT[:at], *TGT[at + 1 :], "Ende."]) is not None


def test_unrelated_constant_repeating_and_noisy_text_gives_no_alarm() -> None:
    rng = random.Random(7)
    shuffled = rng.sample(TGT, len(TGT))
    cycle = [SRC[i % 3] for i in range(3_000)], [TGT[i % 3] for i in range(3_000)]
    assert alarm(SRC, shuffled) is None
    assert alarm(["same"] * 3_000, ["gleich"] * 3_000) is None
    assert alarm([""] * 3_000, [""] * 3_000) is None
    assert alarm(*cycle) is None
    rng = random.Random(9)
    noisy = [rng.choice(TGT) if 2_000 <= i < 4_000 or i % 3 == 0 else line for i, line in enumerate(TGT)]
    assert alarm(SRC, noisy) is None


def test_lines_that_cannot_be_read_keep_the_rest_in_step() -> None:
    unreadable: list[str | None] = [None if i % 50 == 0 else line for i, line in enumerate(TGT)]
    assert alarm(SRC, unreadable) is None
    assert alarm(SRC, [*unreadable[1:], None]) is not None


def test_numbers_and_questions_are_known_in_any_script() -> None:
    numbers = line_features(["in 1,234.50", "1.234,50", "١٢٣٤٥٠ ", "no number", "", None])[:, 1]
    assert numbers[0] == numbers[1] == numbers[2] != 0
    assert numbers[3:].tolist() == [0, 0, 0]
    assert line_features(["Why?", "为什么？", "? no", "", None, "لماذا؟"])[:, 2].tolist() == [1, 1, 0, 0, 0, 1]
