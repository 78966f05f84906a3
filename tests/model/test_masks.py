import pytest
import torch
from torch import Tensor

from aiayn_cli.model.masks import Causal, Window, padding_mask

_CPU = torch.device("cpu")


def _rows(mask: Tensor) -> list[str]:
    """A mask of one sentence, drawn: one string for each query, x = may attend."""
    assert mask.dtype == torch.bool
    return ["".join("x" if seen else "." for seen in row) for row in mask[0, 0].tolist()]


def test_padding_is_hidden_from_every_query_of_its_own_sentence() -> None:
    mask = padding_mask(torch.tensor([[True, True, False], [True, True, True]]))
    assert mask.shape == (2, 1, 1, 3)
    assert _rows(mask[:1]) == ["xx."]
    assert _rows(mask[1:]) == ["xxx"]


def test_the_causal_mask_shows_a_position_itself_and_its_past() -> None:
    assert Causal().mask(4).shape == (1, 1, 4, 4)
    assert _rows(Causal().mask(4)) == ["x...", "xx..", "xxx.", "xxxx"]


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        (1, ["xx...", "xxx..", ".xxx.", "..xxx", "...xx"]),
        (2, ["xxx..", "xxxx.", "xxxxx", ".xxxx", "..xxx"]),
        (9, ["xxxxx"] * 5),
    ],
)
def test_a_window_shows_its_reach_to_each_side(reach: int, expected: list[str]) -> None:
    mask = Window(reach, causal=False).mask(5, _CPU)
    assert mask.shape == (1, 1, 5, 5)
    assert _rows(mask) == expected
