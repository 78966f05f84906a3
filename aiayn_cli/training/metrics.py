"""metrics.jsonl: one JSON object a line, appended, whole lines only."""

import json
import math
import os
import time
from pathlib import Path
from typing import Any


class MetricsLog:
    """The record of a run; a continued run goes on in the same file.

    Args:
        path: the file; None writes nothing (ranks other than 0).
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is not None and path.is_file() and _ends_within_a_line(path):
            with path.open("a", encoding="utf-8") as file:  # else the next record would be lost with the broken one
                file.write("\n")

    def write(self, event: str, **values: Any) -> None:
        """Append one line: the event, the time in Unix seconds, and the values (NaN and infinity as null)."""
        if self._path is None:
            return
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        line = json.dumps({"event": event, "time": round(time.time(), 3), **finite}, ensure_ascii=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _ends_within_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        return file.read() not in (b"", b"\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All records of a metrics.jsonl; a line that a crash cut short is left out."""
    records = []
    for line in path.read_bytes().split(b"\n"):
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records
