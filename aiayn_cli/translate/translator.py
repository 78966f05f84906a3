"""A trained model as a Python object, `from aiayn_cli import Translator`; the command translates with it too."""

import copy
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack, get_args, get_type_hints

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, UsageError, did_you_mean
from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.recipe_keys import Precision
from aiayn_cli.translate.aids.markup import MarkupTranslator
from aiayn_cli.translate.forced_decoding import ForcedDecoder, Links
from aiayn_cli.translate.formats import SURROGATE, one_line
from aiayn_cli.translate.input import InputLine
from aiayn_cli.translate.line_translator import LineNotice, Translation
from aiayn_cli.translate.load_models import load_models
from aiayn_cli.translate.options import (
    DecodingOverrides,
    Engine,
    OutputStyle,
    Split,
    TranslateOptions,
    make_sampling,
    options_from,
)
from aiayn_cli.translate.score_against import PairScorer
from aiayn_cli.translate.trust.flags import OutputChecks
from aiayn_cli.translate.trust.retry import AnyTranslator, Judge, Judged

_FIELDS = {"beam": "beam_size", "nbest": "n_best"}  # where options have other names than the fields they fill
_FLAG = re.compile(r"--(no-)?([a-z][a-z0-9-]*)(?: (-?[\d.,]*\d|-inf|\w+(?::\d+)?))?")  # with the word after it


class TranslatorOptions(TypedDict, total=False):
    """The options of `aiayn translate` that Translator.load() takes, by the same names; see its --help."""

    beam: int
    alpha: float
    max_extra: int
    max_length: int
    min_length: int
    no_repeat_ngram: int
    tree_rules: bool
    nbest: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    markup: bool
    split: Split
    glossary: str | Path
    alignments: bool
    on_suspect: Literal["keep", "retry", "empty", "copy"]
    device: str
    precision: Precision
    engine: Engine
    int8: bool
    batch_tokens: int


@dataclass(frozen=True)
class TranslatedLine:
    """One of the outputs for a line."""

    text: str
    score: float  # log_prob / length penalty; for a split line, of all parts together; NaN if no model wrote the text
    log_prob: float  # natural log p of the output with its end token; NaN likewise
    flags: tuple[str, ...]  # what looks wrong: names of trust/flags.py
    alignment: Links | None  # (source word, output word), counted from 0; None without alignments=True


