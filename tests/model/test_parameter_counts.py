"""The counts of the paper's equations; tests/test_recipes_of_the_paper.py has the printed ones of Table 3."""

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.build import build_empty
from aiayn_cli.model.translation_model import count_parameters

_ROWS_OF_THE_TEXT = 37_000
_BIG = ModelConfig(d_model=1024, d_ff=4096, n_heads=16)


def _count(config: ModelConfig, rows: int) -> int:
    return count_parameters(build_empty(config, rows))


def test_the_equations_of_the_paper_with_its_37000_rows() -> None:
    assert _count(ModelConfig(), _ROWS_OF_THE_TEXT) == 63_045_632
    assert _count(_BIG, _ROWS_OF_THE_TEXT) == 214_171_648


def test_the_base_models_count_is_the_sum_of_its_matrices_and_vectors() -> None:
    attention = 4 * 512 * 512
    feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512
    norm = 2 * 512
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    assert _count(ModelConfig(), 1_000) == 1_000 * 512 + encoder + decoder


def test_learned_positions_and_a_final_norm_add_their_own_and_nothing_else() -> None:
    base = _count(ModelConfig(), 1_000)
    learned = ModelConfig(positions="learned", max_positions=300)
    assert _count(learned, 1_000) == base + 2 * 300 * 512  # one table for each stack
    assert _count(ModelConfig(norm="pre"), 1_000) == base + 2 * 2 * 512
    assert _count(ModelConfig(attention_window=5, dropout=0.3), 1_000) == base
