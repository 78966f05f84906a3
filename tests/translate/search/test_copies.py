import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aiayn_cli.translate.search.copies import Copies
from aiayn_cli.translate.search.workers import Stop

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="copies are made on Linux alone")

HERE = os.getpid()


def who(number: int, stop: Stop) -> tuple[int, int, int]:
    return number, os.getpid(), torch.get_num_threads()


def ended(process: int) -> bool:
    """Whether a process has ended, within some seconds."""
    for _ in range(2000):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # ended, and nobody has asked yet how
            return True
        time.sleep(0.005)
    return False


def test_each_work_has_a_process_of_its_own_with_one_thread_and_the_same_ones_again() -> None:
    before = torch.get_num_threads()
    copies = Copies[int, tuple[int, int, int]]()
    found = copies.run(who, [7, 8, 9])
    assert [number for number, _, _ in found] == [7, 8, 9]
    processes = [process for _, process, _ in found]
    assert processes[0] == os.getpid()
    assert len(set(processes)) == 3
    assert [threads for _, _, threads in found] == [1, 1, 1]
    assert torch.get_num_threads() == before
    assert [process for _, process, _ in copies.run(who, [1, 2])] == processes[:2]
    del copies
    assert all(map(ended, processes[1:]))


def killed(number: int, stop: Stop) -> int:
    if os.getpid() != HERE:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def failing(number: int, stop: Stop) -> int:
    if os.getpid() != HERE:
        raise ZeroDivisionError
    return number


def unpicklable(number: int, stop: Stop) -> object:
    return number if os.getpid() == HERE else (lambda: number)


@pytest.mark.parametrize("do", [killed, failing, unpicklable])
def test_what_a_copy_cannot_do_is_done_here(do: Callable[[int, Stop], object]) -> None:
    copies = Copies[int, object]()
    for _ in range(3):
        assert copies.run(do, [1, 2, 3]) == [1, 2, 3]


def test_a_failure_here_is_raised_and_ends_the_copies() -> None:
    def wait_or_fail(number: int, stop: Stop) -> int:
        if number == 0:
            raise ZeroDivisionError
        while not stop.is_set():
            time.sleep(0.001)
        return number

    copies = Copies[int, int]()
    with pytest.raises(ZeroDivisionError):
        copies.run(wait_or_fail, [0, 1])
    assert copies.count == 0
    copies = Copies[int, int]()
    with pytest.raises(ValueError, match="number 3"):
        copies.run(failing_everywhere, [1, 3])


def failing_everywhere(number: int, stop: Stop) -> int:
    if number == 3:
        raise ValueError(f"number {number}")
    return number


@pytest.mark.parametrize("busy", [False, True])
def test_copies_end_with_the_process_that_made_them(busy: bool) -> None:
    reader, writer = os.pipe()

    def do(number: int, stop: Stop) -> int:
        if number:
            os.write(writer, os.getpid().to_bytes(8, "little"))
            while busy and not stop.is_set():
                time.sleep(0.001)
        return number

    parent = os.fork()
    if parent == 0:
        Copies[int, int]().run(do, [0, 1])
        time.sleep(60)
        os._exit(0)
    os.close(writer)
    copy = int.from_bytes(os.read(reader, 8), "little")
    os.close(reader)
    assert Path(f"/proc/{copy}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert ended(copy)
