"""The options of `aiayn translate`: one frozen object for each concern, made once and passed whole."""

import math
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from aiayn_cli.errors import ConfigError, UsageError
from aiayn_cli.recipe_keys import MOST_HYPOTHESES, DecodingConfig, Precision

# A lone argument like this is more likely a missing file than text.
_FILE_NAME = re.compile(
    r"(?!www\.|\w+://)[^\s@]+\.(?:txt|text|tsv|csv|jsonl?|md|x?html?|xml|src|tgt|ref|hyp|tok|[a-z]{2})"
    r"(?:\.(?:gz|xz|bz2|zst))?"
)

Engine = Literal["torch", "ctranslate2"]
Split = Literal["auto", "sentences", "length"]
FormatName = Literal["text", "jsonl"]  # the rows of formats.FORMATS
OnSuspect = Literal["keep", "retry", "empty", "copy", "fail"]

LONGEST_PASS = 1_000  # tokens of one pass on either side, whatever the options: memory stays bounded


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float = 1.0  # above 0; log p is divided by it: below 1 makes likely tokens likelier
    top_k: int = 0  # draw among the k likeliest tokens only; 0 = all
    # draw among the likeliest tokens that together have this probability at least; 1 = all (Holtzman et al. 2020,
    # "The Curious Case of Neural Text Degeneration"). Applied after temperature and top_k.
    top_p: float = 1.0
    seed: int = 0  # another one gives other outputs

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UsageError(
                f"--temperature {self.temperature} must be above 0 and finite",
                "for greedy search, use --beam 1 without --sample",
            )
        if not 0 < self.top_p <= 1:
            raise UsageError(f"--top-p {self.top_p} must be above 0 and at most 1", "0.9 is a common choice")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What a search does beyond DecodingConfig."""

    n_best: int = 1  # outputs for each line
    min_length: int = 0  # fewest tokens of an output, without its end token, where the longest length allows it
    max_length: int = 0  # most tokens of an output, without its end token; 0 = only DecodingConfig's max_extra
    no_repeat_ngram: int = 0  # no output holds the same N tokens in a row twice; 0 = no ban
    sampling: Sampling | None = None  # draw the outputs instead of searching for the best ones

    def __post_init__(self) -> None:
        if self.max_length and self.min_length > self.max_length:
            raise UsageError(
                f"--min-length {self.min_length} is more than --max-length {self.max_length}", "change one of them"
            )
        if self.min_length >= LONGEST_PASS:
            longest = f"the {LONGEST_PASS - 1:,} tokens that an output can have"
            raise UsageError(f"--min-length {self.min_length:,} is more than {longest}", "give a smaller number")


@dataclass(frozen=True, kw_only=True)
class DecodingOverrides:
    """Settings that replace those of the model's DecodingConfig; None = keep the model's."""

    beam_size: int | None = None
    alpha: float | None = None
    max_extra: int | None = None
    batch_tokens: int | None = None
    tree_rules: bool | None = None

    def over(self, config: DecodingConfig, search: SearchOptions) -> DecodingConfig:
        """The model's settings with the replaced ones; UsageError for more outputs than the beam holds, or too many."""
        try:
            changed = replace(config, **{name: value for name, value in vars(self).items() if value is not None})
        except ConfigError as error:  # which names the recipe's setting
            flag = f"--{error.key.rpartition('.')[2].removesuffix('_size').replace('_', '-')}"
            raise ConfigError(error.problem.replace(error.key, flag, 1), error.hint) from error
        if search.sampling is None and search.n_best > changed.beam_size:
            raise UsageError(
                f"--nbest {search.n_best} is more than the beam of {changed.beam_size} holds",
                f"add --beam {search.n_best}",
            )
        if search.n_best > MOST_HYPOTHESES:  # drawn together; a beam of so many was refused
            raise UsageError(
                f"--nbest {search.n_best} is more than {MOST_HYPOTHESES:,}, the most that fit in memory",
                "draw in several runs, each with another --seed",
            )
        return changed


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What computes; device and precision as in choose_device()."""

    models: tuple[Path, ...] = ()  # checkpoints or runs; several are an ensemble; none = the newest run
    device: str = "auto"
    gpus: int | None = None  # processes that share the lines, each on a GPU or ("cpu") the CPU; None = this one
    precision: Precision = "auto"
    engine: Engine = "torch"  # what searches
    int8: bool = False  # multiply by 8-bit weights
    in_processes: bool = True  # search many lines in forked processes, where the system can


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """What is read."""

    source: str = "-"  # file, "-" for stdin; compressed bytes are unpacked, whatever the name
    lines: tuple[str, ...] = ()  # text given on the command line, which is read instead of the source
    format: FormatName = "text"  # of the source
    # where a line is cut: sentences = where one ends; length = only where a line is too long for the model; auto =
    # sentences for models whose training text had hardly a line of several
    split: Split = "auto"
    prefix: Path | None = None  # file with the beginning of each output, one a line
    markup: bool = False  # carry each tag, placeholder and address through, as in MarkupTranslator
    glossary: Path | None = None  # file of terms that outputs must use, as in load_glossary()

    def __post_init__(self) -> None:
        if self.lines and self.source != "-":
            raise UsageError("text is given both as an argument and with --input", "drop one of them")
        names = shlex.join(self.lines)
        if self.lines and all(map(os.path.isfile, self.lines)):
            are = "is a file" if len(self.lines) == 1 else "are files"
            way = f"aiayn translate -i {names}" if len(self.lines) == 1 else f"cat {names} | aiayn translate"
            raise UsageError(f"{names} {are}, not text", f"write {way}")
        if len(self.lines) == 1 and _FILE_NAME.fullmatch(self.lines[0]):
            hint = f"for a file, write aiayn translate -i {names}; for text, echo {names} | aiayn translate"
            raise UsageError(f"{names} looks like the name of a file, but there is no such file", hint)
        if self.source == "-" == str(self.prefix) and not self.lines:
            raise UsageError("stdin cannot be read for two inputs", "give one of them as a file")


@dataclass(frozen=True, kw_only=True)
class OutputStyle:
    """What is written for each output."""

    format: FormatName = "text"  # text, or jsonl with one object for each output
    scores: bool = False  # text: the score and a TAB before each output; jsonl: also log p of each sub-word
    # text: a TAB and pairs such as 0-0 1-2 after each output; jsonl: the same as pairs of numbers
    alignments: bool = False


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where results go."""

    path: Path | None = None  # file that appears under its name when all is done; None = stdout
    style: OutputStyle = OutputStyle()  # of its records
    report: Path | None = None  # file for a JSON object on each line's best output
    # what to do about outputs that look wrong, as in Judge; "fail" ends with an error after the lines before
    on_suspect: OnSuspect = "keep"
    attention: Path | None = None  # page of HTML to write, which draws where the model looked for the first outputs
    keep: bool = False  # give the outputs in the result; without a path they are then not written


