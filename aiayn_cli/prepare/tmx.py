"""Pairs from TMX, the XML format of translation memories, read as a stream.

XML can exhaust the reader's memory (entities that expand to many others), or make it read files and addresses of the
attacker's choice. So a file that declares entities is refused, the DTD that it names is never read, and an unknown
entity is an error instead of a gap in the text.
"""

import re
import xml.parsers.expat as expat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from aiayn_cli.errors import DataError
from aiayn_cli.prepare.formats import CHUNK_PAIRS, Chunk, OneFile, Pair, ReadCounts, unzip
from aiayn_cli.text.lines import map_line_breaks, read_pieces

_READ_BYTES = 1 << 16
_LONGEST_SEGMENT = 1_000_000  # characters; anything longer is an attempt to exhaust the memory
_CODE_ELEMENTS = {"bpt", "ept", "it", "ph", "ut", "sub"}  # codes of another program, not text of the segment
_LANG_ATTRIBUTES = ("xml:lang", "lang")  # the second is of TMX 1.1
_LINE_BREAK = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")  # with the indentation of the next line


@dataclass(frozen=True)
class TmxPairs(OneFile):
    """Translation units that have both languages; others are skipped and counted."""

    src_lang: str  # "en" is found as en, EN-US or en_GB
    tgt_lang: str

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        units = _UnitParser(self.file.name, self.src_lang, self.tgt_lang)
        pairs: list[Pair] = []
        with self.file.open() as file:
            pieces = read_pieces(file, self.file.name, lambda: f"line {units.line:,}", _READ_BYTES)
            for piece in chain(pieces, [b""]):
                pairs += units.parse(piece)
                if len(pairs) >= CHUNK_PAIRS or (pairs and not piece):
                    counts.pairs += len(pairs)
                    yield unzip(pairs)
                    pairs = []
        counts.skipped += units.skipped
        counts.mapped += units.mapped
        if not units.found_unit:
            raise DataError(f"{self.file.name} has no translation unit (<tu>)", "give a TMX file")


class _RefusedError(Exception):
    """Well-formed XML that is not read."""


class _UnitParser:
    """Collects the texts of <tu><tuv xml:lang="..."><seg>...</seg></tuv></tu>."""

    def __init__(self, name: str, src_lang: str, tgt_lang: str) -> None:
        self.skipped = 0  # units without both languages
        self.mapped = 0  # line breaks that became a blank
        self.found_unit = False
        self._name = name
        self._langs = _plain_lang(src_lang), _plain_lang(tgt_lang)
        self._pairs: list[Pair] = []
        self._unit: list[tuple[str, str]] = []  # language and text of each variant so far
        self._lang = ""
        self._text: list[str] | None = None  # of the open segment
        self._length = 0
        self._codes = 0  # depth of elements that hold no text
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse_declaration
        self._parser.SkippedEntityHandler = self._refuse_entity
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def parse(self, piece: bytes) -> list[Pair]:
        """Read the next piece, empty at the end; give the pairs that it completes. Raises DataError."""
        self._pairs = []
        try:
            self._parser.Parse(piece, not piece)
        except (expat.ExpatError, _RefusedError) as error:
            why = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
            hint = "repair the file, or convert it to TSV"
            column = self._parser.CurrentColumnNumber + 1
            raise DataError(f"{self._name}:{self.line}: {why} (column {column})", hint) from error
        except (LookupError, ValueError) as error:  # expat asks Python about encodings that it does not know
            problem = f"{self._name}: unknown encoding ({error})"
            raise DataError(problem, "convert it to UTF-8, and declare that in its first line") from error
        return self._pairs

    @property
    def line(self) -> int:
        return self._parser.CurrentLineNumber

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._text is not None:
            self._codes += bool(self._codes) or name in _CODE_ELEMENTS
        elif name == "tu":
            self.found_unit = True
            self._unit = []
        elif name == "tuv":
            self._lang = next((_plain_lang(attributes[key]) for key in _LANG_ATTRIBUTES if key in attributes), "")
        elif name == "seg":
            self._text, self._length, self._codes = [], 0, 0

    def _end(self, name: str) -> None:
        if self._text is not None:
            if self._codes:
                self._codes -= 1
            elif name == "seg":
                text, lines = _LINE_BREAK.subn(" ", "".join(self._text).strip())
                text, others = map_line_breaks(text)
                self.mapped += lines + others
                self._unit.append((self._lang, text))
                self._text = None
        elif name == "tu":
            src, tgt = (_choose(self._unit, lang) for lang in self._langs)
            if src is None or tgt is None:
                self.skipped += 1
            else:
                self._pairs.append((src, tgt))

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._codes:
            self._length += len(text)
            if self._length > _LONGEST_SEGMENT:
                raise _RefusedError(f"a segment of more than {_LONGEST_SEGMENT:,} characters")
            self._text.append(text)

    def _refuse_declaration(self, name: str, *_: Any) -> None:
        raise _RefusedError(f"it declares the entity {name}")

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            raise _RefusedError(f"unknown entity &{name};")


def _plain_lang(code: str) -> str:
    return code.lower().replace("_", "-")


def _choose(unit: Sequence[tuple[str, str]], lang: str) -> str | None:
    """The text in a language: of exactly this code, else of the first that extends it, as en-us extends en."""
    exact = (text for code, text in unit if code == lang)
    longer = (text for code, text in unit if code.startswith(f"{lang}-"))
    return next(exact, next(longer, None))
