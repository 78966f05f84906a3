"""Finds the line where two files stop being line-for-line translations because one side lost or gained lines.

Translations are long and short together, hold the same numbers, and are questions together. In a window of lines, these
agreements are summed for the lines as they are, and for one side shifted by any number of lines up to half a window. If
the sides have drifted apart, the right shift has a far higher sum. Noise lowers all sums alike and the order of the
text has no effect, so one threshold fits all corpora. Unrelated sides give no alarm.
"""

import sys
from collections.abc import Iterator, Sequence

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
Sides = tuple[list[str | None], list[str | None]]


def watch(chunks: Iterator[Sides], src_name: str, tgt_name: str, *, only_warn: bool = False) -> Iterator[Sides]:
    """Pass on the lines of two files read in lock-step; where they drift apart, raise DataError or warn once.

    Both sides of a chunk have as many lines; None stands for one that cannot be read.
    """
    src = tgt = np.empty((0, 3))  # features of the lines to compare, and of a window before them
    first = start = 0  # lines before those; where in the file the next window begins
    for lines in chunks:
        src, tgt = np.concatenate([src, line_features(lines[0])]), np.concatenate([tgt, line_features(lines[1])])
        while start + WINDOW_LINES <= first + len(src):
            window = slice(start - first, start - first + WINDOW_LINES)
            if shift := find_shift(src[window], tgt[window]):
                _alarm(src_name, tgt_name, first + find_start(src, tgt, shift) + 1, shift, only_warn)
                yield lines
                yield from chunks
                return
            start += HOP_LINES
        done = max(start - WINDOW_LINES - first, 0)
        src, tgt, first = src[done:], tgt[done:], first + done
        yield lines
    end = first + len(src)
    if end > start and end >= FEWEST_LINES:  # the last lines, or all of a file that is shorter than a window
        window = slice(max(end - WINDOW_LINES, 0) - first, end - first)
        if shift := find_shift(src[window], tgt[window]):
            _alarm(src_name, tgt_name, first + find_start(src, tgt, shift) + 1, shift, only_warn)


def _alarm(src_name: str, tgt_name: str, line: int, shift: int, only_warn: bool) -> None:
    distance = f"{logs.counted(abs(shift), 'line')} {'later' if shift > 0 else 'earlier'}"
    problem = f"{src_name}:{line}: from about here on, translations are {distance} in {tgt_name}"
    problem += " (by lengths, numbers and questions)"
    if not only_warn:
        hint = "one file lost or gained lines there: repair it, or turn the check off with --set data.drift_alarm=false"
        raise DataError(problem, hint)
    logs.warning(problem)


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
    """Find d if line n of the source belongs to line n + d of the target; 0 if they are aligned, or if in doubt."""
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
