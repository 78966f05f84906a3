"""The records of a run for TensorBoard, through the optional package tensorboard."""

import importlib
from pathlib import Path
from typing import Any

from aiayn_cli.checkpoint.metrics import Record
from aiayn_cli.errors import AiaynError

_SHOWN = {  # numbers of each event; the others are for programs
    "train": ("loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second", "mfu", "flops"),
    "validation": ("loss", "perplexity", "bleu"),
}


def load_tensorboard() -> Any:
    """torch.utils.tensorboard, which needs the package tensorboard.

    Raises:
        AiaynError: it is not installed.
    """
    try:
        importlib.import_module("tensorboard")
        return importlib.import_module("torch.utils.tensorboard")  # here, because it takes seconds and few need it
    except ImportError as error:
        raise AiaynError(
            f"--tensorboard needs a package that is not installed ({error})",
            "pip install 'aiayn-cli[tensorboard]', or look at report.html in the run's folder",
        ) from error


class TensorBoardLog:
    """Listens to a MetricsLog and writes what TensorBoard draws.

    Args:
        folder: for `tensorboard --logdir`; made if it is not there.
        after_step: updates done; what an earlier call drew of later ones goes from the picture.
    """

    def __init__(self, folder: Path, after_step: int) -> None:
        self._writer = load_tensorboard().SummaryWriter(folder, purge_step=after_step + 1 if after_step else None)

    def write(self, record: Record) -> None:
        """Draw the numbers of a train or validation record, and the translations of a samples record."""
        event, step = record["event"], record.get("step")
        for name in _SHOWN.get(event, ()):
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
