"""Text to token ids in bulk: in order, on all cores, and the same for any number of processes."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aiayn_cli.data.clean import LengthRules
from aiayn_cli.data.pairs import Chunk
from aiayn_cli.data.store import Tokens
from aiayn_cli.data.vocab import Vocab
from aiayn_cli.errors import DataError
from aiayn_cli.special_tokens import UNK_ID

CHUNKS_WORTH_A_PROCESS = 20  # fewer are done before other processes have started
CHUNKS_IN_FLIGHT = 3  # for each process; enough that none waits, few enough that memory stays small


@dataclass(frozen=True)
class EncodedChunk:
    """The pairs of one chunk that are kept: ids of all sides one after the other [tokens], their lengths [pairs]."""

    src: Tokens
    src_lengths: npt.NDArray[np.int32]
    tgt: Tokens
    tgt_lengths: npt.NDArray[np.int32]
    too_long: int  # pairs dropped
    length_ratio: int  # pairs dropped
    unknown: int  # tokens that are <unk>, on both sides


def encode_chunk(vocab: Vocab, rules: LengthRules | None, chunk: Chunk) -> EncodedChunk:
    """Encode a chunk and drop the pairs that the rules claim (none where there are no rules)."""
    (src, src_lengths), (tgt, tgt_lengths) = (vocab.encode_flat(records) for records in chunk)
    too_long = unbalanced = np.zeros(len(src_lengths), np.bool_)
    if rules is not None:
        too_long = rules.find_too_long(src_lengths, tgt_lengths)
        unbalanced = rules.find_unbalanced(src_lengths, tgt_lengths) & ~too_long
        keep = ~(too_long | unbalanced)
        if not keep.all():
            src, tgt = src[np.repeat(keep, src_lengths)], tgt[np.repeat(keep, tgt_lengths)]
            src_lengths, tgt_lengths = src_lengths[keep], tgt_lengths[keep]
    unknown = int((src == UNK_ID).sum() + (tgt == UNK_ID).sum())
    return EncodedChunk(src, src_lengths, tgt, tgt_lengths, int(too_long.sum()), int(unbalanced.sum()), unknown)


def encode_chunks(
    chunks: Iterable[Chunk], vocab_path: Path, rules: LengthRules | None, workers: int
) -> Iterator[EncodedChunk]:
    """Encode many chunks, in their order.

    Args:
        chunks: text.
        vocab_path: the vocabulary's file.
        rules: what drops a pair for its length; None keeps all.
        workers: processes; 1 does all the work in this one.
    Raises:
        DataError: a process was killed.
    """
    ahead = iter(chunks)
    first = list(islice(ahead, CHUNKS_WORTH_A_PROCESS)) if workers > 1 else []
    if len(first) < CHUNKS_WORTH_A_PROCESS:
        vocab = Vocab.load(vocab_path)
        for chunk in chain(first, ahead):
            yield encode_chunk(vocab, rules, chunk)
    else:
        yield from _encode_in_processes(chain(first, ahead), vocab_path, rules, workers)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _encode_in_processes(
    chunks: Iterable[Chunk], vocab_path: Path, rules: LengthRules | None, workers: int
) -> Iterator[EncodedChunk]:
    # Fresh processes and no forks, since a progress bar's thread may hold a lock at the moment of a fork.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(vocab_path, rules))
    pending: deque[Future[EncodedChunk]] = deque()
    try:
        for chunk in chunks:
            pending.append(executor.submit(_encode_in_worker, chunk))
            if len(pending) >= workers * CHUNKS_IN_FLIGHT:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            "a process that encodes text was killed, perhaps for lack of memory", "try --workers 1"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


_worker: tuple[Vocab, LengthRules | None] | None = None  # in each of the processes


def _start_worker(vocab_path: Path, rules: LengthRules | None) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = Vocab.load(vocab_path), rules


def _end_with_parent() -> None:
    """End this process when its parent was killed; otherwise it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_in_worker(chunk: Chunk) -> EncodedChunk:
    assert _worker is not None
    return encode_chunk(*_worker, chunk)
