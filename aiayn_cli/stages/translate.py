"""What `aiayn translate` does: models in, lines from a file or a pipe, translations out in the same order."""

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from aiayn_cli import logs
from aiayn_cli.checkpoint import Checkpoint, load_checkpoint
from aiayn_cli.config import DecodingConfig, Precision
from aiayn_cli.data.codec import Codec
from aiayn_cli.data.text import RecordReader, display_name, is_blank, open_text_bytes, write_records
from aiayn_cli.decoding.stream import gather
from aiayn_cli.decoding.translation import Translation
from aiayn_cli.decoding.translator import Translator
from aiayn_cli.device import choose_device
from aiayn_cli.errors import AiaynError, CheckpointError, UsageError
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.run_checkpoints import find_model

_LINES_TOGETHER = 2_000  # sorted by length and translated before the first of them is written
_WARNINGS = 5  # unreadable lines named one by one; the rest are only counted


@dataclass(frozen=True)
class TranslateResult:
    """What was translated.

    Attributes:
        models: the checkpoints that were used.
        lines: read and written (times n-best).
        blank_lines: of them, those that were blank and stayed so.
        unreadable_lines: of them, those with bytes that are not text; their translation is blank.
        split_lines: of them, those too long for one pass.
        seconds: from the first line to the last, without loading.
        lines_per_second: speed.
        translations: the outputs for each line, where they were to be part of the result.
    """

    models: tuple[str, ...]
    lines: int
    blank_lines: int
    unreadable_lines: int
    split_lines: int
    seconds: float
    lines_per_second: float
    translations: tuple[tuple[Translation, ...], ...] | None = None

    def summary(self) -> str:
        """One line for a person."""
        remarks = (("blank", self.blank_lines), ("unreadable", self.unreadable_lines), ("cut", self.split_lines))
        counted = "".join(f", {count:,} {what}" for what, count in remarks if count)
        return f"translated {self.lines:,} lines in {self.seconds:.1f} s, {self.lines_per_second:.0f} a second{counted}"


def run_translate(
    models: Sequence[Path] = (),
    *,
    source: str = "-",
    output: Path | None = None,
    beam_size: int | None = None,
    alpha: float | None = None,
    max_extra: int | None = None,
    batch_tokens: int | None = None,
    n_best: int = 1,
    with_scores: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
    keep_translations: bool = False,
) -> TranslateResult:
    """Translate every line of a file or pipe.

    Each line gives n_best lines, in order, whatever is in it: a blank line gives blank ones, and so does a line that
    is not UTF-8 or holds NUL, with a warning. Lines that come slowly are answered one by one.

    Args:
        models: checkpoints or runs; several are an ensemble; none = the newest run of the working folder.
        source: file to read, "-" for stdin.
        output: file to write, under its name only when all is done; None = stdout.
        beam_size, alpha, max_extra, batch_tokens: instead of the model's own settings (DecodingConfig).
        n_best: outputs for each line.
        with_scores: write "score TAB text".
        device, precision: as in choose_device().
        keep_translations: give them in the result; without `output` they are then not written.

    Raises:
        AiaynError: no such model, file or device; a model and a vocabulary that do not belong together.
    """
    if output is not None and output.suffix.lower() in (".gz", ".xz", ".bz2", ".zst"):
        raise UsageError(
            f"{output} would hold plain text", "leave the suffix away, or write to stdout and compress that"
        )
    with _opened(source) as file:
        checkpoints = [load_checkpoint(path) for path in map(find_model, models or (None,))]
        decoding = _decoding(checkpoints[0].decoding, beam_size, alpha, max_extra, batch_tokens)
        if n_best > decoding.beam_size:
            raise UsageError(
                f"--nbest {n_best} is more than the beam of {decoding.beam_size} holds", f"add --beam {n_best}"
            )
        translator = _load(checkpoints, decoding, n_best, device, precision)
        reader = RecordReader(file, display_name(source), keep_going=True)
        kept: list[tuple[Translation, ...]] = []
        counts = _Counts()
        started = time.perf_counter()
        with _writer(output, with_scores, silent=keep_translations and output is None) as write:
            for outputs in _translate_all(translator, reader, counts):
                write(outputs)
                if keep_translations:
                    kept += map(tuple, outputs)
        seconds = time.perf_counter() - started
    if counts.unreadable > _WARNINGS:
        logs.warning(f"{counts.unreadable:,} lines of {reader.name} in all could not be read")
    return TranslateResult(
        models=tuple(str(checkpoint.path) for checkpoint in checkpoints),
        lines=counts.lines,
        blank_lines=counts.blank,
        unreadable_lines=counts.unreadable,
        split_lines=translator.split_lines,
        seconds=seconds,
        lines_per_second=counts.lines / max(seconds, 1e-9),
        translations=tuple(kept) if keep_translations else None,
    )


