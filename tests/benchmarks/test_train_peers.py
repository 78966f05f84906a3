"""What other toolkits' logs say is read as they mean it, and a measured peer is ended with all that it started."""

import sys
import time
from pathlib import Path

import pytest
import train_peers

from aiayn_cli.recipe_keys import ModelConfig

EOLE = (
    "[2026-11-28 08:13:25,263 INFO] Step  {}/100000; acc: 3.7; ppl: 3891.12; xent: 8.27; aux: 0.000; lr: 3.16e-05; "
    "sents:     341; bsz: 3499/3796/170; 1530/1660 tok/s;     34 sec;"
)
FAIRSEQ = (
    "2026-11-28 08:33:08 | INFO | train_inner | epoch 001:      2 / 132 loss=13.534, ppl=11724.2, wps=413, ups=0.1, "
    "wpb=4061.5, bsz=272, num_updates=7, lr=5e-07, gnorm=5.52, train_wall=10, wall=28"
)


def test_tokens_between_the_first_and_the_last_report_that_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert train_peers.reported(FAIRSEQ) == (7, 4061.5)
    clock = iter([0.0, 5.0, 10.0, 20.0, 31.0, 99.0])  # of each line
    monkeypatch.setattr(train_peers.time, "perf_counter", lambda: next(clock))
    lines = ["starting", *(EOLE.format(step) for step in (2, 4, 6, 10, 12))]
    monkeypatch.setattr(train_peers, "output_of", lambda _: iter(lines))
    peer = train_peers.Peer(Path("python"), "eole", "1")
    # Counted from 10.0, five seconds after the first report, to 31.0: updates 5 to 10.
    found = train_peers.tokens_per_second(peer, tmp_path, 100, ModelConfig(), 4096, 5.0, 20.0)
    assert found == pytest.approx(3796 * 6 / 21)


def test_a_peer_is_ended_when_nobody_reads_on() -> None:
    started = time.monotonic()
    lines = train_peers.output_of([sys.executable, "-c", "print('first'); import time; time.sleep(60)"])
    assert next(lines) == "first\n"
    lines.close()
    assert time.monotonic() - started < 30
