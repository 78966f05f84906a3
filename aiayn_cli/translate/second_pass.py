"""What a second pass through the models finds out about outputs: scores of tokens, alignments, attention."""

from collections.abc import Iterator, Sequence
from typing import cast

import torch

from aiayn_cli.errors import AiaynError
from aiayn_cli.model.attention_maps import AttentionMaps, attention_maps
from aiayn_cli.model.layers import EncoderLayer
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.vocab import BLANK_MARK
from aiayn_cli.translate.aids.alignment import Links, align_words, join_links, word_numbers
from aiayn_cli.translate.forced import Forced, Pair, force_decode
from aiayn_cli.translate.translation import Details, Part, Translation

MOST_WEIGHTS = 1 << 24  # of attention, held at once: 64 MB in float32; a line of 1 MB has 16 times as many


class SecondPass:
    """Looks at outputs with the models that made them.

    Args:
        models: in evaluation mode, on the device.
        codec: their vocabulary.
        device: theirs.
        batch_tokens: padded tokens of the longer side that go through them together.
    """

    def __init__(
        self, models: Sequence[TranslationModel], codec: Codec, device: torch.device, batch_tokens: int
    ) -> None:
        self._models, self._codec, self._device, self._batch_tokens = models, codec, device, batch_tokens

    def force(self, pairs: Sequence[Pair], *, with_attention: bool = False) -> list[Forced]:
        """Score given outputs, [pairs] of ids without special tokens; see force_decode()."""
        return force_decode(
            self._models, pairs, device=self._device, batch_tokens=self._batch_tokens, with_attention=with_attention
        )

    def details(self, translations: Sequence[Translation], *, with_alignment: bool = False) -> list[Details]:
        """Score each token of some outputs, and align their words with those of the source.

        Raises:
            AiaynError: alignments were asked for of a model that is no Transformer.
        """
        parts = [part for each in translations for part in each.parts if not part.word]
        forced = self._forced(parts, with_attention=with_alignment)
        found = []
        for each in translations:
            tokens: list[tuple[str, float]] = []
            links = []
            for part in each.parts:
                result = None if part.word else next(forced)
                tokens += self._tokens(part, result)
                if with_alignment:
                    links.append(self._links(part, result))
            found.append(Details(tuple(tokens), join_links(links)))
        return found

    def _forced(self, parts: Sequence[Part], *, with_attention: bool) -> Iterator[Forced]:
        """What the models think of some passes; no more attention is held at once than memory has room for."""
        start = 0
        while start < len(parts):
            end, weights = start, 0
            while end < len(parts) and (end == start or weights <= MOST_WEIGHTS):
                weights += (len(parts[end].src) + 1) * (len(parts[end].tgt) + 1) if with_attention else 0
                end += 1
            pairs = [(part.src, part.tgt) for part in parts[start:end]]
            yield from self.force(pairs, with_attention=with_attention)
            start = end

    def attention_size(self, part: Part) -> int:
        """How many weights attention() gives for a pass; 0 where the model is no Transformer."""
        model = self._models[0]
        if not isinstance(model, Transformer):
            return 0
        src_len, tgt_len = len(part.src) + 1, len(part.tgt) + 1
        heads = cast(EncoderLayer, model.encoder_layers[0]).attention.n_heads
        decoder = len(model.decoder_layers) * tgt_len * (tgt_len + src_len)
        return heads * (len(model.encoder_layers) * src_len**2 + decoder)

    def attention(self, part: Part) -> tuple[AttentionMaps, list[str], list[str]]:
        """Where the (first) model looks in one pass, and the sub-words of its source and output.

        Raises:
            AiaynError: the model is no Transformer.
        """
        model = self._models[0]
        if not isinstance(model, Transformer):
            raise AiaynError("the model is no Transformer, and shows no attention", "leave --attention away")
        with torch.inference_mode():
            src, tgt_in = (
                torch.tensor([ids], device=self._device) for ids in ([*part.src, EOS_ID], [BOS_ID, *part.tgt])
            )
            maps = attention_maps(model, src, None, tgt_in)
        return maps, self._codec.pieces(part.src), self._codec.tgt_pieces(part.tgt)

    def _tokens(self, part: Part, forced: Forced | None) -> list[tuple[str, float]]:
        if forced is None:
            return [(f"{BLANK_MARK}{part.word}", 0.0)]
        return list(zip([*self._codec.tgt_pieces(part.tgt), "</s>"], forced.token_log_probs, strict=True))

    def _links(self, part: Part, forced: Forced | None) -> tuple[Links, int, int]:
        if forced is None:
            return ((0, 0),), 1, 1
        src, tgt = self._codec.pieces(part.src), self._codec.tgt_pieces(part.tgt)
        assert forced.attention is not None
        n_src, n_tgt = (max(word_numbers(pieces), default=-1) + 1 for pieces in (src, tgt))
        return align_words(forced.attention, src, tgt), n_src, n_tgt
