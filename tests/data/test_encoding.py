"""The same ids in the same order for any number of processes; a pair that is too long or lopsided is dropped."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from aiayn_cli.data import encoding
from aiayn_cli.data.clean import LengthRules
from aiayn_cli.data.encoding import EncodedChunk, available_cores, encode_chunk, encode_chunks
from aiayn_cli.data.pairs import Chunk
from aiayn_cli.data.vocab import Vocab
from aiayn_cli.data.vocab_training import train_vocab
from aiayn_cli.errors import DataError
from aiayn_cli.special_tokens import UNK_ID

LETTERS = "abcdefg"
VOCAB_SIZE = 4 + 1 + len(LETTERS)  # special tokens, the blank, and each letter: as many tokens as characters, and one
RULES = LengthRules(max_length=30, max_ratio=1.5)


@pytest.fixture(scope="module")
def vocab_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocab") / "vocab.model"
    path.write_bytes(train_vocab({LETTERS: 3}, VOCAB_SIZE))
    return path


def some_chunks(n: int) -> list[Chunk]:
    rng = random.Random(5)

    def side() -> list[str]:
        return ["".join(rng.choices(LETTERS, k=rng.randrange(40))) for _ in range(11)]

    return [(side(), side()) for _ in range(n)]


def same(a: EncodedChunk, b: EncodedChunk) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in EncodedChunk.__dataclass_fields__)


def test_the_rules_drop_whole_pairs_and_count_them_once(vocab_path: Path) -> None:
    vocab = Vocab.load(vocab_path)
    src = ["a" * 20, "b" * 30, "c" * 2, "d" * 29, "e" * 40, ""]
    tgt = ["ab" * 5, "c" * 29, "d" * 20, "eg" * 14, "f", ""]
    encoded = encode_chunk(vocab, RULES, (src, tgt))
    assert (encoded.too_long, encoded.length_ratio) == (2, 1)
    assert (encoded.src_lengths.tolist(), encoded.tgt_lengths.tolist()) == ([21, 30, 0], [11, 29, 0])
    assert vocab.decode([encoded.src[:21].tolist(), encoded.src[21:].tolist()]) == ["a" * 20, "d" * 29]
    assert vocab.decode([encoded.tgt[:11].tolist(), encoded.tgt[11:].tolist()]) == ["ab" * 5, "eg" * 14]


def test_without_rules_all_pairs_are_kept(vocab_path: Path) -> None:
    encoded = encode_chunk(Vocab.load(vocab_path), None, (["a" * 99, "", "b"], ["a", "c", ""]))
    assert (encoded.src_lengths.tolist(), encoded.tgt_lengths.tolist()) == ([100, 0, 2], [2, 2, 0])
    assert (encoded.too_long, encoded.length_ratio) == (0, 0)


def test_unknown_tokens_are_counted_in_what_is_kept(vocab_path: Path) -> None:
    encoded = encode_chunk(Vocab.load(vocab_path), RULES, (["xa", "a", "x" + "a" * 50], ["b", "yby", "z"]))
    assert encoded.unknown == 3
    assert UNK_ID in encoded.src


@pytest.mark.parametrize("n_chunks", [0, 1, 50])
def test_the_number_of_processes_changes_nothing(
    vocab_path: Path, n_chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "CHUNKS_WORTH_A_PROCESS", 5)
    chunks = some_chunks(n_chunks)
    vocab = Vocab.load(vocab_path)
    expected = [encode_chunk(vocab, RULES, chunk) for chunk in chunks]
    for workers in (1, 3):
        found = list(encode_chunks(iter(chunks), vocab_path, RULES, workers))
        assert len(found) == n_chunks
        assert all(map(same, found, expected))
    assert not multiprocessing.active_children()


def test_a_process_that_is_killed_is_an_error_and_no_hang(vocab_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNKS_WORTH_A_PROCESS", 1)
    encoded = encode_chunks(iter(some_chunks(99)), vocab_path, RULES, 2)
    next(encoded)
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(DataError, match="was killed, perhaps for lack of memory") as caught:
        list(encoded)
    assert caught.value.hint == "try --workers 1"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_processes_end_when_their_parent_is_killed(vocab_path: Path, tmp_path: Path) -> None:
    program = (
        "import multiprocessing, os, signal, sys; from pathlib import Path\n"
        "from aiayn_cli.data import encoding\n"
        "if __name__ == '__main__':\n"
        "    encoding.CHUNKS_WORTH_A_PROCESS = 1\n"
        "    chunks = ((['a'] * 9, ['b'] * 9) for _ in range(99))\n"
        "    encoded = encoding.encode_chunks(chunks, Path(sys.argv[1]), None, 2)\n"
        "    next(encoded)\n"
        "    print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    script = tmp_path / "killed.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(encoding.__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, script, vocab_path], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
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


def test_at_least_one_core_is_available() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
