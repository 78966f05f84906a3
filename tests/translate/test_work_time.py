import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from translation_models import translate_options

from aiayn_cli.translate.input import WorkTime
from aiayn_cli.translate.session import run_translate


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_time_in_which_nothing_is_to_be_done_does_not_count() -> None:
    clock = Clock()
    time = WorkTime(clock)

    def typed() -> Iterator[int]:
        for task in range(2):
            clock.now += 100  # nobody has typed a line yet
            yield task

    for number, _ in enumerate(time.taken(typed()), start=1):
        clock.now += 3
        assert time.seconds == 3 * number
        time.finished()
    clock.now += 50
    assert time.seconds == 6


def test_tasks_at_the_same_time_count_once_and_one_that_never_ends_until_now() -> None:
    clock = Clock()
    time = WorkTime(clock)
    tasks = time.taken("abc")
    next(tasks)
    clock.now += 1
    next(tasks)  # by another process, while the first is at work
    clock.now += 1
    time.finished()
    clock.now += 1
    time.finished()
    clock.now += 10
    assert time.seconds == 3
    next(tasks)
    clock.now += 5  # until Ctrl-C
    assert time.seconds == 8


def test_the_speed_is_that_of_translating_and_not_of_typing(model: Path, tmp_path: Path) -> None:
    pipe, waits = tmp_path / "pipe", 0.7
    os.mkfifo(pipe)

    def type_slowly() -> None:
        with pipe.open("wb", buffering=0) as keyboard:
            for line in (b"hund\n", b"katze\n"):
                keyboard.write(line)
                time.sleep(waits)

    typist = threading.Thread(target=type_slowly)
    typist.start()
    result = run_translate(
        translate_options([model], source=str(pipe), path=tmp_path / "out", precision="fp32", device="cpu", max_extra=2)
    )
    typist.join()
    assert result.lines == 2
    assert 0 < result.seconds < waits
    assert result.lines_per_second == pytest.approx(2 / result.seconds)
