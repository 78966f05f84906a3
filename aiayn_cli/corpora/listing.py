"""What `aiayn prepare --list` prints."""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from aiayn_cli.corpora.corpus import Amount, Corpus

_WIDTH = 100  # of descriptions


@dataclass(frozen=True)
class ListedCorpus:
    """A row of the list.

    Attributes:
        name: what to type.
        langs: source and target language.
        pairs: for training, before cleaning.
        download_bytes: of all archives.
        licence: what is known of it.
        description: what it consists of.
        like: values of --like, and what they change.
    """

    name: str
    langs: str
    pairs: Amount
    download_bytes: Amount
    licence: str
    description: str
    like: dict[str, str]


@dataclass(frozen=True)
class CorpusList:
    """All corpora that have a name of their own."""

    corpora: tuple[ListedCorpus, ...]

    @classmethod
    def of(cls, corpora: Iterable[Corpus]) -> "CorpusList":
        """Make the list from the table."""
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
