"""A signal is noted for the loop to ask for; a second one does not wait."""

import os
import signal

from aiayn_cli.train.session import signals


def test_a_second_signal_does_not_wait() -> None:
    child = os.fork()
    if child == 0:
        with signals() as interrupted:
            os.kill(os.getpid(), signal.SIGTERM)
            if interrupted() != "SIGTERM":
                os._exit(1)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_signals_mean_afterwards_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with signals() as interrupted:
        assert interrupted() == ""
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted() == "SIGINT"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