@dataclass
class _Counts:
    lines: int = 0
    blank: int = 0
    unreadable: int = 0


def _translate_all(translator: Translator, reader: RecordReader, counts: _Counts) -> Iterator[list[list[Translation]]]:
    terminal = reader.name == "stdin" and sys.stdin.isatty()
    if terminal:
        logs.notice("type a line to translate it; Ctrl-D ends")
    with logs.progress("translating", unit="lines") if not terminal else _no_progress() as progress:
        for group in gather(reader.blocks(), _LINES_TOGETHER):
            for number, record in enumerate(group, start=counts.lines + 1):
                if record is None:
                    counts.unreadable += 1
                    if counts.unreadable <= _WARNINGS:
                        logs.warning(f"{reader.name}:{number}: not UTF-8, or holds NUL: left blank")
                elif is_blank(record):
                    counts.blank += 1
            yield translator.translate_n_best([record or "" for record in group], first_line=counts.lines + 1)
            counts.lines += len(group)
            if progress is not None:
                progress.advance(len(group))


def _decoding(
    config: DecodingConfig, beam_size: int | None, alpha: float | None, max_extra: int | None, batch_tokens: int | None
) -> DecodingConfig:
    return replace(
        config,
        beam_size=config.beam_size if beam_size is None else beam_size,
        alpha=config.alpha if alpha is None else alpha,
        max_extra=config.max_extra if max_extra is None else max_extra,
        batch_tokens=config.batch_tokens if batch_tokens is None else batch_tokens,
    )


def _load(
    checkpoints: Sequence[Checkpoint], decoding: DecodingConfig, n_best: int, device: str, precision: Precision
) -> Translator:
    first = checkpoints[0]
    chosen = choose_device(device, precision)
    for checkpoint in checkpoints:
        logs.notice(f"model: {checkpoint.path}, {checkpoint.src_lang}-{checkpoint.tgt_lang}, step {checkpoint.step:,}")
        if checkpoint.vocab_sha256 != first.vocab_sha256:
            raise CheckpointError(
                f"{first.path} and {checkpoint.path} have different vocabularies",
                "an ensemble needs models that were trained on the same prepared data",
            )
    logs.notice(chosen.explanation)
    vocab = Codec.load(first.path, first.text, first.src_lang, first.tgt_lang)
    if vocab.sha256 != first.vocab_sha256 or vocab.size != first.vocab_size:
        raise CheckpointError(
            f"{first.vocab_path} is not the vocabulary that the model was trained with",
            "copy the checkpoint again, or take vocab.model from the run's prepared data",
        )
    models = [_model_of(checkpoint) for checkpoint in checkpoints]
    return Translator(models, vocab, chosen, decoding, n_best=n_best, tgt_lang=first.tgt_lang)


def _model_of(checkpoint: Checkpoint) -> TranslationModel:
    model = build_model(checkpoint.model, checkpoint.vocab_size).eval()
    checkpoint.load_into(model)
    return model


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    file = open_text_bytes(source)
    try:
        # Unbuffered: a thread that waits for a slow pipe inside a buffer would hold its lock when Ctrl-C closes it.
        yield cast(BinaryIO, file.raw) if isinstance(file, io.BufferedReader) else file
    finally:
        if source != "-":
            file.close()


@contextmanager
def _no_progress() -> Iterator[None]:
    yield None


@contextmanager
def _writer(
    output: Path | None, with_scores: bool, silent: bool
) -> Iterator[Callable[[Sequence[Sequence[Translation]]], None]]:
    """Give a function that writes the outputs of some lines and flushes them."""
    sink = sys.stdout.buffer
    unfinished = None
    if output is not None:
        if output.is_dir():
            raise AiaynError(f"cannot write {output}: it is a folder", "name a file in it")
        if not output.exists() or output.is_file():  # not a device or a named pipe, which nothing may replace
            unfinished = output.with_name(f"{output.name}.unfinished")
        try:
            sink = (unfinished or output).open("wb")
        except OSError as error:
            raise AiaynError(f"cannot write {output}: {error.strerror}", "give another -o") from error

    def write(outputs: Sequence[Sequence[Translation]]) -> None:
        if not silent:
            write_records(sink, (_line(each, with_scores) for line in outputs for each in line))
            sink.flush()

    try:
        yield write
    except BaseException:
        if unfinished is not None:
            sink.close()
            logs.notice(f"what was translated so far is in {unfinished}")
        raise
    if output is not None:
        sink.close()
        if unfinished is not None:
            unfinished.replace(output)


def _line(translation: Translation, with_scores: bool) -> str:
    return f"{translation.score:.4f}\t{translation.text}" if with_scores else translation.text