class Translator(AbstractContextManager["Translator"]):
    """Translates lines with a trained model, or an ensemble of several.

    Calls from several threads wait for each other; a forked process needs a translator of its own. What load() returns
    writes nothing to stderr.
    """

    def __init__(
        self,
        options: TranslateOptions,
        *,
        device: str | None = None,
        notify: Callable[[LineNotice], None] | None = None,
        check_in_background: bool = False,
    ) -> None:
        self.loaded = load_models(options, device, notify, check_in_background=check_in_background)
        first, markup = self.loaded.checkpoints[0], options.text.markup
        self.lines: AnyTranslator = MarkupTranslator(self.loaded.translator) if markup else self.loaded.translator
        self.forced = ForcedDecoder(self.loaded.translator)
        self._notify, self._style = notify, options.output.style
        self._trees = TreeText(first.text) if first.text.trees else None
        # Draws are less probable than what the search finds, from which the thresholds are.
        thresholds = [] if options.search.sampling else [each.low_confidence for each in self.loaded.checkpoints]
        self._checks = OutputChecks(
            first.src_lang, first.tgt_lang,
            trees=self._trees, glossary=self.loaded.glossary, markup=markup, thresholds=thresholds,
        )  # fmt: skip
        self._on_suspect = options.output.on_suspect
        self._judge = self._judge_of(self.lines)
        self._lock, self._is_closed, self._is_silent = threading.Lock(), False, False
        self._process = os.getpid()

    @classmethod
    def load(cls, *models: str | Path, **options: Unpack[TranslatorOptions]) -> Self:
        """Load a run or a checkpoint, or several as an ensemble; without one, the newest run in runs/.

        AiaynError for a model, file or device that cannot be used, and for contradicting options; see its hint.
        """
        for name, value in options.items():
            _check_option(name, value)
        given: dict[str, Any] = {_FIELDS.get(name, name): value for name, value in options.items()}
        drawn = {name: given.get(name) for name in ("temperature", "top_k", "top_p", "seed")}
        given["models"] = tuple(map(Path, models))
        given["in_processes"] = False  # other threads of the program may hold locks that a fork would copy
        if given.get("glossary") is not None:
            given["glossary"] = Path(given["glossary"])
        given["style"] = OutputStyle(alignments=given.get("alignments", False))
        with logs.silenced(), _keywords_named():
            given["sampling"] = make_sampling(given.get("sample", False), **drawn)
            translator = cls(options_from(given))
        translator._is_silent = True
        return translator

    def translate(self, lines: Iterable[str]) -> list[str]:
        """Translate lines; blank for blank, in order."""
        return [outputs[0].text for outputs in self.translate_n_best(lines)]

    def translate_n_best(self, lines: Iterable[str], nbest: int | None = None) -> list[list[TranslatedLine]]:
        """The best outputs for each line, best first: `nbest` of them, by default as many as load() was told.

        TypeError for a str instead of a list of them; ValueError for half of a surrogate pair, and after close().
        """
        texts = _checked(lines)
        with self._held():
            judged = self._with(nbest).judged(texts)
            outputs = [output for each in judged for output in each.outputs] if self._style.alignments else []
            links = iter(each.alignment for each in self.forced.details(outputs, with_alignment=True))
            return [
                [
                    TranslatedLine(
                        output.text, output.score, output.log_prob,
                        flags=each.flags if rank == 0 else self._checks.flags(line, output),
                        alignment=next(links, None),
                    )
                    for rank, output in enumerate(each.outputs)
                ]
                for line, each in zip(texts, judged, strict=True)
            ]  # fmt: skip

    def score(self, lines: Iterable[str], translations: Iterable[str]) -> list[float]:
        """Natural log p of given translations, end tokens included; NaN where a side is blank or very long."""
        sources, targets = _checked(lines), _checked(translations)
        with self._held():
            pairs = [
                InputLine(number, *pair) for number, pair in enumerate(zip(sources, targets, strict=True), start=1)
            ]
            return [details.log_prob for _, details in PairScorer(self.loaded, "translations").score(pairs)]

    def judged(self, texts: Sequence[str], first_line: int | None = None, prefixes: Sequence[str] = ()) -> list[Judged]:
        """The outputs for each line with their flags, after what on_suspect says; arguments as in LineTranslator."""
        self.loaded.confirm()
        outputs = self.lines.translate_n_best(texts, first_line, prefixes)
        judged = self._judge.judge(texts, outputs, prefixes)
        if self._trees is None:
            return judged
        return [
            each if each.replaced_by else replace(each, outputs=self._as_trees(self._trees, text, number, each.outputs))
            for number, (text, each) in enumerate(zip(texts, judged, strict=True), start=first_line or 0)
        ]

    def _as_trees(self, trees: TreeText, text: str, number: int, outputs: Sequence[Translation]) -> list[Translation]:
        """A parser's outputs as bracketed trees on one line; a repair of the best one is reported."""
        found = [trees.restore_text(text, output.text) for output in outputs]
        if self._notify is not None and (repairs := found[0][1]):
            what = ", ".join(f"{reason} ({times})" for reason, times in repairs.items())
            self._notify(LineNotice("repaired trees", f"line {number:,}: the tree was repaired: {what}"))
        return [replace(output, text=tree) for output, (tree, _) in zip(outputs, found, strict=True)]

    def _judge_of(self, lines: AnyTranslator) -> Judge:
        return Judge(lines, self._checks, self._on_suspect, is_text=self._trees is None)

    def _with(self, nbest: int | None) -> Self:
        """The same translator, for another number of outputs."""
        if nbest is None:
            return self
        _check_option("nbest", nbest)
        search = replace(self.lines.options, n_best=nbest)
        DecodingOverrides().over(self.lines.decoding, search)  # refuses more than the beam holds
        other = copy.copy(self)
        other.lines = self.lines.variant(options=search)
        other._judge = other._judge_of(other.lines)
        return other

    @contextmanager
    def _held(self) -> Iterator[None]:
        if os.getpid() != self._process:  # whose threads, and the locks they held, are not here
            raise AiaynError(
                "a forked process cannot use the translator of its parent",
                'load a translator in each process, and start them with multiprocessing.get_context("spawn")',
            )
        with self._lock:
            if self._is_closed:
                raise ValueError("this translator is closed")
            if not self._is_silent:
                yield
                return
            with logs.silenced(), _keywords_named():
                yield

    def close(self) -> None:
        """Release the model's memory and files; further calls raise ValueError."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                del self.loaded, self.lines, self.forced, self._judge

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_option(name: str, value: object) -> None:
    """Refuse options that do not exist, and values of another type or below the command's minimum."""
    if name not in (hints := get_type_hints(TranslatorOptions)):
        raise TypeError(f"Translator.load() has no option {name}; {did_you_mean(name, hints)}")
    hint, choices = hints[name], get_args(hints[name])
    if choices and str in map(type, choices):
        fits, needed = value in choices, " or ".join(map(repr, choices))
    elif hint is int:
        least = 0 if name in ("min_length", "no_repeat_ngram", "seed") else 1
        fits, needed = type(value) is int and value >= least, f"an int of at least {least}"
    elif hint is float:
        fits, needed = type(value) in (int, float), "a number"
    else:
        fits, needed = isinstance(value, choices or hint), "True or False" if hint is bool else "a str"
    if not fits:
        raise UsageError(f"{name} is {value!r}, but must be {needed}", "see `aiayn translate --help`")


