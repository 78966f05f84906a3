"""Many items on many processes: the same results in the same order, and never a hang; items read ahead."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import process_work
import pytest

from aiayn_cli import processes
from aiayn_cli.errors import AiaynError, DataError, ResumableError, UsageError
from aiayn_cli.processes import Processes, gather, map_in_order, read_ahead


def make_power(exponent: int) -> Callable[[int], int]:
    return lambda item: item**exponent


@pytest.mark.parametrize("n_items", [0, 1, 50])
def test_the_number_of_processes_changes_nothing(n_items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 5)
    for workers in (1, 2):
        items = iter(range(n_items))
        found = []
        for item, result in map_in_order(make_power, (3,), items, workers):
            found.append((item, result))
            assert n_items - len(found) - items.__length_hint__() < workers * processes.ITEMS_IN_FLIGHT  # few are held
        assert found == [(item, item**3) for item in range(n_items)]
    assert not multiprocessing.active_children()


def test_a_process_that_is_killed_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ITEMS_WORTH_A_PROCESS", 1)
    results = map_in_order(make_power, (2,), iter(range(99)), 2)
    next(results)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(
        ResumableError, match=r"worker \d was ended by SIGKILL .*, perhaps for lack of memory"
    ) as caught:
        list(results)
    assert caught.value.hint == "try --workers 1; finished steps are kept"


def assert_gone(children: list[int]) -> None:
    """Processes end within half a minute."""

    def is_running(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    deadline = time.monotonic() + 30
    while any(map(is_running, children)):
        assert time.monotonic() < deadline, "processes outlive their parent"
        time.sleep(0.05)


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


def start(*at_start: str) -> Processes[str, str, tuple[int, str]]:
    arguments = [(rank, act) for rank, act in enumerate(at_start)]
    return Processes(process_work.make, arguments, [f"process {rank + 1}" for rank in range(len(at_start))])


def test_results_come_in_the_order_of_the_items_whoever_is_faster_and_errors_in_their_place() -> None:
    items = ["sleep 0.3", *(f"item {number}" for number in range(20))]
    with start("", "") as processes:
        assert processes.info == "info of 0"
        found = list(processes.map(items))
        assert [item for item, _ in found] == items == [result for _, (_, result) in found]
        assert {rank for _, (rank, _) in found} == {0, 1}
        done: list[str] = []

        def take(items: list[str]) -> None:
            for item, _ in processes.map(items):
                done.append(item)

        with pytest.raises(AiaynError, match="error 3 is wrong") as error:
            take(["sleep 0.1", "b", "error 3", "c"])
        assert error.value.hint == "way out"
        assert done == ["sleep 0.1", "b"]
        with pytest.raises(RuntimeError, match="ZeroDivisionError: our own") as bug:
            take(["bug"])
        assert "process_work.py" in bug.value.__notes__[0]
    assert multiprocessing.active_children() == []


def test_processes_never_hear_ctrl_c_not_even_while_they_load_libraries() -> None:
    with start("", "") as processes:
        assert {result for _, (_, result) in processes.map(["deaf"] * 9)} == {"True"}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_result_is_given_before_the_next_item_is_there_and_few_items_are_taken_ahead() -> None:
    read = threading.Event()
    taken = 0

    def slow() -> Iterator[str]:
        yield "first"
        assert read.wait(20), "the first result was held back"
        yield "second"

    def many() -> Iterator[str]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield f"item {number}"

    with start("", "") as processes:
        results = processes.map(slow())
        assert next(results)[0] == "first"
        read.set()
        assert [item for item, _ in results] == ["second"]
        results = processes.map(many())
        for number in range(5):
            assert next(results)[0] == f"item {number}"
        time.sleep(0.2)  # nobody reads on
        assert taken <= 5 + 2 * 2 + 1


def test_a_process_that_dies_is_named_after_the_results_before_it() -> None:
    done: list[str] = []

    def take() -> None:
        with start("", "") as processes:
            for item, _ in processes.map(["a", "b", "kill", "sleep 60", "c", *"defghijk"]):
                done.append(item)

    with pytest.raises(AiaynError, match=r"process [12] was ended by SIGKILL \(PID \d+\)") as error:
        take()
    assert done == ["a", "b"]
    assert "--batch-tokens" in error.value.hint
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("act", "kind", "problem"),
    [
        ("usage", UsageError, "wrong usage"),
        ("kill", AiaynError, r"process 2 was ended by SIGKILL"),
        ("exit", AiaynError, r"process 2 ended with exit code 3"),
    ],
)
def test_what_fails_while_processes_get_ready_is_said_and_ends_all(
    act: str, kind: type[AiaynError], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        start("", act)
    assert multiprocessing.active_children() == []


def test_all_items_come_in_order() -> None:
    for ahead in (1, 2, 9):
        assert list(read_ahead(iter(range(7)), ahead)) == list(range(7))
    assert list(read_ahead(iter(()), 3)) == []


def test_items_are_made_by_another_thread_before_they_are_asked_for_and_not_all_at_once() -> None:
    made: list[int] = []
    makers = set()

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            makers.add(threading.current_thread())
            yield number

    ahead = read_ahead(items(), 3)
    assert next(ahead) == 0
    deadline = time.monotonic() + 10
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.01)
    assert made == [0, 1, 2, 3]
    ahead.close()  # type: ignore[attr-defined]
    assert len(makers) == 1
    assert not makers.pop().is_alive()


def test_gathered_items_come_in_order_in_groups_of_at_most_the_limit() -> None:
    blocks = [list(range(start, start + size)) for start, size in ((0, 7), (7, 0), (7, 1), (8, 30), (38, 2))]
    groups = list(gather(blocks, at_most=5))
    assert [item for group in groups for item in group] == list(range(40))
    assert all(1 <= len(group) <= 5 for group in groups)
    assert list(gather([[], []], at_most=3)) == []


def test_an_item_is_given_before_the_next_one_arrives() -> None:
    answered = threading.Event()

    def slow() -> Iterator[list[str]]:
        yield ["first"]
        assert answered.wait(timeout=20), "the first item was held back until the second came"
        yield ["second"]

    groups = gather(slow(), at_most=100)
    assert next(groups) == ["first"]
    answered.set()
    assert list(groups) == [["second"]]


def test_what_is_already_there_is_given_together() -> None:
    read_ahead = threading.Event()

    def fast() -> Iterator[list[int]]:
        yield [1]
        yield [2, 3]
        yield [4]
        read_ahead.set()
        yield [5]

    groups = gather(fast(), at_most=3)
    assert next(groups)[0] == 1
    assert read_ahead.wait(timeout=20)
    rest = list(groups)
    assert len(rest) <= 3
    assert [item for group in rest for item in group][-1] == 5


def test_reading_stays_a_bounded_distance_ahead() -> None:
    given = 0

    def endless() -> Iterator[list[int]]:
        nonlocal given
        while True:
            given += 1
            yield [given]

    groups = gather(endless(), at_most=2)
    for _ in range(9):
        next(groups)
    assert given <= 9 * 2 + 2 + 4 + 2


@pytest.mark.parametrize(
    "read",
    [lambda items: read_ahead(items, 4), lambda items: chain.from_iterable(gather(([item] for item in items), 1))],
)
def test_an_error_in_reading_comes_after_the_items_before_it(read: Callable[[Iterator[int]], Iterator[int]]) -> None:
    def broken() -> Iterator[int]:
        yield from (1, 2)
        raise OSError("the disk is gone")

    items = read(broken())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)


PARENT = """
import multiprocessing, os, signal, sys, threading, time
from aiayn_cli.processes import Processes
secret = object()
def work(item):
    return id(secret)
def make():
    return None, work
if __name__ == "__main__":
    threading.Thread(target=sys.stdin.buffer.read, daemon=True).start()
    time.sleep(0.2)
    pool = Processes(make, [(), ()], ["a", "b"], start=sys.argv[1])
    assert sys.argv[1] == "spawn" or pool.submit("item").result(20) == id(secret)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks on Linux alone, and looks into /proc")
@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_processes_start_while_a_thread_reads_stdin_a_fork_with_this_ones_memory_and_end_with_their_parent(
    how: str, tmp_path: Path
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(processes.__file__).parents[1])}
    command = [sys.executable, script, how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        children = [int(pid) for pid in process.stdout.readline().split()]
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert len(children) == 2
    assert_gone(children)
