import threading
import time

import pytest
import torch

from aiayn_cli.translate.search.workers import Stopped, run_together


def test_results_come_in_the_order_of_the_tasks_and_threads_are_shared_out() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        barrier = threading.Barrier(2, timeout=20)

        def task(number: int) -> tuple[int, int]:
            barrier.wait()  # both run at once
            return number, torch.get_num_threads()

        found = run_together([lambda stop: task(0), lambda stop: task(1)], 1)
        assert found == [(0, 1), (1, 1)]
        assert torch.get_num_threads() == 2
        assert run_together([lambda stop: torch.get_num_threads()], 8) == [2]
    finally:
        torch.set_num_threads(before)


def test_a_failure_ends_the_other_tasks_and_is_raised() -> None:
    ended = []

    def wait(stop: threading.Event) -> None:
        while not stop.is_set():
            time.sleep(0.001)
        ended.append(True)
        raise Stopped

    def fail(stop: threading.Event) -> None:
        raise ZeroDivisionError

    for tasks in ([wait, fail], [fail, wait]):
        with pytest.raises(ZeroDivisionError):
            run_together(tasks, 1)
    assert ended == [True, True]
