"""metrics.jsonl: one JSON object per line, appended, complete lines only.

Events and their values, in addition to `event` and `time` (Unix seconds); NaN and infinity are null:

    train       step, epoch, seconds (of updates so far), loss and perplexity (nats per target token, without
                smoothing, since the last record), learning_rate, gradient_norm (before clipping), tokens_per_second
                (target tokens without padding), mfu (0 to 1), pairs, flops (counted so far), skipped
                (updates so far)
    validation  step, loss, perplexity, bleu (null if not computed), best, validation_seconds, seconds
    samples     step, sources, references, translations: lists of the same length; signature (of the BLEU)
    checkpoint  step, path
    skipped     step, gradient_norm (before clipping)
    memory      step, max_tokens: smaller micro-batches from here on, since memory ran out
    start       step, updates, run_flops (estimated, of all updates), matmul_rate (FLOP/s of one device), devices,
                device: once for each call
    resume      step: the updates after it, recorded above, were lost and are repeated
    rollback    step, undone: training returned from update `undone` to `step`; of the updates between, recorded above,
                only time and operations count
"""

import importlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiayn_cli.errors import AiaynError

Record = dict[str, Any]

# Values without which a record cannot be shown.
_SHOWN = {
    "train": ("step", "epoch", "seconds", "loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second"),
    "validation": ("step", "loss", "perplexity", "bleu", "best", "seconds"),
    "samples": ("step", "sources", "references", "translations"),
    "start": ("step", "updates", "run_flops"),
}
_DRAWN = {  # by TensorBoard
    "train": ("loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second", "mfu", "flops"),
    "validation": ("loss", "perplexity", "bleu"),
}
_LISTS = ("sources", "references", "translations")
_COUNTS = ("step", "epoch", "pairs", "skipped", "max_tokens", "updates", "devices", "undone")
_NUMBERS = (
    *("time", "seconds", "loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second", "mfu", "flops"),
    *("bleu", "validation_seconds", "run_flops", "matmul_rate"),
)
_FITS: dict[str, Callable[[Any], bool]] = {  # whether a value can be that of its name
    **dict.fromkeys(("event", "path", "device", "signature"), lambda v: isinstance(v, str)),
    **dict.fromkeys(_LISTS, lambda v: isinstance(v, list) and all(isinstance(each, str) for each in v)),
    **dict.fromkeys(_COUNTS, lambda v: type(v) is int and 0 <= v < 1 << 63),
    **dict.fromkeys(_NUMBERS, lambda v: v is None or (type(v) in (int, float) and abs(v) < 1e300)),
    "best": lambda v: isinstance(v, bool),
}


class MetricsLog:
    """The record of a run, to which a resumed run appends; without a path (ranks other than 0) nothing is written."""

    def __init__(self, path: Path | None, listeners: Sequence[Callable[[Record], None]] = ()) -> None:
        self._path, self._listeners = path, listeners
        self.latest: dict[str, Record] = {}  # of each event, including those of earlier calls
        if path is not None and path.is_file():
            if path.read_bytes()[-1:] not in (b"", b"\n"):
                with path.open("a", encoding="utf-8") as file:  # else the next record would be lost with the broken one
                    file.write("\n")
            self.latest = {record["event"]: record for record in standing(read_metrics(path))}

    def write(self, event: str, **values: Any) -> None:
        """Append one line: the event, the time in Unix seconds, and the values (NaN and infinity as null)."""
        if self._path is None:
            return
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        record = {"event": event, "time": round(time.time(), 3), **finite}
        line = json.dumps(record, ensure_ascii=False)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:  # a full disk's error names no file
            raise OSError(error.errno, error.strerror, str(self._path)) from error
        self.latest[event] = record
        for listener in self._listeners:
            listener(record)


def read_metrics(path: Path) -> list[Record]:
    """All records of a metrics.jsonl, if it exists, without lines that are truncated or not ours."""
    records = []
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and _is_ours(record):
            records.append(record)
    return records


def is_complete(record: Record) -> bool:
    """Whether a record has all values that are shown for its event."""
    return all(name in record for name in _SHOWN.get(record["event"], ())) and record.get("seconds", 0) is not None


def _is_ours(record: Record) -> bool:
    if "event" not in record or not all(_FITS[name](value) for name, value in record.items() if name in _FITS):
        return False
    return "step" in record or record["event"] not in ("resume", "rollback")


def standing(records: Sequence[Record]) -> list[Record]:
    """Records without those of later updates that a resume or rollback undid, and with one validation of an update."""
    kept: list[Record] = []
    for record in records:
        if record["event"] in ("resume", "rollback"):
            kept = [earlier for earlier in kept if earlier.get("step", 0) <= record["step"]]
        kept.append(record)
    last = {record.get("step"): record for record in kept if record["event"] == "validation"}
    return [record for record in kept if record["event"] != "validation" or record is last[record.get("step")]]


def perplexity(loss: float) -> float:
    """exp(loss), or infinity if that is too large for a float."""
    return math.exp(loss) if loss < 700 else math.inf if loss == loss else math.nan


def progress_facts(epoch: int, train: Mapping[str, float], validation: Mapping[str, Any] | None) -> list[str]:
    """What the progress line shows in addition to the number of updates; the epoch counts from 0."""
    facts = [f"epoch {epoch + 1}", f"loss {train['loss']:.3f}", f"perplexity {train['perplexity']:.4g}"]
    facts += [f"rate {train['learning_rate']:.3g}", f"{train['tokens_per_second']:,.0f} target tokens/s"]
    if math.isfinite(train["mfu"]):
        facts.append(f"MFU {100 * train['mfu']:.0f} %")
    if validation is not None and validation.get("bleu") is not None:
        facts.append(f"BLEU {validation['bleu']:.1f} at {validation['step']:,}")
    return facts


def load_tensorboard() -> Any:
    try:
        importlib.import_module("tensorboard")
        return importlib.import_module("torch.utils.tensorboard")  # here, because it takes seconds and few use it
    except ImportError as error:
        hint = "pip install '.[tensorboard]' in a checkout, or look at report.html in the run's folder"
        raise AiaynError(f"--tensorboard needs a package that is not installed ({error})", hint) from error


class TensorBoardLog:
    """Writes a MetricsLog's records for TensorBoard, replacing what it has of updates after that step."""

    def __init__(self, folder: Path, after_step: int) -> None:
        self._writer = load_tensorboard().SummaryWriter(folder, purge_step=after_step + 1 if after_step else None)

    def write(self, record: Record) -> None:
        event, step = record["event"], record.get("step")
        for name in _DRAWN.get(event, ()):
            if record.get(name) is not None:
                self._writer.add_scalar(f"{event}/{name}", record[name], step, record["time"])
        if event == "samples":
            for number, text in enumerate(record["translations"], start=1):
                source, reference = record["sources"][number - 1], record["references"][number - 1]
                # Indented lines are shown as they are; without that, TensorBoard would read them as Markdown.
                lines = f"    source       {source}\n    reference    {reference}\n    translation  {text}"
                self._writer.add_text(f"sample {number}", lines, step, record["time"])
        if event == "checkpoint":  # the last record of every call
            self._writer.flush()
