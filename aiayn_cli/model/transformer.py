"""The Transformer (paper, Section 3): embeddings, encoder, decoder, projection to the vocabulary."""

from torch import Tensor, nn

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.cache import DecoderCache, starts
from aiayn_cli.model.cpu.packed_attention import PackedPattern, Packing
from aiayn_cli.model.embeddings import embed, embed_packed, longest_sequence, make_embeddings, make_positions
from aiayn_cli.model.layers import DecoderLayer, EncoderLayer
from aiayn_cli.model.masks import Causal, SharedMask, Window, padding_mask
from aiayn_cli.model.translation_model import DecodingCache, TranslationModel


class Transformer(TranslationModel):
    """The paper's model."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_decoder_layers))
        self.src_embedding, self.tgt_embedding, self.output = make_embeddings(config, vocab_size)
        self.src_positions, self.tgt_positions = make_positions(config), make_positions(config)
        is_pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if is_pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if is_pre else nn.Identity()
        self.dropout, self.attention_window = config.dropout, config.attention_window

    @property
    def max_positions(self) -> int:
        return longest_sequence(self.src_positions, self.tgt_positions)

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        x = embed(src, self.src_embedding, self.src_positions, 0, self._dropout())
        padding = None if src_mask is None else padding_mask(src_mask)
        mask = Window(self.attention_window, False, src_mask) if self.attention_window else padding
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        x = embed(tgt_in, self.tgt_embedding, self.tgt_positions, 0, self._dropout())
        mask = self._causal()  # also hides padding from real positions: it is at the end
        memory_mask = None if src_mask is None else padding_mask(src_mask)
        for layer in self.decoder_layers:
            x = layer(x, mask, memory, memory_mask)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    @property
    def reads_packed(self) -> bool:
        return all(m.d_k == m.d_v for m in self.modules() if isinstance(m, MultiHeadAttention))

    def decode_packed(self, src: Tensor, src_packing: Packing, tgt_in: Tensor, tgt_packing: Packing) -> Tensor:
        padding = src_mask = SharedMask(padding_mask(src_packing.is_token))
        if self.attention_window:
            window = Window(self.attention_window, False, src_packing.is_token)
            src_mask = SharedMask(window.mask(src_packing.length, src.device))
        tgt_mask = SharedMask(self._causal().mask(tgt_packing.length, src.device))
        pattern = PackedPattern(src_packing, src_packing, src_mask)
        memory = embed_packed(src, src_packing, self.src_embedding, self.src_positions, self._dropout())
        for layer in self.encoder_layers:
            memory = layer(memory, pattern)
        memory = self.encoder_norm(memory)
        tgt_pattern = PackedPattern(tgt_packing, tgt_packing, tgt_mask)
        memory_pattern = PackedPattern(tgt_packing, src_packing, padding)
        x = embed_packed(tgt_in, tgt_packing, self.tgt_embedding, self.tgt_positions, self._dropout())
        for layer in self.decoder_layers:
            x = layer(x, tgt_pattern, memory, memory_pattern)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def start(self, memory: Tensor, src_mask: Tensor | None) -> DecoderCache:
        return DecoderCache([layer.start(memory) for layer in self._decoder()], src_mask, self.attention_window)

    def step(self, tokens: Tensor, cache: DecodingCache) -> Tensor:
        assert isinstance(cache, DecoderCache), "it comes from start()"
        rows, new_len = tokens.shape
        n_beams = rows // len(cache.lengths)
        assert rows == n_beams * len(cache.lengths), f"{rows} rows cannot belong to {len(cache.lengths)} sentences"
        start = starts(cache.lengths, n_beams)
        x = embed(tokens, self.tgt_embedding, self.tgt_positions, start, self._dropout())
        x = x.view(len(cache.lengths), -1, x.shape[2])  # [sentences, beams * new_len, d_model]
        slots, mask = cache.allocate(n_beams, new_len)
        for layer, layer_cache in zip(self._decoder(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, slots, mask, cache.memory_mask)
        return self.project(self.decoder_norm(x.view(rows, new_len, -1)[:, -1]))

    def _decoder(self) -> list[DecoderLayer]:
        return list(self.decoder_layers)  # type: ignore[arg-type]

    def _causal(self) -> Causal | Window:
        return Window(self.attention_window, True) if self.attention_window else Causal()

    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0
