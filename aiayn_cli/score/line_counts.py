"""A metric's counts for each line of each system, on several cores where there is enough to do.

sacreBLEU keeps the n-grams of all references; here a line's are dropped when all systems were compared with it, which
is faster and takes little memory.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

Counts = list[float]
_PARTS = 4  # for each process, since some lines take longer than others

# What forked processes find here: what to do, and who waits for it.
_count: Callable[[range], list[list[Counts]]] | None = None
_parent = 0


def count_lines(
    metric: Any,
    references: Sequence[Sequence[str]],
    systems: Sequence[Sequence[str]],
    workers: int | None = 1,
    lines_worth_a_process: int = 1,
) -> list[list[Counts]]:
    """Compare each line of each system with its references.

    Args:
        metric: one of sacreBLEU's.
        references: one or more translations of the whole.
        systems: each with as many lines.
        workers: processes; 1 does all the work in this one; None takes as many as there are cores. They are forks, so
            that only a caller without threads may ask for them.
        lines_worth_a_process: fewer are counted before another process has started.
    Returns:
        For each system, the counts of each line.
    """

    def count(lines: range) -> list[list[Counts]]:
        # The three steps of which sacreBLEU's own loop consists; each of its metrics defines them.
        prepare, extract = metric._preprocess_segment, metric._extract_reference_info
        compare = metric._compute_segment_statistics
        counts: list[list[Counts]] = [[] for _ in systems]
        for line in lines:
            found = extract([prepare(reference[line]) for reference in references])
            for of_system, hypotheses in zip(counts, systems, strict=True):
                of_system.append(compare(prepare(hypotheses[line]), found))
        return counts

    total = len(references[0])
    if sys.platform != "linux":  # elsewhere a fork is unsafe, and a fresh process slow
        return count(range(total))
    workers = min(workers or len(os.sched_getaffinity(0)), total // lines_worth_a_process)
    if workers < 2:
        return count(range(total))
    global _count, _parent
    _count, _parent = count, os.getpid()
    ends = [total * number // (workers * _PARTS) for number in range(workers * _PARTS + 1)]
    parts = [range(start, end) for start, end in pairwise(ends)]
    try:
        with multiprocessing.get_context("fork").Pool(workers, initializer=_leave_ctrl_c_to_parent) as pool:
            counted = pool.map(_count_in_fork, parts, chunksize=1)
    finally:
        _count = None
    return [[counts for part in counted for counts in part[number]] for number in range(len(systems))]


def _count_in_fork(lines: range) -> list[list[Counts]]:
    assert _count is not None
    counted = _count(lines)
    if os.getppid() != _parent:  # it was killed: nobody reads this, and a traceback of the pipe would tell nothing
        os._exit(1)
    return counted


def _leave_ctrl_c_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends its processes, and says so once
