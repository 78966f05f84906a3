"""Memory that a process holds together with those that it has started; Linux only, since it reads /proc."""

import contextlib
from pathlib import Path


def family_mebibytes(process: int) -> float:
    """Resident memory of a process and its children in MiB, what several of them hold counted once.

    Of memory of their own each has its share: one over the number of processes that hold a page. Files such as
    libraries are the same for all, and count as they do in the process that has most of them in memory.
    """
    family = [process, *_children(process)]
    own = sum(_kibibytes(member, "smaps_rollup", "Pss_Anon", "Pss_Shmem") for member in family)
    return (own + max(_kibibytes(member, "status", "RssFile") for member in family)) / 1024


def _children(process: int) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            if int(file.read_text(encoding="utf-8").rpartition(")")[2].split()[1]) == process:
                found.append(int(file.parent.name))
    return found


def _kibibytes(process: int, file: str, *names: str) -> int:
    """The sum of some fields; 0 where the process has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/{file}").read_text(encoding="utf-8").split("\n")
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return sum(int(fields[name].split()[0]) for name in names if name in fields)
    return 0
