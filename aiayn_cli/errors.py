"""What the user can fix: one exception class with a problem and a way out, printed in one place (app.main)."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class AiaynError(Exception):
    """Something the user can fix; any other exception is our own bug and keeps its traceback.

    The problem is one line: what is wrong, where (file and line), with the value found. The hint says what to do.
    """

    exit_code = 1

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class ConfigError(AiaynError):
    """A setting with an impossible value; the reader of the recipe adds file and line.

    The key is the setting's dotted name, such as "model.dropout".
    """

    def __init__(self, problem: str, hint: str = "", key: str = "") -> None:
        super().__init__(problem, hint)
        self.key = key


class DataError(AiaynError):
    """Text or prepared data that cannot be used as it is."""


class ResumableError(DataError):
    """The work stopped, but not because of the data: the same command resumes it."""


class CheckpointError(AiaynError):
    """A checkpoint that is missing, damaged, or does not belong to what it is used with."""


class UsageError(AiaynError):
    """A command line that contradicts itself."""

    exit_code = 2


class Terminated(AiaynError):
    """SIGTERM arrived and the work was saved."""

    exit_code = 143  # as the shell counts signals


class SaidElsewhere(AiaynError):
    """Another process of the same training run prints the message; this one exits silently."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("another process has said what is wrong")
        self.exit_code = exit_code


def nearest_path(path: Path, known: Iterable[Path]) -> str:
    """Write the hint for a path that does not exist: the one whose name is nearest, or "" if none is near."""
    paths = {each.name: each for each in known}
    near = get_close_matches(path.name, paths, n=1, cutoff=0.6)
    return f"did you mean {paths[near[0]]}?" if near else ""


def did_you_mean(name: str, known: Iterable[str], unlisted: Iterable[str] = ()) -> str:
    """Write the hint for an unknown name: "did you mean base?", the nearest, or all known ones if none is near.

    `unlisted` are further names, which may be the nearest one, but would make the list too long.
    """
    names = list(known)
    if begun := [each for each in names if name and each.startswith(f"{name}-")]:
        return f"did you mean {' or '.join(begun)}?"
    for spelling in (name, name.casefold()):  # to difflib, upper and lower case have nothing in common
        if near := get_close_matches(spelling, [*names, *unlisted], n=1, cutoff=0.5):
            return f"did you mean {near[0]}?"
    return f"available: {', '.join(names)}" if names else ""
