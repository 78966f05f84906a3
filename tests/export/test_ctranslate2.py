"""The exported model says what the Transformer itself says, for every shape that can be exported."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from aiayn_cli.errors import AiaynError, CheckpointError
from aiayn_cli.export.session import export
from aiayn_cli.model.build import build_model
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS
from aiayn_cli.translate import ctranslate2_engine
from aiayn_cli.translate.ctranslate2_engine import CTranslate2Engine
from aiayn_cli.translate.options import SearchOptions

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

VOCAB = 40
PIECES = ["<pad>", "<unk>", "<s>", "</s>", *(f"▁piece{i}" for i in range(N_SPECIAL_TOKENS, VOCAB))]
SEARCH = DecodingConfig(beam_size=2), SearchOptions()


def make(**settings: object) -> tuple[Transformer, ModelConfig]:
    shape = {"n_encoder_layers": 2, "n_decoder_layers": 1, "d_model": 24, "d_ff": 40, "n_heads": 3, "d_k": 8, "d_v": 8}
    config = ModelConfig(**{**shape, **settings})  # type: ignore[arg-type]
    torch.manual_seed(5)
    model = build_model(config, VOCAB).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # biases and norms too
    return model, config


def make_engine(folder: Path, *, int8: bool = False, **settings: object) -> tuple[Transformer, CTranslate2Engine]:
    model, config = make(**settings)
    export(model, config, PIECES, PIECES, folder / "exported", int8=int8)
    return model, CTranslate2Engine(folder / "exported", PIECES, PIECES, int8=int8)


def some_pairs(count: int) -> list[tuple[list[int], list[int]]]:
    draw = random.Random(3)
    return [
        (draw.choices(range(4, VOCAB), k=draw.randint(1, 12)), draw.choices(range(4, VOCAB), k=draw.randint(0, 9)))
        for _ in range(count)
    ]


def token_log_probs(
    model: Transformer, src: list[int], tgt: list[int], among: Sequence[int] = range(VOCAB)
) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
    log_probs = logits - logits[:, list(among)].logsumexp(-1, keepdim=True)
    return [float(log_probs[position, token]) for position, token in enumerate([*tgt, EOS_ID])]


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": norm, "positions": positions, "share_embeddings": share, "attention_bias": bias}
        for norm, positions, share, bias in (
            ("post", "sinusoidal", "all", False),
            ("pre", "sinusoidal", "decoder", True),
            ("post", "learned", "none", True),
            ("pre", "learned", "all", False),
        )
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_every_token_has_the_probability_that_the_model_gives_it(tmp_path: Path, settings: dict[str, object]) -> None:
    model, engine = make_engine(tmp_path, **settings, max_positions=60)
    pairs = some_pairs(9)
    for (src, tgt), found in zip(pairs, engine.token_log_probs(pairs), strict=True):
        assert found == pytest.approx(token_log_probs(model, src, tgt), abs=1e-4)


def test_weights_in_8_bits_come_near_and_leave_the_model_as_it_was(tmp_path: Path) -> None:
    model, engine = make_engine(tmp_path, int8=True)
    pairs = some_pairs(9)
    differences = [
        abs(ours - theirs)
        for (src, tgt), found in zip(pairs, engine.token_log_probs(pairs), strict=True)
        for ours, theirs in zip(token_log_probs(model, src, tgt), found, strict=True)
    ]
    assert 0 < sum(differences) / len(differences) < 0.1
    exact, _ = make()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), exact.parameters(), strict=True))


def test_a_found_output_has_its_log_p_and_keeps_to_its_own_longest_length(tmp_path: Path) -> None:
    model, engine = make_engine(tmp_path)
    sources = [src for src, _ in some_pairs(8)]
    limits = [3, 30, 5, 2, 30, 1, 9, 30]
    for src, limit, [(tokens, log_prob)] in zip(
        sources, limits, engine.search(sources, [[]] * 8, limits, *SEARCH), strict=True
    ):
        assert len(tokens) <= limit - 1
        assert not {0, 1, 2, 3} & set(tokens)
        if limit == 1:
            continue
        expected = token_log_probs(model, src, list(tokens), among=range(EOS_ID, VOCAB))
        if len(tokens) < limit - 1:
            assert log_prob == pytest.approx(sum(expected), abs=1e-3)
        else:  # cut, or ended just there
            assert log_prob == pytest.approx(sum(expected[:-1]), abs=1e-3)


def test_greedy_outputs_are_the_most_likely_tokens_one_by_one(tmp_path: Path) -> None:
    model, engine = make_engine(tmp_path)
    sources = [src for src, _ in some_pairs(5)]
    found = engine.search(sources, [[]] * 5, [12] * 5, DecodingConfig(beam_size=1), SearchOptions())
    for src, [(tokens, _)] in zip(sources, found, strict=True):
        expected: list[int] = []
        while len(expected) < 11:
            with torch.no_grad():
                logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *expected]]))[0, -1]
            if (best := EOS_ID + int(logits[EOS_ID:].argmax())) == EOS_ID:
                break
            expected.append(best)
        assert list(tokens) == expected


def test_outputs_begin_with_their_prefix_and_are_as_many_as_asked_for(tmp_path: Path) -> None:
    _, engine = make_engine(tmp_path)
    prefixes = [[9, 17], [], [30]]
    found = engine.search(
        [[5, 6], [7], [8, 9, 10]], prefixes, [9] * 3, DecodingConfig(beam_size=4), SearchOptions(n_best=3, min_length=4)
    )
    for prefix, outputs in zip(prefixes, found, strict=True):
        assert len({tokens for tokens, _ in outputs}) == 3
        for tokens, _ in outputs:
            assert list(tokens[: len(prefix)]) == prefix
            assert len(tokens) >= 4
    assert engine.search([], [], [], *SEARCH) == []


def test_a_vocabulary_smaller_than_the_matrix_is_filled_up(tmp_path: Path) -> None:
    model, config = make()
    export(model, config, PIECES[:-5], PIECES, tmp_path / "exported", int8=False)
    engine = CTranslate2Engine(tmp_path / "exported", PIECES[:-5], PIECES)
    [found] = engine.token_log_probs([([5, 6], [39])])
    assert found == pytest.approx(token_log_probs(model, [5, 6], [39]), abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"attention_window": 3}, "does not support local attention"),
        ({"d_k": 7}, "d_k is 7 and d_v 8, but CTranslate2 supports only d_model / n_heads = 8"),
        ({"kind": "recurrent"}, "does not support recurrent models"),
    ],
)
def test_what_the_format_cannot_express_is_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(AiaynError, match=problem):
        ctranslate2_engine.check_expressible(make(**settings)[1])


def test_a_damaged_export_is_one_message(tmp_path: Path) -> None:
    model, config = make()
    export(model, config, PIECES, PIECES, tmp_path / "exported", int8=False)
    (tmp_path / "exported" / "model.bin").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="exported cannot be loaded"):
        CTranslate2Engine(tmp_path / "exported", PIECES, PIECES)


def test_without_the_package_one_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    with pytest.raises(AiaynError, match="needs the package ctranslate2") as error:
        ctranslate2_engine.load_package()
    assert error.value.hint == "pip install '.[ctranslate2]' in a checkout"


@pytest.mark.parametrize(
    ("machine", "exact", "set_before", "expected"),
    [
        ("x86_64", False, None, "1"),
        ("x86_64", True, None, None),
        ("x86_64", False, "0", "0"),
        ("arm64", False, None, None),  # only x86 is told
    ],
)
def test_where_8_bit_sums_overflow_it_is_told_to_multiply_exactly_unless_the_user_says_how(
    machine: str, exact: bool, set_before: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if machine == "x86_64":  # which adds_8_bits_in_32() looks at first
        monkeypatch.setattr(ctranslate2_engine, "adds_8_bits_in_32", lambda: exact)
    monkeypatch.setattr("platform.machine", lambda: machine)
    # It is not imported here, since it looks only once how to multiply, for all tests that follow.
    monkeypatch.setattr(ctranslate2_engine.importlib, "import_module", lambda module: module)
    monkeypatch.setenv("CT2_USE_MKL", "before")  # so that it is afterwards what it was
    monkeypatch.delenv("CT2_USE_MKL")
    if set_before is not None:
        monkeypatch.setenv("CT2_USE_MKL", set_before)
    assert ctranslate2_engine.load_package() == "ctranslate2"
    assert os.environ.get("CT2_USE_MKL") == expected
    assert ctranslate2_engine.multiplies_slowly() == (expected == "1")


@pytest.mark.parametrize("how", ["search", "score"])
def test_what_the_environment_makes_it_refuse_is_said(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, engine = make_engine(tmp_path)
    real = engine._translator

    class Refusing:
        num_translators = 1
        error: Exception = ValueError("Invalid CPU ISA: FOO")

        def translate_batch(self, *_: object, **__: object) -> None:
            raise self.error

        score_batch = translate_batch

    engine._translator = Refusing()
    monkeypatch.setenv("CT2_USE_MKL", "1")
    monkeypatch.setenv("CT2_FORCE_CPU_ISA", "FOO")

    def run() -> None:
        engine.search([[5]], [[]], [9], *SEARCH) if how == "search" else engine.token_log_probs([([5], [6])])

    with pytest.raises(AiaynError, match="CTranslate2 failed: Invalid CPU ISA: FOO") as error:
        run()
    assert error.value.hint == "translate with --engine torch; or look at CT2_FORCE_CPU_ISA in the environment"
    monkeypatch.delenv("CT2_FORCE_CPU_ISA")
    with pytest.raises(AiaynError) as error:
        run()
    assert error.value.hint == "translate with --engine torch"
    Refusing.error = RuntimeError("CUDA failed with error out of memory")
    with pytest.raises(MemoryError, match="out of memory"):
        run()
    engine._translator = real
    run()
