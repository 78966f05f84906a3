import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu_command import TEXT, noisy

from aiayn_cli.score.metrics import bleu


@given(noise=st.lists(st.sampled_from(["\t", "\r", " ", "\u2028", "\x0b", "\x85"]), min_size=1, max_size=4))
@settings(max_examples=30)
def test_tabs_carriage_returns_and_other_white_space_inside_a_line_change_nothing(noise: list[str]) -> None:
    hypotheses = noisy(TEXT, seed=5)
    stirred = [line.replace(" ", "".join(noise)) for line in hypotheses]
    assert bleu(stirred, [TEXT]) == bleu(hypotheses, [TEXT])


def test_a_perfect_translation_scores_100_and_case_counts() -> None:
    assert bleu(TEXT, [TEXT]).score == pytest.approx(100)
    assert bleu([line.lower() for line in TEXT], [TEXT]).score < 90
