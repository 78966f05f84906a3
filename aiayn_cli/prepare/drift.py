"""Finds the place where two files stop being line for line translations: one side lost or gained lines there.

Lines that translate each other are long and short together, hold the same numbers, and are questions together. In a
window of lines these agreements are summed for the lines as they stand, and for one side moved against the other by
any number of lines up to half a window. Where the sides are moved against each other, that sum is far higher for the
right move than for none. Noisy pairs lower all sums alike, and text in another order changes nothing, so that the
alarm needs no threshold of its own for each corpus. Text whose sides have nothing to do with each other gives none.
"""

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aiayn_cli import logs
from aiayn_cli.errors import DataError

WINDOW_LINES = 1_024  # looked at together
HOP_LINES = 512  # from one window to the next: an alarm comes at most WINDOW_LINES + HOP_LINES after the place
FEWEST_LINES = 256  # of a file; fewer say too little
ALARM = 8.0  # standard deviations by which another place must agree better; text in step has less than -3

_NEIGHBOURS = 10  # lines to each side whose mean length is subtracted, so that text sorted by length says nothing
_LEAST_VARIANCE = 0.02  # where hardly any line has a number, the few that do say little

Features = npt.NDArray[np.float64]


class DriftAlarm:
    """Follows two files that are read in lock-step.

    Args:
        src_name: the source side's file, for messages.
        tgt_name: the target side's file.
        only_warn: say it once instead of stopping.
    """

    def __init__(self, src_name: str, tgt_name: str, *, only_warn: bool = False) -> None:
        self._names = src_name, tgt_name
        self._only_warn = only_warn
        self._warned = False
        self._src = self._tgt = np.empty((0, 3))  # the lines that are not looked at yet, and a window before them
        self._first = 0  # lines before those
        self._next = 0  # where in the file the next window begins

    def add(self, src: Sequence[str | None], tgt: Sequence[str | None]) -> None:
        """Look at the next lines.

        Args:
            src: lines of the source side; None for one that cannot be read.
            tgt: as many of the target side.
        Raises:
            DataError: the sides are moved against each other; the line is named where that began.
        """
        if self._warned:
            return
        self._src = np.concatenate([self._src, line_features(src)])
        self._tgt = np.concatenate([self._tgt, line_features(tgt)])
        while self._next + WINDOW_LINES <= self._first + len(self._src) and not self._warned:
            self._look(self._next, self._next + WINDOW_LINES)
            self._next += HOP_LINES
        done = max(self._next - WINDOW_LINES - self._first, 0)
        self._src, self._tgt, self._first = self._src[done:], self._tgt[done:], self._first + done

    def close(self) -> None:
        """Look at the last lines, or at all of a file that is shorter than a window."""
        end = self._first + len(self._src)
        if not self._warned and end > self._next and end >= FEWEST_LINES:
            self._look(max(end - WINDOW_LINES, 0), end)

    def _look(self, start: int, stop: int) -> None:
        here = slice(start - self._first, stop - self._first)
        moved = find_move(self._src[here], self._tgt[here])
        if moved:
            place = self._first + find_start(self._src, self._tgt, moved) + 1
            src_name, tgt_name = self._names
            lines, where = "line" if abs(moved) == 1 else "lines", "later" if moved > 0 else "earlier"
            problem = (
                f"{src_name}:{place}: from about here on, what belongs to a line stands {abs(moved)} {lines} {where} "
                f"in {tgt_name}, to judge by lengths, numbers and questions"
            )
            if not self._only_warn:
                hint = "one side lost or gained lines there: repair it, or take the files as they are with "
                raise DataError(problem, hint + "--set data.drift_alarm=false")
            logs.warning(problem)
            self._warned = True


def line_features(lines: Sequence[str | None]) -> Features:
    """What is compared of each line: log of its length, a sign for its digits, whether it asks: [lines, 3]."""
    text = "\n".join(line or "" for line in lines) + "\n"
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    ends = np.cumsum(np.fromiter((len(line or "") + 1 for line in lines), np.int64, len(lines)))  # after each line
    features = np.zeros((len(lines), 3))
    features[:, 0] = np.log(np.diff(ends, prepend=0))
    weights = _DIGITS[codes]
    digits = np.flatnonzero(weights)
    owners = np.searchsorted(ends, digits, side="right")
    sums = np.bincount(owners, weights[digits], minlength=len(lines)).astype(np.int64)
    features[:, 1] = np.where(sums > 0, 1 - 2 * (sums & 1), 0)  # the order of digits and what separates them is free
    features[:, 2] = np.isin(codes[ends - 2], _QUESTION_MARKS) & (np.diff(ends, prepend=0) > 1)
    return features


def find_move(src: Features, tgt: Features) -> int:
    """Find by how many lines the target side is moved against the source side.

    Args:
        src: [lines, 3].
        tgt: [lines, 3].
    Returns:
        d where line n of the source belongs to line n + d of the target; 0 where they are in step or nobody can tell.
    """
    n = len(src)
    size = 1 << (2 * n - 1).bit_length()  # room on both sides, so that nothing wraps around
    spectrum = np.conj(np.fft.rfft(_standardised(src), size, axis=0)) * np.fft.rfft(_standardised(tgt), size, axis=0)
    agreement = np.fft.irfft(spectrum.sum(axis=1), size) / np.sqrt(3 * n)  # by move; noise has a deviation of 1
    most = n // 2
    others = np.concatenate([agreement[1 : most + 1], agreement[-most:]])
    best = int(np.argmax(others))
    if others[best] - agreement[0] < ALARM:
        return 0
    return best + 1 if best < most else best - 2 * most


def find_start(src: Features, tgt: Features, moved: int) -> int:
    """Find the line from which on the sides agree better when moved: [lines, 3] each, a number of lines -> a line."""
    a, b = _standardised(src), _standardised(tgt)
    in_step = (a * b).sum(axis=1)
    shifted = np.zeros_like(b)
    if moved > 0:
        shifted[:-moved] = b[moved:]
    else:
        shifted[-moved:] = b[:moved]
    gain = np.cumsum(in_step - (a * shifted).sum(axis=1))
    return int(np.argmax(np.concatenate([[0.0], gain])))


def _standardised(features: Features) -> Features:
    """Mean 0 and variance 1 or less over the lines: [lines, 3]."""
    values = features.copy()
    values[:, 0] -= _mean_of_neighbours(values[:, 0])
    values -= values.mean(axis=0)
    deviation = np.sqrt(np.maximum((values**2).mean(axis=0), _LEAST_VARIANCE))
    standardised: Features = np.clip(values / deviation, -3, 3)
    return standardised


def _mean_of_neighbours(values: Features) -> Features:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    first, last = np.maximum(places - _NEIGHBOURS, 0), np.minimum(places + _NEIGHBOURS + 1, len(values))
    means: npt.NDArray[np.float64] = (sums[last] - sums[first]) / (last - first)
    return means


def _digit_weights() -> npt.NDArray[np.int32]:
    """A random-looking number for each decimal digit, the same for all scripts; 0 for all other characters."""
    weights = np.zeros(sys.maxunicode + 1, np.int32)
    for code in range(0x20000):  # beyond, there are no digits
        if chr(code).isdecimal():
            weights[code] = pow(7, 11 + int(chr(code)), 1_000_003)
    return weights


_DIGITS = _digit_weights()
_QUESTION_MARKS = np.array([ord(mark) for mark in "?;？؟՞"], np.uint32)
