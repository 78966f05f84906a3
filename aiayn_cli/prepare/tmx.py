"""Pairs from TMX, the XML format of translation memories, read as a stream.

XML can be made to fill the memory of whoever reads it, by entities that stand for many others, or to make him read
files and addresses of the attacker's choice. So a file that declares entities is refused, the DTD that it may name
is never looked at, and an entity that XML itself does not know is an error and not a gap in the text.
"""

import re
import xml.parsers.expat as expat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from aiayn_cli.errors import DataError
from aiayn_cli.prepare.pairs import CHUNK_PAIRS, Chunk, Input, ReadCounts
from aiayn_cli.text.lines import map_line_breaks, read_pieces

_READ_BYTES = 1 << 16
_LONGEST_SEGMENT = 1_000_000  # characters; what is longer is no sentence but an attempt to fill the memory
_CODE_ELEMENTS = {"bpt", "ept", "it", "ph", "ut", "sub"}  # hold codes of another program, and no text of the segment
_LANG_ATTRIBUTES = ("xml:lang", "lang")  # the second is of TMX 1.1
_LINE_BREAK = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")  # with the indentation of the next line


@dataclass(frozen=True)
class TmxPairs:
    """Translation units that have both languages.

    Attributes:
        file: the TMX file.
        src_lang: code of the source language; "en" is found as en, EN-US or en_GB.
        tgt_lang: code of the target language, likewise.
    """

    file: Input
    src_lang: str
    tgt_lang: str

    def inputs(self) -> Sequence[tuple[str, Input]]:
        return (("both", self.file),)

    def settings(self) -> dict[str, Any]:
        return {}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read all units; those without both languages are skipped and counted.

        Raises:
            DataError: the file is no well-formed XML, or uses entities; with line and column.
        """
        units = _UnitParser(self.src_lang, self.tgt_lang)
        src: list[str] = []
        tgt: list[str] = []
        with self.file.open() as file:
            pieces = read_pieces(file, self.file.name, lambda: f"line {units.position()[0]:,}", _READ_BYTES)
            for piece in chain(pieces, [b""]):
                at_end = not piece
                try:
                    units.feed(piece, at_end)
                except (expat.ExpatError, _RefusedError) as error:
                    raise self._error(units, error) from error
                except (LookupError, ValueError) as error:  # expat asks Python about encodings that it does not know
                    problem = f"{self.file.name}: the encoding that it names cannot be read ({error})"
                    raise DataError(problem, "convert it to UTF-8, and name that in its first line") from error
                for source, target in units.take():
                    src.append(source)
                    tgt.append(target)
                if len(src) >= CHUNK_PAIRS or (at_end and src):
                    counts.pairs += len(src)
                    yield src, tgt
                    src, tgt = [], []
        counts.skipped += units.skipped
        counts.mapped += units.mapped
        if not units.found_unit:
            raise DataError(f"{self.file.name} has no translation unit", "is it a TMX file?")

    def _error(self, units: "_UnitParser", error: Exception) -> DataError:
        line, column = units.position()
        why = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        hint = "repair the file, or convert it to TSV; nothing of it is skipped silently"
        return DataError(f"{self.file.name}:{line}: {why} (column {column})", hint)


class _RefusedError(Exception):
    """Well-formed XML that is not read."""


class _UnitParser:
    """Collects the texts of <tu><tuv xml:lang="..."><seg>...</seg></tuv></tu>.

    Attributes:
        skipped: units without both languages.
        mapped: characters that end lines and became a blank.
        found_unit: whether there was any unit.
    """

    def __init__(self, src_lang: str, tgt_lang: str) -> None:
        self.skipped = 0
        self.mapped = 0
        self.found_unit = False
        self._langs = _plain_lang(src_lang), _plain_lang(tgt_lang)
        self._pairs: list[tuple[str, str]] = []
        self._unit: list[tuple[str, str]] = []  # language and text of each variant so far
        self._lang = ""
        self._text: list[str] | None = None  # of the segment that has begun
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

    def feed(self, piece: bytes, at_end: bool) -> None:
        self._parser.Parse(piece, at_end)

    def take(self) -> list[tuple[str, str]]:
        pairs, self._pairs = self._pairs, []
        return pairs

    def position(self) -> tuple[int, int]:
        return self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1

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
                self._unit.append((self._lang, self._clean("".join(self._text))))
                self._text = None
        elif name == "tu":
            self._finish_unit()

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._codes:
            self._length += len(text)
            if self._length > _LONGEST_SEGMENT:
                raise _RefusedError(f"a segment of more than {_LONGEST_SEGMENT:,} characters")
            self._text.append(text)

    def _clean(self, text: str) -> str:
        text, lines = _LINE_BREAK.subn(" ", text.strip())
        text, others = map_line_breaks(text)
        self.mapped += lines + others
        return text

    def _finish_unit(self) -> None:
        sides = [_choose(self._unit, lang) for lang in self._langs]
        if sides[0] is None or sides[1] is None:
            self.skipped += 1
        else:
            self._pairs.append((sides[0], sides[1]))

    def _refuse_declaration(self, name: str, *_: Any) -> None:
        raise _RefusedError(f"it declares the entity {name}")

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            raise _RefusedError(f"unknown entity &{name};")


def _plain_lang(code: str) -> str:
    return code.lower().replace("_", "-")


def _choose(unit: Sequence[tuple[str, str]], lang: str) -> str | None:
    """Find the variant in a language: of this very code, else the first with more after it, as en-us for en."""
    exact = (text for code, text in unit if code == lang)
    longer = (text for code, text in unit if code.startswith(f"{lang}-"))
    return next(exact, next(longer, None))
