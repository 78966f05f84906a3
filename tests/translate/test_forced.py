import copy
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from translation_models import ModelMaker, TranslatorMaker

from aiayn_cli.model.transformer import attention_maps
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.vocab import Vocab
from aiayn_cli.translate.forced_decoding import ForcedDecoder, align_words, join_links, word_numbers
from aiayn_cli.translate.line_translator import Cutting

PAIRS = [([9, 23, 40, 7], [11, 45, 6]), ([31], []), ([], [5]), ([8] * 9, [12] * 20), ([44, 5], [70, 71])]


Decoder = Callable[..., ForcedDecoder]  # models and batch_tokens=


@pytest.fixture
def decoder(make_translator: TranslatorMaker) -> Decoder:
    return lambda *models, batch_tokens=100: ForcedDecoder(make_translator(*models, batch_tokens=batch_tokens))


def one_by_one(model: TranslationModel, src: list[int], tgt: list[int]) -> list[float]:
    with torch.inference_mode():
        logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
    return [float(row.log_softmax(-1)[token]) for row, token in zip(logits, [*tgt, EOS_ID], strict=True)]


@pytest.mark.parametrize("batch_tokens", [1, 12, 1000])
def test_token_scores_are_those_of_a_pass_alone_in_the_order_of_the_pairs(
    make_model: ModelMaker, decoder: Decoder, batch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiayn_cli.translate.forced_decoding.MOST_LOGITS", 500)  # projected in several pieces
    model = make_model()
    found = decoder(model, batch_tokens=batch_tokens).force(PAIRS)
    assert len(found) == len(PAIRS)
    for forced, (src, tgt) in zip(found, PAIRS, strict=True):
        assert forced.token_log_probs == pytest.approx(one_by_one(model, src, tgt), abs=1e-4)
        assert forced.attention is None


def test_an_ensemble_is_averaged_and_another_kind_of_model_scored_too(make_model: ModelMaker, decoder: Decoder) -> None:
    models = [make_model(1), make_model(2)]
    [found] = decoder(*models).force(PAIRS[:1])
    alone = [np.exp(one_by_one(model, *PAIRS[0])) for model in models]
    assert np.exp(found.token_log_probs) == pytest.approx((alone[0] + alone[1]) / 2)
    model = make_model(kind="recurrent")
    assert decoder(model).force([]) == []
    [found] = decoder(model).force(PAIRS[:1])
    assert found.token_log_probs == pytest.approx(one_by_one(model, *PAIRS[0]), abs=1e-4)


@pytest.mark.parametrize(("n_decoder_layers", "layer"), [(1, 0), (2, 0), (3, 1)])
def test_attention_is_that_of_the_last_layer_but_one(
    make_model: ModelMaker, decoder: Decoder, n_decoder_layers: int, layer: int
) -> None:
    models = [make_model(seed, n_decoder_layers=n_decoder_layers) for seed in (1, 2)]
    found = decoder(*models, batch_tokens=1000).force(PAIRS, with_attention=True)
    for forced, (src, tgt) in zip(found, PAIRS, strict=True):
        arguments = torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]])
        expected = sum(attention_maps(model, *arguments).cross[layer, 0].mean(0) for model in models) / 2
        assert forced.attention is not None
        assert forced.attention.shape == (len(tgt) + 1, len(src) + 1)
        torch.testing.assert_close(torch.tensor(forced.attention), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        (["▁the", "▁do", "g", "."], [0, 1, 1, 1]),
        (["▁", "a", "▁", "▁b"], [-1, 0, -1, 1]),
        (["ab", "c"], [0, 0]),
        (["▁", "▁"], [-1, -1]),
        ([], []),
    ],
)
def test_words_are_what_blanks_separate(pieces: list[str], numbers: list[int]) -> None:
    assert word_numbers(pieces) == numbers


@given(text=st.text("ab .", max_size=20))
def test_there_are_as_many_words_as_in_the_text(text: str) -> None:
    vocab = Vocab(train_vocab(Counter({"ab": 5, "ba.": 3, "a": 2, "b": 1, ".": 1}), 12), "test")
    numbers = word_numbers(vocab.pieces(vocab.encode([text])[0]))
    assert max(numbers, default=-1) + 1 == len(text.split())


def test_each_target_word_is_linked_with_the_source_word_that_all_its_pieces_attend_to_most() -> None:
    src, tgt = ["▁a", "▁b", "b", "▁c"], ["▁x", "x", "▁y", "▁"]
    attention = np.array(
        [
            [0.4, 0.3, 0.2, 0.1, 0.0],  # alone, the first piece of x would be a's by one piece, but b has two
            [0.1, 0.3, 0.3, 0.0, 0.3],
            [0.1, 0.0, 0.0, 0.2, 0.7],  # EOS takes no part
            [0.0, 0.0, 0.9, 0.1, 0.0],
            [1.0, 0.0, 0.0, 0.0, 0.0],
        ],
        np.float32,
    )
    assert align_words(attention, src, tgt) == ((1, 0), (2, 1))
    assert align_words(np.ones((3, 2), np.float32), ["▁"], ["▁a", "▁b"]) == ()
    assert align_words(np.ones((1, 2), np.float32), ["▁a"], []) == ()


def test_parts_are_counted_on() -> None:
    assert join_links([(((1, 0), (0, 1)), 2, 2, False), ((), 1, 0, False), (((0, 0),), 1, 1, False)]) == (
        (1, 0), (0, 1), (3, 2),
    )  # fmt: skip
    glued = [(((0, 0), (1, 1)), 2, 2, False), (((0, 0), (1, 1)), 2, 2, True)]
    assert join_links(glued) == ((0, 0), (1, 1), (1, 2), (2, 3))
    assert join_links(glued, without_blanks=True) == ((0, 0), (1, 1), (1, 1), (2, 2))


@pytest.mark.parametrize(
    "line",
    [
        "Der Hund sieht die Katze.Die Katze sieht den Hund. Die Maus!",  # cut once where no blank is
        "der \u200b hund \u00ad sieht die maus",  # words that the normaliser drops
        "42 17 18",  # copied
        "der hund",
    ],
    ids=ascii,
)
def test_alignments_count_the_words_of_the_line_as_given(
    make_translator: TranslatorMaker, vocab: Codec, line: str
) -> None:
    normalising = copy.copy(vocab)
    normalising.text = TextConfig(normaliser=1)
    translator = make_translator(codec=normalising, cutting=Cutting(by_sentence=True))
    [[output]] = translator.translate_n_best([line])
    [details] = ForcedDecoder(translator).details([output], with_alignment=True)
    words, written = line.split(), output.text.split()
    assert details.alignment
    assert all(src < len(words) and tgt < len(written) for src, tgt in details.alignment)
    assert all(normalising.normalise(words[src]) for src, _ in details.alignment)
    if line == "42 17 18":
        assert details.alignment == ((0, 0), (1, 1), (2, 2))
