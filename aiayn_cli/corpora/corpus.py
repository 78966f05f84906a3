"""What a corpus consists of: where its files are, what they hold and how they are split.

A count, size or hash that nobody has confirmed is left out or marked `approximate`, so that users are never told that
good data is bad.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
    """Pairs of one origin.

    Attributes:
        name: for tables and --weight.
        sides: a file for each of the two languages.
        format: "lines": a record a line; "segments": <seg id="..."> lines (SGML and XML test sets); "talks": a record
            a line, between lines in tags that describe the talk (IWSLT).
        pairs: how many there are.
        approximate: the number is an estimate.
        titles: of "talks": keep the texts of titles and descriptions, without their tags.
        md5: by language, of the records in the first direction, each right-trimmed and followed by LF.
    """

    name: str
    sides: Mapping[str, TextFile]
    format: Format = "lines"
    pairs: int | None = None
    approximate: bool = False
    titles: bool = False
    md5: Mapping[str, str] = field(default_factory=dict)

    def without_hashes(self) -> "Part":
        """The part in the other direction, whose files with a role are others."""
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
    settings: Mapping[str, Any] = field(default_factory=dict)  # fields of DataConfig that belong to it
    like: Mapping[str, "Corpus"] = field(default_factory=dict)  # the same as others prepare it, by their name

    def parts(self) -> Iterator[tuple[Split, Part]]:
        for split in SPLITS:
            for part in getattr(self, split):
                yield split, part

    def archives(self) -> list[Archive]:
        """What is downloaded, each archive once, in the order of its first use."""
        texts = (text for _, part in self.parts() for text in part.sides.values())
        return list({text.archive.file: text.archive for text in texts}.values())

    def download_bytes(self) -> Amount:
        return Amount.total([Amount(archive.bytes, archive.approximate) for archive in self.archives()])

    def train_pairs(self) -> Amount:
        """Training pairs; unknown for the built-in corpus."""
        pairs = [Amount(part.pairs, part.approximate) for part in self.train]
        return Amount.total(pairs) if pairs else Amount(None)

    def reverse(self) -> "Corpus":
        """The other direction, named so."""
        langs = f"{self.src_lang}-{self.tgt_lang}", f"{self.tgt_lang}-{self.src_lang}"
        return replace(
            self,
            name=self.name.replace(*langs),
            src_lang=self.tgt_lang,
            tgt_lang=self.src_lang,
            train=tuple(part.without_hashes() for part in self.train),
            valid=tuple(part.without_hashes() for part in self.valid),
            test=tuple(part.without_hashes() for part in self.test),
            like={name: corpus.reverse() for name, corpus in self.like.items()},
        )


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


@dataclass(frozen=True)
class CorpusList:
    """What `aiayn prepare --list` prints."""

    corpora: tuple[ListedCorpus, ...]

    @classmethod
    def of(cls, corpora: Iterable[Corpus]) -> "CorpusList":
        return cls(
            tuple(
                ListedCorpus(
                    corpus.name,
                    f"{corpus.src_lang}-{corpus.tgt_lang}",
                    corpus.train_pairs(),
                    corpus.download_bytes(),
                    corpus.licence,
                    corpus.description,
                    {name: variant.description for name, variant in corpus.like.items()},
                )
                for corpus in corpora
            )
        )

    def __str__(self) -> str:
        rows = [("corpus", "pair", "pairs", "download", "licence")]
        rows += [
            (each.name, each.langs, _count(each.pairs), _size(each.download_bytes), each.licence)
            for each in self.corpora
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = []
        for row, each in zip(rows, (None, *self.corpora), strict=True):
            cells = [row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2].rjust(widths[2]), row[3].rjust(widths[3])]
            lines.append("  ".join((*cells, row[4])).rstrip())
            if each is not None:
                lines += _indent(each.description)
                for name, description in each.like.items():
                    lines += _indent(f"--like {name}: {description}")
        return "\n".join(
            (
                *lines,
                "",
                "Each but demo has the other direction too, such as wmt14-de-en; ~ means about, - means not known.",
                "opus:CORPUS/VERSION --langs SRC-TGT is any corpus of OPUS, such as opus:TED2020/v1.",
            )
        )


def _indent(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _count(amount: Amount) -> str:
    return "-" if amount.number is None else f"{'~' if amount.approximate else ''}{amount.number:,}"


def _size(amount: Amount) -> str:
    if amount.number is None:
        return "-"
    if not amount.number:
        return "none"
    megabytes = amount.number / 1e6
    text = f"{megabytes / 1e3:.2f} GB" if megabytes >= 1e3 else f"{megabytes:.1f} MB"
    return f"{'~' if amount.approximate else ''}{text}"
