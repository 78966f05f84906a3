"""From pairs to what a model makes of them with teacher forcing: packed where the model and device can, else padded."""

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.data.collate import Indices, collate, flatten, shape_of
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.packing import Packing, pack
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import PAD_ID
from aiayn_cli.train.compilation import begin_pass, is_compiled
from aiayn_cli.train.few_shapes import few_counts, few_shapes

_LONGEST_PACKED = 512  # tokens: beyond, attention weights kept for the backward pass would take too much memory


def teacher_forced(
    model: TranslationModel, store: TokenStore, pairs: Indices, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What the decoder makes of each target token, given the source and the target tokens before it.

    Args:
        model: on the device.
        store: of the pairs.
        pairs: which.
        device: the model's.
    Returns:
        hidden [rows, d_model] and targets int64 [tokens], as smoothed_cross_entropy() takes them: the first rows are
        the tokens.
    """
    # torch.compile cannot trace the operations on packed sequences, which are fused by hand.
    if device.type == "cpu" and model.reads_packed and not is_compiled(model):
        batch = flatten(store, pairs)
        src_packing, tgt_packing = pack(batch.src_lengths), pack(batch.tgt_lengths)
        if max(src_packing.length, tgt_packing.length) <= _LONGEST_PACKED:
            src, tgt_in = _filled_up(batch.src, src_packing), _filled_up(batch.tgt_in, tgt_packing)
            return model.decode_packed(src, src_packing, tgt_in, tgt_packing), batch.tgt_out
    shape = few_shapes(shape_of(store, pairs), model.max_positions) if _wants_few_shapes(device) else None
    begin_pass(model)
    padded = collate(store, pairs, shape).to(device)
    hidden = model.decode(padded.tgt_in, model.encode(padded.src, padded.src_mask), padded.src_mask)
    rows = padded.tgt_tokens if shape is None else few_counts(padded.tgt_tokens)
    return _without_padding(hidden, padded.tgt_out, padded.tgt_tokens, rows)


def _wants_few_shapes(device: torch.device) -> bool:
    """A CPU gains nothing from them; and its runs go on bit for bit only if their batches stay as they were."""
    return device.type != "cpu"


def _filled_up(tokens: Tensor, packing: Packing) -> Tensor:
    return functional.pad(tokens, (0, packing.rows - packing.tokens), value=PAD_ID)


def _without_padding(hidden: Tensor, targets: Tensor, tokens: int, rows: int) -> tuple[Tensor, Tensor]:
    """[batch, tgt_len, d_model], [batch, tgt_len] -> [rows, d_model], of which the first are tokens, and [tokens]."""
    hidden, targets = hidden.flatten(0, 1), targets.flatten()
    if tokens == len(targets):
        return hidden, targets
    is_token = targets != PAD_ID
    # Each place's number is written to its rank among the tokens; padding goes to one more, which is cut off. Unlike
    # nonzero(), whose size only the device knows, this does not make the host wait.
    ranks = torch.where(is_token, is_token.cumsum(0) - 1, rows)
    places = torch.arange(len(targets), device=targets.device)
    kept = torch.zeros(rows + 1, dtype=torch.int64, device=targets.device).scatter_(0, ranks, places)[:rows]
    return hidden.index_select(0, kept), targets.index_select(0, kept[:tokens])
