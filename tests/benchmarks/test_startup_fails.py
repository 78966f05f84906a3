"""The benchmark of the start says that a command failed, and neither waits for ever nor takes that for an answer."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
try:
    from startup import until_answered, until_ready
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("measure", [until_ready, until_answered])
def test_a_command_that_fails_is_not_measured(measure: Callable[[Path], float], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="translate ended"):
        measure(tmp_path / "nothing")
