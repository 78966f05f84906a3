"""Processes that count lines end with the one that asked, and without a word of their own."""

import os
import signal
import subprocess
import sys

import pytest

_SLOW = """
import os
import time
from aiayn_cli.score.line_counts import count_lines

class Slow:
    _preprocess_segment = staticmethod(str)
    _extract_reference_info = staticmethod(list)

    @staticmethod
    def _compute_segment_statistics(hypothesis, references):
        os.write(1, b"counting\\n")  # print() writes the end of the line by itself, which mixes lines of processes
        time.sleep(0.1)
        return [1.0]

try:
    count_lines(Slow, [["x"] * 80], [["y"] * 80], workers=2)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process does all")
@pytest.mark.parametrize(("number", "last_word"), [(signal.SIGINT, "stopped"), (signal.SIGKILL, "counting")])
def test_ctrl_c_and_a_kill_leave_no_process_and_no_traceback(number: signal.Signals, last_word: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "counting\n"
    if number == signal.SIGINT:  # a terminal sends it to all of them
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=120)  # until each process that could write has ended
    assert err == ""
    assert out.split()[-1] == last_word
