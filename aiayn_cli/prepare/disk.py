"""How much disk `prepare` takes on the way, estimated before it starts."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from aiayn_cli.errors import DataError
from aiayn_cli.prepare.sources import Origin

# Bytes of text in a byte of a compressed file, for European languages; about.
_EXPANSION = {".gz": 3.2, ".tgz": 3.2, ".zip": 3.2, ".zst": 3.5, ".xz": 4.0, ".bz2": 4.0}
# An archive may hold far more than what is read of it. Where the number of pairs is known, this is the most that they
# take: bytes of both sides, on the average; UN and 10^9 of WMT14 have the longest, with some 400.
_PAIR_BYTES = 500
# For each byte of text: clean text and hashes; the raw text where that is kept beside the processed one; token ids, as
# often as the weight says.
_TEXT, _RAW_TEXT, _IDS = 1.0, 1.2, 1.0


def estimate_disk(origins: Iterable[Origin], *, processed: bool) -> int:
    """Estimate how many bytes the work takes at most, together with its result.

    Args:
        origins: all that is read; its files are here.
        processed: whether text is normalised or tokenised.
    """
    needed = 0.0
    archives: dict[str, float] = {}  # those of which nobody knows how much is read
    for origin in origins:
        taken = _TEXT + _RAW_TEXT * processed + _IDS * origin.weight
        for _, each in origin.pairs.inputs():
            entry = each.describe()
            file = entry.get("read", entry)
            name = str(file.get("file") or file.get("path", ""))
            size = file.get("bytes", 0) * _EXPANSION.get(Path(name).suffix.lower(), 1.0) * taken
            if origin.expected.number is not None:
                needed += min(size, origin.expected.number * _PAIR_BYTES / 2 * taken)
            elif "read" in entry:
                archives[name] = max(archives.get(name, 0.0), size)
            else:
                needed += size
    return int(needed + sum(archives.values()))


def check_disk(folder: Path, needed: int) -> None:
    """Make sure that there is room for so many bytes.

    Raises:
        DataError: there is not; both numbers are named.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"{folder.parent} has {size_text(free)} free, but preparing takes about {size_text(needed)}",
            "free some space, or give an --out on another disk",
        )


def size_text(size: int) -> str:
    """Write a number of bytes as MB or GB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
