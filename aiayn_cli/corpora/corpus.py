"""What is known of a corpus: where its files are, what is in them, how it is split. The table is in corpus_table.py.

A count, a size or a hash that nobody has confirmed is left out or marked `approximate`, so that a user is never told
that good data is bad.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Format = Literal["lines", "segments", "talks"]
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, Split, Split] = ("train", "valid", "test")


@dataclass(frozen=True)
class Archive:
    """A file to download.

    Attributes:
        file: its name in the folder of downloads; no other archive has it.
        urls: where it is, the same bytes at each; the first that answers is taken.
        bytes: its size.
        approximate: the size is a rough one, good for estimates only.
        sha256: of its bytes, where somebody has published it.
        md5: likewise, where there is nothing better.
        instead: another container of the same members, taken where none of the URLs answers.
    """

    file: str
    urls: tuple[str, ...]
    bytes: int | None = None
    approximate: bool = False
    sha256: str = ""
    md5: str = ""
    instead: "Archive | None" = None

    @property
    def exact_bytes(self) -> int | None:
        """The size that a whole file has, if it is known exactly."""
        return None if self.approximate else self.bytes


@dataclass(frozen=True)
class TextFile:
    """One side of a part.

    Attributes:
        archive: what holds it.
        member: its path inside; empty where the archive is that file itself, perhaps compressed. "{role}" stands for
            src or ref, after the side that it is on.
    """

    archive: Archive
    member: str = ""


@dataclass(frozen=True)
class Part:
    """Pairs of one origin.

    Attributes:
        name: what tables and --weight call it.
        sides: a file for each of the two languages.
        format: "lines": a record a line; "segments": <seg id="..."> lines (SGML and XML test sets); "talks": a record
            a line, between lines in tags that describe the talk (IWSLT).
        pairs: how many there are.
        approximate: the number is only roughly known.
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


@dataclass(frozen=True)
class Amount:
    """A number that may be unknown (None), or only roughly known."""

    number: int | None
    approximate: bool = False

    @classmethod
    def total(cls, amounts: "Sequence[Amount]") -> "Amount":
        """Sum up; what is unknown or rough in one is so in the sum."""
        numbers = [amount.number for amount in amounts if amount.number is not None]
        if len(numbers) < len(amounts):
            return cls(None)
        return cls(sum(numbers), any(amount.approximate for amount in amounts))


@dataclass(frozen=True)
class Corpus:
    """A corpus, in one direction.

    Attributes:
        name: what the user types.
        src_lang: code of the source language.
        tgt_lang: code of the target language.
        vocab_size: sub-words that suit it, special tokens included.
        description: one line for the list.
        licence: what is known of it, in a few words.
        train: training pairs, in this order.
        valid: validation pairs.
        test: test pairs.
        valid_every: validation pairs are each n-th training pair, counted over all parts; 0 where they are not.
        settings: fields of DataConfig that belong to it.
        like: the same corpus as others prepare it, by the name of whom it follows.
    """

    name: str
    src_lang: str
    tgt_lang: str
    vocab_size: int
    description: str
    licence: str
    train: tuple[Part, ...] = ()
    valid: tuple[Part, ...] = ()
    test: tuple[Part, ...] = ()
    valid_every: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    like: Mapping[str, "Corpus"] = field(default_factory=dict)

    def parts(self) -> Iterator[tuple[Split, Part]]:
        """Give all parts, with the split that each is for."""
        for split in SPLITS:
            for part in getattr(self, split):
                yield split, part

    def archives(self) -> list[Archive]:
        """List what is to be downloaded, each archive once, in the order of its first use."""
        texts = (text for _, part in self.parts() for text in part.sides.values())
        return list({text.archive.file: text.archive for text in texts}.values())

    def download_bytes(self) -> "Amount":
        """Sum up the sizes of all archives."""
        return Amount.total([Amount(archive.bytes, archive.approximate) for archive in self.archives()])

    def train_pairs(self) -> "Amount":
        """Sum up the training pairs; unknown for the corpus that the package makes itself."""
        return (
            Amount(None)
            if not self.train
            else Amount.total([Amount(part.pairs, part.approximate) for part in self.train])
        )

    def reverse(self) -> "Corpus":
        """Give the other direction, named so."""
        langs = f"{self.src_lang}-{self.tgt_lang}", f"{self.tgt_lang}-{self.src_lang}"
        return replace(
            self,
            name=self.name.replace(*langs),
            src_lang=self.tgt_lang,
            tgt_lang=self.src_lang,
            train=_without_hashes(self.train),
            valid=_without_hashes(self.valid),
            test=_without_hashes(self.test),
            like={name: corpus.reverse() for name, corpus in self.like.items()},
        )


def _without_hashes(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Drop the hashes of files that are others in the other direction."""
    return tuple(
        replace(part, md5={}) if any("{role}" in text.member for text in part.sides.values()) else part
        for part in parts
    )
