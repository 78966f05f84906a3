"""What a corpus consists of: where its files are, what they hold and how they are split.

A count, size or hash that nobody has confirmed is omitted or marked `approximate`, so that good data is never
reported as bad.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from aiayn_cli import logs

Format = Literal["lines", "segments", "talks"]
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, Split, Split] = ("train", "valid", "test")
_WIDTH = 100  # of descriptions in the list


@dataclass(frozen=True)
class Archive:
    """A file to download."""

    file: str  # its name in the folder of downloads; no other archive has it
    urls: tuple[str, ...]  # mirrors of the same bytes, tried in this order
    bytes: int | None = None
    approximate: bool = False  # the size is only good for estimates
    sha256: str = ""  # where it is published
    md5: str = ""  # likewise, where there is no SHA-256
    instead: "Archive | None" = None  # another container of the same members, for when no URL responds

    @property
    def exact_bytes(self) -> int | None:
        return None if self.approximate else self.bytes


@dataclass(frozen=True)
class TextFile:
    """One side of a part."""

    archive: Archive
    member: str = ""  # path inside; empty: the archive is the file, perhaps compressed; "{role}": src or ref, by side


@dataclass(frozen=True)
class Part:
    """Pairs of one origin."""

    name: str  # shown in tables, and accepted by --weight
    sides: Mapping[str, TextFile]  # by language
    # "lines": one record per line; "segments": <seg id="..."> (SGML and XML test sets); "talks": one record per line,
    # between lines in tags that describe the talk (IWSLT).
    format: Format = "lines"
    pairs: int | None = None  # how many there are, if known
    approximate: bool = False  # whether this number is an estimate
    titles: bool = False  # whether "talks" keep the texts of titles and descriptions, without their tags
    # By language, of the records in the corpus's first direction, each right-trimmed and followed by LF.
    md5: Mapping[str, str] = field(default_factory=dict)

    def without_hashes(self) -> "Part":
        """The part in the other direction: members with a role in their names are then other files."""
        has_roles = any("{role}" in text.member for text in self.sides.values())
        return replace(self, md5={}) if has_roles else self


@dataclass(frozen=True)
class Amount:
    """A number that may be unknown (None) or an estimate."""

    number: int | None
    approximate: bool = False

    @classmethod
    def total(cls, amounts: "Sequence[Amount]") -> "Amount":
        """Sum up; one unknown or estimated amount makes the sum so."""
        numbers = [amount.number for amount in amounts if amount.number is not None]
        if len(numbers) < len(amounts):
            return cls(None)
        return cls(sum(numbers), any(amount.approximate for amount in amounts))


@dataclass(frozen=True)
class Corpus:
    """A corpus, in one direction."""

    name: str  # what the user types
    src_lang: str
    tgt_lang: str
    vocab_size: int  # sub-words that suit it, special tokens included
    description: str  # one line for the list
    licence: str
    train: tuple[Part, ...] = ()
    valid: tuple[Part, ...] = ()
    test: tuple[Part, ...] = ()
    valid_every: int = 0  # each n-th training pair, counted over all parts, is for validation; 0: none
    settings: Mapping[str, Any] = field(default_factory=dict)  # values of DataConfig's fields
    like: Mapping[str, "Corpus"] = field(default_factory=dict)  # variants, by value of --like

    def parts(self) -> Iterator[tuple[Split, Part]]:
        for split in SPLITS:
            for part in getattr(self, split):
                yield split, part

    def archives(self) -> list[Archive]:
        """All archives, each once, in the order of their first use."""
        texts = (text for _, part in self.parts() for text in part.sides.values())
        return list({text.archive.file: text.archive for text in texts}.values())

    def reverse(self) -> "Corpus":
        """The corpus in the other direction, with its languages exchanged in the name."""
        langs = f"{self.src_lang}-{self.tgt_lang}", f"{self.tgt_lang}-{self.src_lang}"
        like = {name: corpus.reverse() for name, corpus in self.like.items()}
        changes: dict[str, Any] = {split: tuple(map(Part.without_hashes, getattr(self, split))) for split in SPLITS}
        changes |= {"src_lang": self.tgt_lang, "tgt_lang": self.src_lang, "like": like}
        return replace(self, name=self.name.replace(*langs), **changes)


@dataclass(frozen=True)
class ListedCorpus:
    """A row of `aiayn prepare --list`."""

    name: str
    langs: str
    pairs: Amount  # for training, before cleaning
    download_bytes: Amount
    licence: str
    description: str
    like: dict[str, str]  # values of --like, and what they change

    @classmethod
    def of(cls, corpus: Corpus) -> "ListedCorpus":
        parts = [Amount(part.pairs, part.approximate) for part in corpus.train]
        pairs = Amount.total(parts) if parts else Amount(None)  # unknown for the built-in corpus
        size = Amount.total([Amount(archive.bytes, archive.approximate) for archive in corpus.archives()])
        like = {name: variant.description for name, variant in corpus.like.items()}
        langs = f"{corpus.src_lang}-{corpus.tgt_lang}"
        return cls(corpus.name, langs, pairs, size, corpus.licence, corpus.description, like)


@dataclass(frozen=True)
class CorpusList:
    """What `aiayn prepare --list` prints."""

    corpora: tuple[ListedCorpus, ...]

    def __str__(self) -> str:
        cells = [(each.name, each.langs, _count(each.pairs), _size(each.download_bytes)) for each in self.corpora]
        titles = "corpus", "langs", "pairs", "download"
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]

        def line(row: tuple[str, str, str, str], licence: str) -> str:
            (name, langs), (pairs, size) = map(str.ljust, row[:2], widths), map(str.rjust, row[2:], widths[2:])
            return f"{name}  {langs}  {pairs}  {size}  {licence}"

        lines = [line(titles, "licence")]
        for row, each in zip(cells, self.corpora, strict=True):
            lines.append(line(row, each.licence))
            for text in (each.description, *(f"--like {name}: {change}" for name, change in each.like.items())):
                lines += textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
        lines += [
            "",
            "Every corpus but demo exists in both directions, such as wmt14-de-en. ~ means about, - unknown.",
            "opus:CORPUS/VERSION --langs SRC-TGT is any corpus of OPUS, such as opus:TED2020/v1.",
        ]
        return "\n".join(lines)


def _count(amount: Amount) -> str:
    return "-" if amount.number is None else f"{'~' * amount.approximate}{amount.number:,}"


def _size(amount: Amount) -> str:
    if not amount.number:
        return "-" if amount.number is None else "none"
    return f"{'~' * amount.approximate}{logs.size_text(amount.number)}"
