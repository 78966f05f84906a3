"""A recurrent encoder-decoder with additive attention: the state of the art before the Transformer.

It follows Bahdanau et al. (2015): an encoder that reads in both directions, and a decoder that asks at each target
position, by a small network, how much each source position matters. As in later systems (Wu et al. 2016, Chen et al.
2018) there are several LSTM layers with residual connections, and the lowest layer of the decoder asks while all
layers above read the answer. So nothing that is asked depends on an earlier answer, and in training each layer is one
call for the whole sequence.

Of ModelConfig it takes n_encoder_layers, n_decoder_layers, d_model, dropout and share_embeddings.
"""

import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.cache import put, put_mask, rows_of
from aiayn_cli.model.cpu.dropout import dropout
from aiayn_cli.model.embeddings import Embeddings, make_embeddings
from aiayn_cli.model.initialise import initialise
from aiayn_cli.model.translation_model import DecodingCache, TranslationModel

State = tuple[Tensor, Tensor]  # of an LSTM: hidden and cell, [1, rows, d_model] each


class AdditiveAttention(nn.Module):
    """Attention whose weights come from a network with one hidden layer (Bahdanau et al. 2015, Appendix A.1.2)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.w_query = nn.Linear(d_model, d_model, bias=False)
        self.w_key = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        """Let each query read from its sentence's memory.

        Args:
            queries: [sentences, n_queries, d_model].
            keys: [sentences, src_len, d_model], w_key's output for the memory.
            memory: [sentences, src_len, d_model].
            src_mask: bool [sentences, src_len], True = a real token; None = no padding.
        Returns:
            [sentences, n_queries, d_model].
        """
        hidden = torch.tanh(self.w_query(queries)[:, :, None] + keys[:, None])  # [sentences, queries, src_len, d_model]
        scores: Tensor = self.v(hidden).squeeze(-1)
        if src_mask is not None:
            scores = scores.masked_fill(~src_mask[:, None], -torch.inf)
        return scores.softmax(dim=-1) @ memory


class RecurrentCache:
    """What the recurrent decoder keeps between two steps.

    Args:
        memory: [sentences, src_len, d_model].
        keys: [sentences, src_len, d_model], see AdditiveAttention.
        src_mask: bool [sentences, src_len] or None.
        states: of each layer of the decoder, one row for each sentence so far.
    """

    def __init__(self, memory: Tensor, keys: Tensor, src_mask: Tensor | None, states: list[State]) -> None:
        self.memory, self.keys, self.src_mask, self.states = memory, keys, src_mask, states

    def reorder(self, rows: Tensor) -> None:
        self.states = [(hidden[:, rows], cell[:, rows]) for hidden, cell in self.states]

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        self.reorder(rows)
        self.memory, self.keys = self.memory[sentences], self.keys[sentences]
        self.src_mask = None if self.src_mask is None else self.src_mask[sentences]

    def take(self, places: Tensor, other: Self, chosen: slice) -> None:
        n_beams = self.states[0][0].shape[1] // len(self.memory)
        rows, new = rows_of(places, n_beams), slice(chosen.start * n_beams, chosen.stop * n_beams)
        for states, others in zip(self.states, other.states, strict=True):
            for state, another in zip(states, others, strict=True):
                state[:, rows] = another[:, new]
        mask = None if other.src_mask is None else other.src_mask[chosen]
        self.src_mask = put_mask(self.memory, self.src_mask, places, other.memory[chosen], mask)
        self.memory = put(self.memory, places, other.memory[chosen])
        self.keys = put(self.keys, places, other.keys[chosen])


class RecurrentModel(TranslationModel):
    """LSTM layers with residual connections, and additive attention; build_recurrent() makes one."""

    def __init__(
        self, embeddings: Embeddings, d_model: int, n_encoder_layers: int, n_decoder_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.src_embedding, self.tgt_embedding, self.output = embeddings.src, embeddings.tgt, embeddings.output
        self.encoder_layers = nn.ModuleList(
            nn.LSTM(d_model, d_model // 2, batch_first=True, bidirectional=True) for _ in range(n_encoder_layers)
        )
        self.bridge = nn.Linear(d_model, d_model)
        self.attention = AdditiveAttention(d_model)
        self.decoder_layers = nn.ModuleList(
            nn.LSTM(2 * d_model if i else d_model, d_model, batch_first=True) for i in range(n_decoder_layers)
        )
        self.combine = nn.Linear(2 * d_model, d_model)
        self.dropout = dropout

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        x = self._embed(src, self.src_embedding)
        # The lengths tell the direction from right to left where each sentence begins.
        lengths = None if src_mask is None else src_mask.sum(dim=1).cpu()
        for i, layer in enumerate(self.encoder_layers):
            if lengths is None:
                y, _ = layer(x)
            else:
                packed, _ = layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
                y, _ = pad_packed_sequence(packed, batch_first=True, total_length=src.shape[1])
            x = self._drop(y) + x if i else self._drop(y)
        return x

    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        hidden, _ = self._run(
            tgt_in, memory, self.attention.w_key(memory), src_mask, self._first_states(memory, src_mask)
        )
        return hidden

    def start(self, memory: Tensor, src_mask: Tensor | None) -> RecurrentCache:
        keys = self.attention.w_key(memory)
        return RecurrentCache(memory, keys, src_mask, self._first_states(memory, src_mask))

    def step(self, tokens: Tensor, cache: DecodingCache) -> Tensor:
        assert isinstance(cache, RecurrentCache), "it comes from start()"
        n_beams = len(tokens) // cache.states[0][0].shape[1]
        if n_beams > 1:  # the first step, where a sentence may have several rows at once
            cache.states = [
                (hidden.repeat_interleave(n_beams, dim=1), cell.repeat_interleave(n_beams, dim=1))
                for hidden, cell in cache.states
            ]
        hidden, cache.states = self._run(tokens, cache.memory, cache.keys, cache.src_mask, cache.states)
        return self.project(hidden[:, -1])

    def _run(
        self, tokens: Tensor, memory: Tensor, keys: Tensor, src_mask: Tensor | None, states: list[State]
    ) -> tuple[Tensor, list[State]]:
        """Read tokens [rows, new_len] after some states; give [rows, new_len, d_model] and the states after them."""
        x = self._embed(tokens, self.tgt_embedding)
        rows, new_len, d_model = x.shape
        after: list[State] = []
        context = x
        for i, (layer, state) in enumerate(zip(self.decoder_layers, states, strict=True)):
            y, state = layer(torch.cat((x, context), dim=2) if i else x, state)
            after.append(state)
            x = self._drop(y) + x if i else self._drop(y)
            if i == 0:
                queries = x.reshape(len(memory), -1, d_model)  # of all hypotheses of a sentence
                context = self.attention(queries, keys, memory, src_mask).view(rows, new_len, d_model)
        return self._drop(torch.tanh(self.combine(torch.cat((x, context), dim=2)))), after

    def _first_states(self, memory: Tensor, src_mask: Tensor | None) -> list[State]:
        """Begin the lowest layer with what the source is about, the others with zeros."""
        if src_mask is None:
            mean = memory.mean(dim=1)
        else:
            counts = src_mask.sum(dim=1, keepdim=True)
            mean = memory.masked_fill(~src_mask[:, :, None], 0).sum(dim=1) / counts
        first = torch.tanh(self.bridge(mean.to(memory.dtype)))[None]
        zeros = torch.zeros_like(first)
        return [(first if i == 0 else zeros, zeros) for i in range(len(self.decoder_layers))]

    def _embed(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        return self._drop(embedding(tokens) * math.sqrt(embedding.embedding_dim))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout if self.training else 0.0)


def build_recurrent(config: ModelConfig, vocab_size: int) -> RecurrentModel:
    """Make a RecurrentModel with fresh weights; see `build_model`."""
    model = RecurrentModel(
        make_embeddings(config, vocab_size),
        config.d_model,
        config.n_encoder_layers,
        config.n_decoder_layers,
        config.dropout,
    )
    initialise(model)
    return model
