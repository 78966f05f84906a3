"""How much disk `prepare` takes on the way, estimated before it starts."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aiayn_cli.errors import DataError

# Bytes of text in a byte of a compressed file, for European languages; about.
_EXPANSION = {".gz": 3.2, ".tgz": 3.2, ".zip": 3.2, ".zst": 3.5, ".xz": 4.0, ".bz2": 4.0}
# Clean text, hashes, and the token ids of what of the text is not deleted yet, for each byte of text.
_TAKEN, _TAKEN_PROCESSED = 2.0, 3.2  # the second where the raw text is kept beside the processed one


def estimate_disk(inputs: Iterable[Mapping[str, Any]], *, processed: bool) -> int:
    """Estimate how many bytes the work takes at most, together with its result.

    Args:
        inputs: as `Source.describe` gives them.
        processed: whether text is normalised or tokenised.
    """
    sizes: dict[str, float] = {}
    for entry in inputs:
        file = entry.get("read", entry)  # an archive may have many members
        name = str(file.get("file") or file.get("path", ""))
        sizes[name] = file.get("bytes", 0) * _EXPANSION.get(Path(name).suffix.lower(), 1.0)
    return int(sum(sizes.values()) * (_TAKEN_PROCESSED if processed else _TAKEN))


def check_disk(folder: Path, needed: int) -> None:
    """Make sure that there is room for so many bytes.

    Raises:
        DataError: there is not; both numbers are named.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"{folder.parent} has {free / 1e9:,.1f} GB free, but preparing takes about {needed / 1e9:,.1f} GB",
            "free some space, or give an --out on another disk",
        )
