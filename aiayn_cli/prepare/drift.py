"""Finds the line where two files stop being line-for-line translations because one side lost or gained lines.

Translations are long and short together, hold the same numbers, and are questions together. In a window of lines, these
agreements are summed for the lines as they are, and for one side shifted against the other by any number of lines up to
half a window. If the sides have drifted apart, the sum is far higher for the right shift than for none. Noise lowers
all sums alike and the order of the text has no effect, so one threshold fits all corpora. Unrelated sides give no
alarm.
"""

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aiayn_cli import logs
from aiayn_cli.errors import DataError

WINDOW_LINES = 1_024  # compared together
HOP_LINES = 512  # from one window to the next: an alarm comes at most WINDOW_LINES + HOP_LINES late
FEWEST_LINES = 256  # of a file; with fewer there is no alarm
ALARM = 8.0  # standard deviations by which a shift must agree better; aligned text stays below -3

_NEIGHBOURS = 10  # lines to each side whose mean length is subtracted, so that text sorted by length says nothing
_LEAST_VARIANCE = 0.02  # if hardly any line has a number, the few that do say little

Features = npt.NDArray[np.float64]


class DriftAlarm:
    """Watches two files that are read in lock-step; stops, or warns once."""

    def __init__(self, src_name: str, tgt_name: str, *, only_warn: bool = False) -> None:
        self._names = src_name, tgt_name
        self._only_warn = only_warn
        self._warned = False
        self._src = self._tgt = np.empty((0, 3))  # features of the lines to compare, and of a window before them
        self._first = 0  # lines before those
        self._next = 0  # where in the file the next window begins

    def add(self, src: Sequence[str | None], tgt: Sequence[str | None]) -> None:
        """Compare the next lines, equally many; None stands for one that cannot be read. Raises DataError."""
        if self._warned:
            return
        self._src = np.concatenate([self._src, line_features(src)])
        self._tgt = np.concatenate([self._tgt, line_features(tgt)])
        while self._next + WINDOW_LINES <= self._first + len(self._src) and not self._warned:
            self._compare(self._next, self._next + WINDOW_LINES)
            self._next += HOP_LINES
        done = max(self._next - WINDOW_LINES - self._first, 0)
        self._src, self._tgt, self._first = self._src[done:], self._tgt[done:], self._first + done

    def close(self) -> None:
        """Compare the last lines, or all of a file that is shorter than a window; raises as add()."""
        end = self._first + len(self._src)
        if not self._warned and end > self._next and end >= FEWEST_LINES:
            self._compare(max(end - WINDOW_LINES, 0), end)

    def _compare(self, start: int, stop: int) -> None:
        window = slice(start - self._first, stop - self._first)
        shift = find_shift(self._src[window], self._tgt[window])
        if not shift:
            return
        line = self._first + find_start(self._src, self._tgt, shift) + 1
        src_name, tgt_name = self._names
        distance = f"{abs(shift)} {'line' if abs(shift) == 1 else 'lines'} {'later' if shift > 0 else 'earlier'}"
        problem = f"{src_name}:{line}: from about here on, the translation of each line is {distance} in {tgt_name}"
        problem += ", judging by lengths, numbers and questions"
        if not self._only_warn:
            hint = "one side lost or gained lines there: repair it, or accept the files with "
            raise DataError(problem, hint + "--set data.drift_alarm=false")
        logs.warning(problem)
        self._warned = True


def line_features(lines: Sequence[str | None]) -> Features:
    """For each line, the log of its length, a sign made of its digits, and whether it is a question: [lines, 3]."""
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


def find_shift(src: Features, tgt: Features) -> int:
    """Find d if line n of the source belongs to line n + d of the target; 0 if they are aligned or nobody can tell."""
    n = len(src)
    size = 1 << (2 * n - 1).bit_length()  # so that nothing wraps around
    spectrum = np.conj(np.fft.rfft(_standardised(src), size, axis=0)) * np.fft.rfft(_standardised(tgt), size, axis=0)
    agreement = np.fft.irfft(spectrum.sum(axis=1), size) / np.sqrt(3 * n)  # by shift; noise has a deviation of 1
    most = n // 2
    others = np.concatenate([agreement[1 : most + 1], agreement[-most:]])
    best = int(np.argmax(others))
    if others[best] - agreement[0] < ALARM:
        return 0
    return best + 1 if best < most else best - 2 * most


def find_start(src: Features, tgt: Features, shift: int) -> int:
    """Find the line from which on the sides agree better when shifted."""
    a, b = _standardised(src), _standardised(tgt)
    shifted = np.zeros_like(b)
    if shift > 0:
        shifted[:-shift] = b[shift:]
    else:
        shifted[-shift:] = b[:shift]
    gain = np.cumsum((a * b).sum(axis=1) - (a * shifted).sum(axis=1))
    return int(np.argmax(np.concatenate([[0.0], gain])))


def _standardised(features: Features) -> Features:
    """Mean 0 and variance 1 or less over the lines."""
    values = features.copy()
    sums = np.concatenate([[0.0], np.cumsum(values[:, 0])])
    places = np.arange(len(values))
    first, last = np.maximum(places - _NEIGHBOURS, 0), np.minimum(places + _NEIGHBOURS + 1, len(values))
    values[:, 0] -= (sums[last] - sums[first]) / (last - first)
    values -= values.mean(axis=0)
    deviation = np.sqrt(np.maximum((values**2).mean(axis=0), _LEAST_VARIANCE))
    standardised: Features = np.clip(values / deviation, -3, 3)
    return standardised


_DIGITS = np.zeros(sys.maxunicode + 1, np.int32)  # a random-looking number for each decimal digit, in all scripts
for _digit in filter(str.isdecimal, map(chr, range(0x20000))):  # beyond, there are no digits
    _DIGITS[ord(_digit)] = pow(7, 11 + int(_digit), 1_000_003)
_QUESTION_MARKS = np.array([ord(mark) for mark in "?;？؟՞"], np.uint32)
