"""What `aiayn translate` does: models in, lines from a file or a pipe, translations out in the same order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from aiayn_cli import logs
from aiayn_cli.checkpoint.run import find_model
from aiayn_cli.config import Precision
from aiayn_cli.device import device_of_each
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.processes import Processes
from aiayn_cli.text.compression import PipedBytes
from aiayn_cli.text.lines import RecordReader, display_name
from aiayn_cli.translate.aids.attention import AttentionPicture
from aiayn_cli.translate.forced_scores import run_score_against
from aiayn_cli.translate.input import check_inputs, followed, groups, is_typed, opened
from aiayn_cli.translate.input_lines import InputLines, LineFormat
from aiayn_cli.translate.models import Engine, Search, make_sampling
from aiayn_cli.translate.output import OutputStyle, check_outputs, give_unfinished, open_writer
from aiayn_cli.translate.search.sentence_search import LONGEST_PASS
from aiayn_cli.translate.session import Output, Session
from aiayn_cli.translate.translation import SearchOptions
from aiayn_cli.translate.trust.suspects import OnSuspect
from aiayn_cli.translate.work import Answer, Task, WorkInfo, WorkPlan, make_work
from aiayn_cli.translate.work_time import WorkTime

__all__ = ["run_score_against", "run_translate"]


@dataclass(frozen=True)
class TranslateResult:
    """What was translated.

    Attributes:
        models: the checkpoints that were used.
        lines: read and written (times n-best).
        blank_lines: of them, those that were blank and stayed so.
        unreadable_lines: of them, those with bytes that are not text, or broken JSON; their translation is blank.
        broken_records: of these, those where the input is JSON.
        split_lines: of them, those too long for one pass.
        suspect_lines: of them, those whose best output has a flag (flags.FLAGS).
        mended_lines: of them, those that another search freed from theirs.
        flags: how often each flag was raised.
        repaired_lines: of them, those with a tree that had to be repaired.
        seconds: of work on lines, without loading and without waiting for lines.
        lines_per_second: speed.
        stopped: why it ended before the last line; None where it did not.
        translations: the outputs for each line, where they were to be part of the result; where the output is JSON, the
            objects that would be written.
    """

    models: tuple[str, ...]
    lines: int
    blank_lines: int
    unreadable_lines: int
    broken_records: int
    split_lines: int
    suspect_lines: int
    mended_lines: int
    flags: Mapping[str, int]
    repaired_lines: int
    seconds: float
    lines_per_second: float
    stopped: str | None = None
    translations: tuple[tuple[Output | Mapping[str, Any], ...], ...] | None = None

    def summary(self) -> str:
        """One line for a person."""
        remarks = (
            ("blank", self.blank_lines),
            ("unreadable", self.unreadable_lines),
            ("cut", self.split_lines),
            ("repaired", self.repaired_lines),
        )
        counted = "".join(f", {count:,} {what}" for what, count in remarks if count)
        speed = f"{self.lines_per_second:.{0 if self.lines_per_second >= 10 else 1}f}"
        return f"translated {self.lines:,} lines in {self.seconds:.1f} s, {speed} a second{counted}"


def run_translate(
    models: Sequence[Path] = (),
    *,
    source: str = "-",
    output: Path | None = None,
    beam_size: int | None = None,
    alpha: float | None = None,
    max_extra: int | None = None,
    max_length: int | None = None,
    min_length: int = 0,
    no_repeat_ngram: int = 0,
    batch_tokens: int | None = None,
    tree_rules: bool | None = None,
    n_best: int = 1,
    sample: bool = False,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    prefix: Path | None = None,
    line_format: LineFormat = "text",
    input_format: LineFormat | None = None,
    with_scores: bool = False,
    with_alignments: bool = False,
    report: Path | None = None,
    on_suspect: OnSuspect = "keep",
    markup: bool = False,
    glossary: Path | None = None,
    attention: Path | None = None,
    device: str = "auto",
    gpus: int | None = None,
    precision: Precision = "auto",
    engine: Engine = "torch",
    int8: bool = False,
    keep_translations: bool = False,
    take_unfinished: Callable[[TranslateResult], None] | None = None,
) -> TranslateResult:
    """Translate every line of a file or pipe.

    Each line gives n_best lines, in order, whatever is in it: a blank line gives blank ones, and so does a line that
    is not UTF-8 or holds NUL, with a warning. Lines that come slowly are answered one by one.

    Args:
        models: checkpoints or runs; several are an ensemble; none = the newest run of the working folder.
        source: file to read, "-" for stdin; compressed bytes are unpacked, whatever the name.
        output: file to write, under its name only when all is done; None = stdout.
        beam_size, alpha, max_extra, batch_tokens, tree_rules: instead of the model's own settings (DecodingConfig).
        max_length, min_length, no_repeat_ngram: as in SearchOptions.
        n_best: outputs for each line.
        sample: draw outputs instead of searching for the best; only then
            temperature, top_k, top_p, seed: as in Sampling; None = its default.
        prefix: file with the beginning of each output, one a line.
        line_format: "jsonl" writes one JSON object for each output; it holds for the input too, unless
            input_format: says otherwise.
        with_scores, with_alignments: as in OutputStyle.
        report: file for a JSON object on each line's best output.
        on_suspect: what to do about outputs that look wrong, as in Judge; "fail" ends with an error after the lines
            before.
        markup: carry each tag, placeholder and address through, as in MarkupTranslator.
        glossary: file of terms that outputs must use, as in load_glossary().
        attention: page of HTML to write, which draws where the model looked for the first outputs.
        device, precision: as in choose_device().
        gpus: processes that the lines are divided over, one for each GPU, or on the CPU where that is the device.
        engine, int8: as in load_models().
        keep_translations: give them in the result; without `output` they are then not written.
        take_unfinished: called with the result of the lines before an error, or Ctrl-C, that ends the work.

    Raises:
        AiaynError: no such model, file or device; input that is not what it should be; a model and a vocabulary that
            do not belong together; a process that ended before its work was done.
    """
    check_inputs(source, prefix)
    check_outputs(output, report, attention, inputs=(source, prefix, glossary))
    if sample and glossary is not None:
        raise UsageError("--glossary needs a search, and --sample makes none", "leave one of them away")
    if sample and beam_size is not None:
        raise UsageError(
            f"--beam {beam_size} is about searching, but --sample draws outputs",
            "leave one of them away; --nbest says how many are drawn",
        )
    if max_length is not None and min_length > max_length:
        raise UsageError(
            f"--min-length {min_length} is more than --max-length {max_length}", "no output can be both: change one"
        )
    if min_length >= LONGEST_PASS:
        raise UsageError(
            f"--min-length {min_length:,} is more than the {LONGEST_PASS - 1:,} tokens that an output can have",
            "give fewer",
        )
    sampling = make_sampling(sample, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    search = Search(
        beam_size=beam_size,
        alpha=alpha,
        max_extra=max_extra,
        batch_tokens=batch_tokens,
        tree_rules=tree_rules,
        n_best=n_best,
        options=SearchOptions(
            min_length=min_length, max_length=max_length or 0, no_repeat_ngram=no_repeat_ngram, sampling=sampling
        ),
    )
    plan = WorkPlan(
        models=[find_model(path) for path in models or (None,)],
        search=search,
        precision=precision,
        engine=engine,
        int8=int8,
        glossary=glossary,
        style=OutputStyle(line_format=line_format, n_best=n_best, scores=with_scores, alignments=with_alignments),
        with_report=report is not None,
        with_attention=attention is not None,
        on_suspect=on_suspect,
        markup=markup,
        verbosity=logs.verbosity(),
        check_beside=is_typed(source),
    )
    devices = device_of_each(gpus, device)
    picture = AttentionPicture(attention)
    with ExitStack() as files:
        file = files.enter_context(opened(source))
        name = display_name(source)
        reader = RecordReader(cast(BinaryIO, PipedBytes(file, name)), name, keep_going=True)
        prefixes = RecordReader(files.enter_context(opened(prefix)), str(prefix)) if prefix else None
        lines = InputLines(reader, input_format or line_format, prefixes)
        info, answers = files.enter_context(_workers(plan, devices))
        session = Session(
            info.title,
            name,
            files.enter_context(open_writer(output, silent=keep_translations and output is None)),
            files.enter_context(open_writer(report, silent=report is None)),
            keep_outputs=line_format if keep_translations else None,
            picture=picture,
        )
        work_time = WorkTime()

        def result(stopped: str | None = None) -> TranslateResult:
            seconds = work_time.seconds
            return TranslateResult(
                models=info.models,
                lines=session.lines,
                blank_lines=session.blank,
                unreadable_lines=session.notices.counts["unreadable"],
                broken_records=session.notices.counts["unreadable"] if lines.line_format == "jsonl" else 0,
                split_lines=session.notices.counts["split"],
                suspect_lines=session.suspects.suspect,
                mended_lines=session.suspects.mended,
                flags=dict(session.suspects.flags),
                repaired_lines=session.notices.counts["repaired"],
                seconds=seconds,
                lines_per_second=session.lines / max(seconds, 1e-9),
                stopped=stopped,
                translations=tuple(session.kept) if keep_translations else None,
            )

        tasks = (Task(group, picture.room) for group in groups(lines, len(devices)))
        numbered = ((len(task.lines), (task, answer)) for task, answer in answers(work_time.taken(tasks)))
        try:
            for task, answer in followed(numbered, lines, file, source):
                session.take(task, answer)
                work_time.put_out()
        except (AiaynError, OSError, KeyboardInterrupt) as error:
            session.finish_early(error)
            if not isinstance(error, BrokenPipeError):  # its reader has seen enough, and wants no more words
                logs.notice(f"{result().summary()}; then it was stopped")
            give_unfinished(error, result, take_unfinished)
            raise
        done = result()
    session.finish()
    return done


@contextmanager
def _workers(
    plan: WorkPlan, devices: Sequence[str]
) -> Iterator[tuple[WorkInfo, Callable[[Iterable[Task]], Iterable[tuple[Task, Answer]]]]]:
    """What does the work: this process, or one for each device where there are several."""
    if len(devices) == 1:
        info, work = make_work(plan, devices[0])
        yield info, lambda tasks: ((task, work(task)) for task in tasks)
        return
    arguments = [(plan, device, rank, len(devices)) for rank, device in enumerate(devices)]
    names = [f"process {rank} of {len(devices)} ({device})" for rank, device in enumerate(devices, start=1)]
    with Processes[WorkInfo, Task, Answer](make_work, arguments, names) as processes:
        logs.notice(f"{len(devices)} processes, on {', '.join(dict.fromkeys(devices))}")
        yield processes.info, processes.map
