"""A recurrent encoder-decoder with additive attention: the state of the art before the Transformer.

It follows Bahdanau et al. (2015): a bidirectional encoder, and a decoder that weights the source positions at each
target position by a small network. As in later systems (Wu et al. 2016, Chen et al. 2018) there are several LSTM layers
with residual connections; the lowest layer of the decoder gives the queries, and all layers above read the context. So
no query depends on an earlier context, and in training each layer is one call for the whole sequence.

It uses n_encoder_layers, n_decoder_layers, d_model, dropout and share_embeddings of ModelConfig.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from aiayn_cli.model.cache import RowCache
from aiayn_cli.model.cpu.dropout import dropout
from aiayn_cli.model.embeddings import make_embeddings
from aiayn_cli.model.translation_model import DecodingCache, TranslationModel
from aiayn_cli.recipe_keys import ModelConfig


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


class RecurrentModel(TranslationModel):
    """LSTM layers with residual connections, and additive attention."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        d_model = config.d_model
        self.src_embedding, self.tgt_embedding, self.output = make_embeddings(config, vocab_size)
        self.encoder_layers = nn.ModuleList(
            nn.LSTM(d_model, d_model // 2, batch_first=True, bidirectional=True) for _ in range(config.n_encoder_layers)
        )
        self.bridge = nn.Linear(d_model, d_model)
        self.attention = AdditiveAttention(d_model)
        self.decoder_layers = nn.ModuleList(
            nn.LSTM(2 * d_model if i else d_model, d_model, batch_first=True) for i in range(config.n_decoder_layers)
        )
        self.combine = nn.Linear(2 * d_model, d_model)
        self.dropout = config.dropout

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
        return self._run(tgt_in, self.start(memory, src_mask))

    def start(self, memory: Tensor, src_mask: Tensor | None) -> RowCache:
        """See TranslationModel: the lowest layer begins with the mean of the memory, the others with zeros."""
        keys = self.attention.w_key(memory)
        if src_mask is None:
            mean = memory.mean(dim=1)
        else:
            counts = src_mask.sum(dim=1, keepdim=True)
            mean = memory.masked_fill(~src_mask[:, :, None], 0).sum(dim=1) / counts
        first = torch.tanh(self.bridge(mean.to(memory.dtype)))
        zeros = torch.zeros_like(first)
        states = [first, *[zeros] * (2 * len(self.decoder_layers) - 1)]  # of each layer: hidden, cell
        return RowCache([memory, keys], src_mask, states)

    def step(self, tokens: Tensor, cache: DecodingCache) -> Tensor:
        assert isinstance(cache, RowCache), "it comes from start()"
        return self.project(self._run(tokens, cache)[:, -1])

    def _run(self, tokens: Tensor, cache: RowCache) -> Tensor:
        """Read tokens [rows, new_len] after those of the cache; return [rows, new_len, d_model]."""
        cache.expand(len(tokens))
        memory, keys = cache.memory
        x = self._embed(tokens, self.tgt_embedding)
        context = x
        for i, layer in enumerate(self.decoder_layers):
            hidden, cell = cache.rows[2 * i : 2 * i + 2]
            y, (hidden, cell) = layer(torch.cat((x, context), dim=2) if i else x, (hidden[None], cell[None]))
            cache.rows[2 * i : 2 * i + 2] = hidden[0], cell[0]
            x = self._drop(y) + x if i else self._drop(y)
            if i == 0:
                queries = x.reshape(len(memory), -1, x.shape[2])  # of all hypotheses of a sentence
                context = self.attention(queries, keys, memory, cache.src_mask).view(x.shape)
        cache.lengths = [length + tokens.shape[1] for length in cache.lengths]
        return self._drop(torch.tanh(self.combine(torch.cat((x, context), dim=2))))

    def _embed(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        return self._drop(embedding(tokens) * math.sqrt(embedding.embedding_dim))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout if self.training else 0.0)
