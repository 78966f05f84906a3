"""The gradient of one update: divided into micro-batches over all processes, within the memory there is."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.data.batches import Indices, Update, largest_batch, mixed_seed, split_update
from aiayn_cli.data.collate import collate, flatten, shape_of
from aiayn_cli.data.store import TokenStore
from aiayn_cli.device import is_out_of_memory
from aiayn_cli.errors import AiaynError
from aiayn_cli.model.cpu.packed_attention import Packing, pack
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import TrainingConfig
from aiayn_cli.special_tokens import PAD_ID
from aiayn_cli.train.compilation import begin_pass, few_counts, few_shapes
from aiayn_cli.train.distributed import SAME_ON_ALL, SIGNALS, ReceivedSignal, Worker
from aiayn_cli.train.loss import smoothed_cross_entropy
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState

_LONGEST_PACKED = 512  # tokens: beyond, attention weights kept for the backward pass would take too much memory


def teacher_forced(
    model: TranslationModel, store: TokenStore, pairs: Indices, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The decoder's output for each target token, given the source and the target tokens before it.

    Returns hidden [rows, d_model], of which the first are tokens, and targets int64 [tokens].
    """
    # torch.compile cannot trace the operations on packed sequences, which are fused by hand.
    if device.type == "cpu" and model.reads_packed and not model.is_compiled:
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
    """A CPU gains nothing from them, and its runs continue bit for bit only if their batches stay as they were."""
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


@dataclass(frozen=True)
class Agreement:
    """What all processes know after the backward passes of an update."""

    out_of_memory: bool  # of any process
    signal: str  # that any process received, or ""
    time_is_up: bool  # rank 0's clock says that a checkpoint is due


class GradientOfUpdates:
    """Runs the forward and backward passes of this process's share of each update."""

    def __init__(
        self, model: TranslationModel, optimizer: MasterAdam, store: TokenStore, config: TrainingConfig, worker: Worker
    ) -> None:
        self._model, self._optimizer, self._store = model, optimizer, store
        self._config, self._device, self._worker = config, model.output.weight.device, worker

    def fits(self, max_tokens: int) -> bool:
        """Whether forward and backward passes of the largest batch find memory, on every device."""
        pairs = largest_batch(self._store, max_tokens)
        out = self._passes([(0, pairs)], torch.zeros((), device=self._device), 1.0, step=0, accumulate=False)
        self._optimizer.clear()
        return not any(flags[0] for flags in self._worker.exchange([out]))

    def of(
        self, update: Update, state: TrainingState, interrupted: ReceivedSignal, time_is_up: bool
    ) -> tuple[Agreement, Tensor]:
        """Leave this process's part of an update's gradient in the optimizer; `state` is that before the update.

        Returns what all agree on, and this process's part of the negative log-likelihood, a scalar on the device.
        """
        step, max_tokens, division = state.step + 1, state.max_tokens or self._config.max_tokens, state.division
        # Every rank knows the whole update, so the token count that the loss is divided by needs no message.
        parts = split_update(self._store, update.pairs, max_tokens, division)
        mine = list(enumerate(parts))[self._worker.rank :: self._worker.world_size]
        nll = torch.zeros((), device=self._device)
        out = self._passes(mine, nll, update.tgt_tokens, step)
        place = [step, len(update.pairs), update.tgt_tokens, max_tokens, division]
        said = self._worker.exchange([*place, out, time_is_up, SIGNALS.index(interrupted())])
        for rank, (its_step, its_pairs, *rest) in enumerate(said):
            if [its_step, its_pairs, *rest[:3]] != place:
                here = f"rank {self._worker.rank} at update {step:,} of {len(update.pairs):,}"
                raise AiaynError(f"rank {rank} is at update {its_step:,} of {its_pairs:,} pairs, {here}", SAME_ON_ALL)
        outs, times, signals = list(zip(*said, strict=True))[len(place) :]
        return Agreement(any(outs), SIGNALS[max(signals)], bool(times[0])), nll

    def _passes(
        self, parts: list[tuple[int, Indices]], nll: Tensor, tgt_tokens: float, step: int, *, accumulate: bool = True
    ) -> bool:
        """Run micro-batches and add to nll; return whether memory ran out on the way."""
        try:
            for number, pairs in parts:
                if len(pairs) == 0:
                    continue
                # Dropout depends only on the update and the micro-batch's number in it, not on the device that runs
                # it, so that a continued run draws the same.
                torch.manual_seed(mixed_seed(self._config.seed, step, number))
                hidden, targets = teacher_forced(self._model, self._store, pairs, self._device)
                loss, batch_nll = smoothed_cross_entropy(
                    hidden, self._model.output.weight, targets, self._config.label_smoothing
                )
                (loss / tgt_tokens).backward()  # type: ignore[no-untyped-call]
                if accumulate:
                    self._optimizer.accumulate()
                nll += batch_nll
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            return False
        # The error is gone here, and with it the tensors that its frames held.
        self._optimizer.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return True
