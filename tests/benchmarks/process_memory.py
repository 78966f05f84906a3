"""Memory that a process holds together with those that it has started; Linux only, since it reads /proc."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def repeating(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function every so many seconds, in a thread, while something else is done."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(seconds):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def family_mebibytes(process: int) -> float:
    """Resident memory of a process and all that it started in MiB, what several of them hold counted once.

    Of memory of their own each has its share: one over the number of processes that hold a page. Files such as
    libraries are the same for all, and count as they do in the process that has most of them in memory.
    """
    family = _family(process)
    own = sum(_kibibytes(member, "smaps_rollup", "Pss_Anon", "Pss_Shmem") for member in family)
    return (own + max(_kibibytes(member, "status", "RssFile") for member in family)) / 1024


def _family(process: int) -> list[int]:
    children: set[int] = set()
    with contextlib.suppress(OSError):  # it has just ended
        for task in Path(f"/proc/{process}/task").iterdir():
            children.update(map(int, (task / "children").read_text(encoding="ascii").split()))
    return [process, *(member for child in sorted(children) for member in _family(child))]


def _kibibytes(process: int, file: str, *names: str) -> int:
    """The sum of some fields; 0 where the process has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/{file}").read_text(encoding="utf-8").split("\n")
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return sum(int(fields[name].split()[0]) for name in names if name in fields)
    return 0
