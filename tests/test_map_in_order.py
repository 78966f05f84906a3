"""Work on many items gives the same results in the same order for any number of processes, and never hangs."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aiayn_cli import processes
from aiayn_cli.errors import DataError, ResumableError
from aiayn_cli.processes import MOST_WORKERS, available_cores, default_workers, map_in_order


def make_power(exponent: int) -> Callable[[int], int]:
    return lambda item: item**exponent


@pytest.mark.parametrize("n_items", [0, 1, 50])
def test_the_number_of_processes_changes_nothing(n_items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 5)
    for workers in (1, 3):
        found = list(map_in_order(make_power, (3,), iter(range(n_items)), workers))
        assert found == [(item, item**3) for item in range(n_items)]
    assert not multiprocessing.active_children()


def test_few_items_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 5)
    items = iter(range(100))
    for item, _ in map_in_order(make_power, (2,), items, 2):
        assert 99 - item - items.__length_hint__() <= 2 * processes.ITEMS_IN_FLIGHT


def test_a_process_that_is_killed_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 1)
    results = map_in_order(make_power, (2,), iter(range(99)), 2)
    next(results)
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(
        ResumableError, match=r"worker \d was ended by SIGKILL .*, perhaps for lack of memory"
    ) as caught:
        list(results)
    assert caught.value.hint == "try --workers 1; finished steps are kept"


def make_hearing() -> Callable[[int], tuple[bool, bool]]:
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])  # as it was when the process began
    return lambda item: (blocked, signal.getsignal(signal.SIGINT) is signal.SIG_IGN)


def test_processes_never_hear_ctrl_c_and_this_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 1)
    assert {heard for _, heard in map_in_order(make_hearing, (), iter(range(9)), 2)} == {(True, True)}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_an_error_in_a_process_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 1)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(map_in_order(make_power, (-1,), iter([1, 2, 0, 3]), 2))
    assert not multiprocessing.active_children()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import multiprocessing, os, signal\n"
        "from aiayn_cli import processes\n"
        "def make():\n"
        "    return str\n"
        "if __name__ == '__main__':\n"
        "    processes.ITEMS_WORTH_A_PROCESS = 1\n"
        "    results = processes.map_in_order(make, (), iter(range(99)), 2)\n"
        "    next(results)\n"
        "    print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    script = tmp_path / "killed.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(processes.__file__).parents[1])}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        children = [int(pid) for pid in process.stdout.readline().split()]
        process.wait(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert len(children) == 2
    deadline = time.monotonic() + 30
    while any(_is_running(pid) for pid in children):
        assert time.monotonic() < deadline, "the processes still wait for work"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_at_least_one_core_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    assert default_workers() == min(available_cores(), MOST_WORKERS)


def make_sleeper() -> Callable[[float], None]:
    return time.sleep


def test_an_interruption_does_not_wait_for_work_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 1)
    results = map_in_order(make_sleeper, (), iter([0.0, 300.0, 300.0, 300.0]), 2)
    next(results)
    results.close()  # type: ignore[attr-defined]  # what an exception in the loop over them comes to
    assert not multiprocessing.active_children()


def fail(problem: str) -> Callable[[int], int]:
    raise DataError(problem, "a way out")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_before_the_first_item_is_the_same_for_any_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 1)
    with pytest.raises(DataError, match="no package") as caught:
        list(map_in_order(fail, ("no package",), iter(range(9)), workers))
    assert caught.value.hint == "a way out"
