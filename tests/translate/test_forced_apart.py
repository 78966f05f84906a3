"""Scores that are the same to the last bit, whatever is scored together."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from aiayn_cli.errors import AiaynError
from aiayn_cli.model.cpu.int8 import use_int8
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.translate import forced_apart
from aiayn_cli.translate.forced import Forced, force_decode
from aiayn_cli.translate.forced_apart import can_force_apart, force_apart

ModelMaker = Callable[..., TranslationModel]  # seed, then fields of ModelConfig

CPU = torch.device("cpu")
# Wide enough that products of other shapes are added up in another order.
WIDE = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 256, "d_ff": 512, "n_heads": 4, "d_k": 64, "d_v": 64}


def some_pairs(count: int) -> list[tuple[list[int], list[int]]]:
    draw = random.Random(5)
    return [
        (draw.choices(range(4, 90), k=draw.randint(0, 30)), draw.choices(range(4, 90), k=draw.randint(0, 40)))
        for _ in range(count)
    ]


def as_bytes(forced: Forced) -> tuple[bytes, bytes, bytes]:
    attention = b"" if forced.attention is None else forced.attention.tobytes()
    return np.array(forced.token_log_probs).tobytes(), attention, np.array(forced.any_log_probs).tobytes()


def test_every_number_is_that_of_the_pair_alone_to_the_last_bit(make_model: ModelMaker) -> None:
    models = [make_model(1, **WIDE), make_model(2, **WIDE)]
    pairs = some_pairs(40)
    shuffled = random.Random(2).sample(range(40), 40)
    for wanted in ({"with_attention": True}, {"any_of": [7, 30, 31, 64]}):
        alone = [as_bytes(force_apart(models, [pair], batch_tokens=1, **wanted)[0]) for pair in pairs]
        torch.set_num_threads(2)
        for threads, batch_tokens in ((1, 90), (3, 5_000)):
            found = force_apart(models, pairs, batch_tokens=batch_tokens, threads=threads, **wanted)
            assert list(map(as_bytes, found)) == alone
        assert torch.get_num_threads() == 2, "it is as it was"
        mixed = force_apart(models, [pairs[number] for number in shuffled], batch_tokens=5_000, threads=2, **wanted)
        assert list(map(as_bytes, mixed)) == [alone[number] for number in shuffled]
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "pre", "positions": "learned", "max_positions": 43},
        {"attention_window": 4},
        {"kind": "recurrent"},
        {"kind": "convolutional"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "base",
)
def test_they_are_what_a_batch_gives_but_for_rounding(
    make_model: ModelMaker, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forced_apart, "MOST_LOGITS", 500)  # projected in several pieces
    models = [make_model(1, **settings), make_model(2, **settings)]
    pairs = some_pairs(30)
    expected = force_decode(models, pairs, device=CPU, batch_tokens=400)
    found = force_apart(models, pairs, batch_tokens=400, any_of=range(97))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.token_log_probs == pytest.approx(theirs.token_log_probs, abs=1e-3)
        assert ours.any_log_probs == pytest.approx([0.0] * len(theirs.token_log_probs), abs=1e-4)
    again = [force_apart(models, [pair], batch_tokens=1, any_of=range(97))[0] for pair in pairs]
    assert found == again


def test_attention_is_the_same_and_what_has_none_is_refused(make_model: ModelMaker) -> None:
    pairs = some_pairs(9)
    model = make_model(n_decoder_layers=3)
    expected = force_decode([model], pairs, device=CPU, batch_tokens=400, with_attention=True)
    for ours, theirs in zip(force_apart([model], pairs, batch_tokens=400, with_attention=True), expected, strict=True):
        assert ours.attention is not None
        np.testing.assert_allclose(ours.attention, theirs.attention, atol=1e-5)
    with pytest.raises(AiaynError, match="no Transformer"):
        force_apart([make_model(kind="recurrent")], pairs, batch_tokens=400, with_attention=True)
    assert force_apart([model], [], batch_tokens=400) == []


def test_it_is_for_float32_on_a_cpu(make_model: ModelMaker) -> None:
    model = make_model()
    assert can_force_apart([model], CPU)
    assert not can_force_apart([model], torch.device("cuda"))
    assert not can_force_apart([model, make_model().to(torch.bfloat16)], CPU)
    use_int8(model)
    assert not can_force_apart([model], CPU)