@contextmanager
def _keywords_named() -> Iterator[None]:
    """Let errors name options as load() takes them: nbest=4 instead of --nbest 4."""
    try:
        yield
    except AiaynError as error:
        error.problem, error.hint = _with_keywords(error.problem), _with_keywords(error.hint)
        error.args = (error.problem,)
        raise


def _with_keywords(message: str) -> str:
    parts = message.split("`")
    parts[::2] = [_FLAG.sub(_keyword, part) for part in parts[::2]]  # the others are commands
    return "`".join(parts)


def _keyword(flag: re.Match[str]) -> str:
    name, word = flag[2].replace("-", "_"), flag[3] or ""
    hint = get_type_hints(TranslatorOptions).get(name)
    if hint is None:
        return flag[0]
    if hint in (int, float) and (word.strip("-") in ("inf", "nan") or word[-1:].isdecimal()):
        return f"{name}={word.replace(',', '')}"
    if word in get_args(hint) or (hint is str and word in ("auto", "cpu", "cuda", "mps")):
        return f'{name}="{word}"'
    keyword = f"{name}={not flag[1]}" if hint is bool else name
    return f"{keyword} {word}".rstrip()


def _checked(lines: Iterable[str]) -> list[str]:
    """The lines as records: no line ends and no NUL inside."""
    if isinstance(lines, str | bytes):
        raise TypeError(f"give a list of lines, not {type(lines).__name__}")
    found = list(lines)
    for number, line in enumerate(found, start=1):
        if not isinstance(line, str):
            raise TypeError(f"line {number:,} is of type {type(line).__name__}, not str")
        if SURROGATE.search(line):
            raise ValueError(f"line {number:,} holds half of a surrogate pair, which is not text")
    return [one_line(line) for line in found]
