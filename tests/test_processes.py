import multiprocessing
import threading
import time
from collections.abc import Iterator

import process_work
import pytest

from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.processes import Processes


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