@dataclass(frozen=True)
class TranslateOptions:
    """All options of one run."""

    search: SearchOptions = SearchOptions()
    decoding: DecodingOverrides = DecodingOverrides()
    engine: EngineOptions = EngineOptions()
    text: TextOptions = TextOptions()
    output: OutputOptions = OutputOptions()

    def __post_init__(self) -> None:
        is_sampled = self.search.sampling is not None
        if is_sampled and self.text.glossary is not None:
            raise UsageError("--glossary does not work with --sample", "drop one of them")
        if is_sampled and self.decoding.beam_size is not None:
            raise UsageError(
                f"--beam {self.decoding.beam_size} has no effect with --sample",
                "drop one of them; --nbest is the number of outputs drawn",
            )


def options_from(given: Mapping[str, Any]) -> TranslateOptions:
    """Fill all groups from values by the names of their fields; what is not given has its default."""

    def group(kind: type[Any]) -> Any:
        return kind(**{each.name: given[each.name] for each in fields(kind) if each.name in given})

    kinds = (SearchOptions, DecodingOverrides, EngineOptions, TextOptions, OutputOptions)
    return TranslateOptions(*map(group, kinds))


def make_sampling(sample: bool, **given: float | None) -> Sampling | None:
    """The Sampling that options describe (None = its default); None without --sample, which refuses any value."""
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if sample:
        return Sampling(**chosen)
    for name, value in chosen.items():
        flag = f"--{name.replace('_', '-')}"
        raise UsageError(f"{flag} {value} needs --sample", f"add --sample, or drop {flag}")
    return None
