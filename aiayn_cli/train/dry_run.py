"""`aiayn train --dry-run`: what a run will take, found out by a few updates that are thrown away."""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.data.batches import plan_updates, split_update
from aiayn_cli.device import free_memory, peak_memory
from aiayn_cli.train.session import Session
from aiayn_cli.train.start import disk_needed, finished
from aiayn_cli.train.trainer import Hooks

_WARM_UP_UPDATES = 2  # kernels are chosen and memory is taken
_LEAST_UPDATES, _ENOUGH_SECONDS = 3, 20.0  # that are measured


@dataclass(frozen=True)
class DryRunResult:
    """What `aiayn train --dry-run` prints.

    Attributes:
        batch_pairs, batch_src_tokens, batch_tgt_tokens: the largest micro-batch: pairs, and the longest of each side.
        max_tokens: padded tokens that a micro-batch may have, so that the largest fits.
        micro_batches: of the next update, on each device.
        memory_bytes: taken at most so far by one process, on its device.
        memory_free_bytes: still free there; None where nobody knows.
        checkpoint_bytes: of one checkpoint.
        disk_bytes: of all that are kept at once, with one being written.
        disk_free_bytes: where the run's folder is.
        updates: that were measured.
        tokens_per_second: target tokens without padding, over all devices.
        seconds_per_update: without validation and checkpoints.
        updates_left: of the run.
        hours: that these take.
    """

    batch_pairs: int
    batch_src_tokens: int
    batch_tgt_tokens: int
    max_tokens: int
    micro_batches: int
    memory_bytes: int
    memory_free_bytes: int | None
    checkpoint_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    updates: int
    tokens_per_second: float
    seconds_per_update: float
    updates_left: int
    hours: float

    def __str__(self) -> str:
        free = "" if self.memory_free_bytes is None else f", {self.memory_free_bytes / 1e9:,.2f} GB are free"
        parts = "1 micro-batch" if self.micro_batches == 1 else f"{self.micro_batches} micro-batches"
        return "\n".join(
            (
                f"largest batch  {self.batch_pairs:,} pairs of up to {self.batch_src_tokens:,} source and "
                f"{self.batch_tgt_tokens:,} target tokens; it fits, with {self.max_tokens:,} tokens in a micro-batch",
                f"memory         {self.memory_bytes / 1e9:,.2f} GB at most for each device{free}",
                f"disk           {self.disk_bytes / 1e9:,.2f} GB for checkpoints of {self.checkpoint_bytes / 1e9:,.2f} "
                f"GB, {self.disk_free_bytes / 1e9:,.2f} GB are free",
                f"speed          {self.tokens_per_second:,.0f} target tokens/s, {self.seconds_per_update:.3g} s an "
                f"update of {parts} on each device (mean of {self.updates} updates)",
                f"time           {self.hours:,.2f} hours for {self.updates_left:,} updates, without validation",
            )
        )


def try_out(session: Session) -> DryRunResult:
    """Run the largest batch and a few updates, and leave no trace.

    Raises:
        AiaynError: the run could not start, or not even one pair fits into memory.
    """
    state = session.start_state(touch=False)
    recipe = session.recipe
    if enough := finished(recipe.training, state):
        logs.notice(f"{session.run} {enough}")
    marks: list[tuple[float, int, int]] = []  # when each update ended: seconds, updates, target tokens

    def interrupted() -> str:
        marks.append((time.perf_counter(), trainer.state.step, trainer.state.tgt_tokens))
        measured = len(marks) - 1 - _WARM_UP_UPDATES
        is_enough = measured >= _LEAST_UPDATES and marks[-1][0] - marks[_WARM_UP_UPDATES][0] > _ENOUGH_SECONDS
        return "SIGINT" if is_enough or measured >= 50 else ""

    quiet = replace(
        recipe.training, max_updates=state.step + 1_000, save_every_steps=1 << 40, save_every_minutes=0.0, patience=0,
        log_every_steps=1 << 40,
    )  # fmt: skip
    trainer = session.trainer(
        state, Hooks(save=lambda *_: None, bleu=None, interrupted=interrupted), config=quiet, valid=None
    )
    with logs.progress("trying out", unit="updates") as progress:
        trainer.train(progress)
    pairs, src, tgt = trainer.largest_batch()
    (began, first, tokens_before), (ended, last, tokens_after) = marks[_WARM_UP_UPDATES], marks[-1]
    seconds = (ended - began) / max(last - first, 1)
    checkpoint, disk = disk_needed(session.optimizer.weights().values(), recipe.training)
    left = max(0, recipe.training.max_updates - state.step)
    max_tokens = trainer.state.max_tokens or recipe.training.max_tokens
    update = next(
        plan_updates(
            session.data.train,
            recipe.training.batch_tokens,
            recipe.training.seed,
            state.position,
            trainer.state.pool_pairs,
        )
    )
    micro_batches = len(split_update(session.data.train, update.pairs, max_tokens, state.division))
    return DryRunResult(
        batch_pairs=pairs,
        batch_src_tokens=src,
        batch_tgt_tokens=tgt,
        max_tokens=max_tokens,
        micro_batches=micro_batches // session.worker.world_size,
        memory_bytes=peak_memory(session.device.device),
        memory_free_bytes=free_memory(session.device.device),
        checkpoint_bytes=checkpoint,
        disk_bytes=disk,
        disk_free_bytes=shutil.disk_usage(_existing(session.run)).free,
        updates=last - first,
        tokens_per_second=(tokens_after - tokens_before) / (ended - began),
        seconds_per_update=seconds,
        updates_left=left,
        hours=left * seconds / 3600,
    )


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
