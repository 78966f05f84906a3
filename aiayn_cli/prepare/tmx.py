"""Pairs from TMX, the XML format of translation memories, read as a stream.

XML can exhaust the reader's memory (entities that expand to many others), or make it read files and addresses of the
attacker's choice. So a file that declares entities is refused, the DTD that it names is never read, and an unknown
entity is an error instead of a gap in the text.
"""

import re
import xml.parsers.expat as expat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

from aiayn_cli.errors import DataError
from aiayn_cli.prepare.formats import CHUNK_PAIRS, Chunk, OneFile, Pair, ReadCounts, unzip
from aiayn_cli.text.compression import UTF_16_MARKS
from aiayn_cli.text.languages import language_fit
from aiayn_cli.text.lines import BOM, map_line_breaks, read_pieces, transcode

_READ_BYTES = 1 << 16
_LONGEST_SEGMENT = 1_000_000  # characters; anything longer is an attempt to exhaust the memory
_CODE_ELEMENTS = {"bpt", "ept", "it", "ph", "ut", "sub"}  # codes of another program, not text of the segment
_LANG_ATTRIBUTES = ("xml:lang", "lang")  # the second is of TMX 1.1
_LINE_BREAK = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")  # with the indentation of the next line
_DECLARATION = re.compile(rb"\A\s*<\?xml\s[^>]*>")
_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([\w.-]+)")
_UNIT_END = re.compile(rb"</tu\s*>")
_LONGEST_END_TAG = 100  # bytes


@dataclass(frozen=True)
class TmxPairs(OneFile):
    """Translation units that have both languages; others are skipped and counted."""

    src_lang: str  # in any standard
    tgt_lang: str
    drop_bad_bytes: bool = False  # drop and count a unit that is no XML, instead of stopping there

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        units = _UnitParser(self.file.name, (self.src_lang, self.tgt_lang), self.drop_bad_bytes)
        pairs: list[Pair] = []
        with self.file.open() as file:
            pieces = read_pieces(file, self.file.name, lambda: f"line {units.line:,}", _READ_BYTES)
            for piece in chain(_as_utf8(pieces, self.file.name), [b""]):
                pairs += units.parse(piece)
                if len(pairs) >= CHUNK_PAIRS or (pairs and not piece):
                    counts.pairs += len(pairs)
                    yield unzip(pairs)
                    pairs = []
        counts.pairs += units.dropped
        counts.bad_bytes += units.dropped
        counts.skipped += units.skipped
        counts.mapped += units.mapped
        if not units.found:
            raise DataError(f"{self.file.name} has no translation unit (<tu>)", "give a TMX file")
        if units.skipped == units.found:
            codes = [f"{code or 'no code'} ({n:,})" for code, n in units.lang_codes.most_common()]
            problem = f"{self.file.name} has no unit with both {self.src_lang} and {self.tgt_lang}"
            raise DataError(
                f"{problem}; it has {', '.join(codes) or 'no text'}", "name two of its languages by --langs"
            )


def _as_utf8(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """XML in UTF-8, whatever encoding it declares; bytes that cannot be decoded become NUL."""
    first = next(pieces, b"")
    encoding = _encoding_of(first)
    try:
        b" ".decode(encoding, "replace")
    except LookupError as error:
        problem = f"{name}: unknown encoding ({error})"
        raise DataError(problem, "convert it to UTF-8, and declare that in its first line") from error
    pieces = chain([first.removeprefix(BOM)], pieces)
    if encoding != "utf-8":
        pieces = transcode(pieces, encoding)
    # Without the declaration, which is wrong by now, a blank line may come first; line numbers stay.
    yield _DECLARATION.sub(lambda match: re.sub(rb"[^\n]", b" ", match[0]), next(pieces))
    yield from pieces


def _encoding_of(start: bytes) -> str:
    """What the first bytes show; else what they declare."""
    if start.startswith(UTF_16_MARKS):
        return "utf-16"
    if b"\0" in start[:2]:
        return "utf-16-be" if start[:1] == b"\0" else "utf-16-le"
    with suppress(UnicodeDecodeError):
        if not start[: start.rfind(b"<")].decode().isascii():
            return "utf-8"
    declaration = _DECLARATION.match(start.removeprefix(BOM))
    declared = _ENCODING.search(declaration[0]) if declaration else None
    name = declared[1].decode().lower() if declared else "utf-8"
    return "utf-8" if name.startswith(("utf-16", "utf8", "us-ascii")) else name


class _RefusedError(Exception):
    """Well-formed XML that is not read: why, its line, column and byte, and whether its unit can be dropped."""


class _UnitParser:
    """Collects the texts of <tu><tuv xml:lang="..."><seg>...</seg></tuv></tu>."""

    def __init__(self, name: str, langs: tuple[str, str], drop: bool) -> None:
        self.found = 0  # units
        self.skipped = 0  # units without both languages
        self.dropped = 0  # units that are no XML
        self.mapped = 0  # line breaks that became a blank
        self.lang_codes = Counter[str]()  # of all texts
        self._name, self._langs, self._drop = name, langs, drop
        self._pairs: list[Pair] = []
        self._lang = ""
        self._length = 0
        self._codes = 0  # depth of elements that hold no text
        self._lines_before = 0  # what the parser was given
        self._bad: DataError | None = None  # what is wrong with the unit whose end has not come yet
        self._rest = b""  # the last bytes of that so far
        self._new_parser(b"")

    def _new_parser(self, start: bytes) -> None:
        self._unit: list[tuple[str, str]] | None = None  # language and text of each variant of the open unit so far
        self._text: list[str] | None = None  # of the open segment
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse_declaration
        self._parser.SkippedEntityHandler = self._refuse_entity
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        self._parser.Parse(start, False)
        self._given = len(start)  # bytes that the parser had

    def parse(self, piece: bytes) -> list[Pair]:
        """Read the next piece, empty at the end; give the pairs that it completes. Raises DataError."""
        self._pairs = []
        rest = self._pass_over(piece) if self._bad else piece
        while not self._bad:
            try:
                self._parser.Parse(rest, not piece)
            except (expat.ExpatError, _RefusedError) as error:
                rest = self._pass_over(rest[self._judge(error, rest) :])
            else:
                self._given += len(rest)
                return self._pairs
        if not piece:
            raise self._bad
        return self._pairs

    @property
    def line(self) -> int:
        return self._lines_before + self._parser.CurrentLineNumber

    def _judge(self, error: Exception, given: bytes) -> int:
        """Raise what is wrong, or begin to drop its unit: the place in the bytes given last where the error is."""
        if isinstance(error, expat.ExpatError):
            why, line, column = expat.ErrorString(error.code), error.lineno, error.offset
            byte, can_drop = self._parser.ErrorByteIndex, self._unit is not None
        else:
            why, line, column, byte, can_drop = error.args
        place = max(byte - self._given, 0)
        hint = (
            "repair the file, or drop such units: --on-bad-bytes drop"
            if can_drop
            else "repair the file, or convert it to TSV"
        )
        if given[place : place + 1] >= b"\x80":
            hint = "the file is not in the encoding that it declares: declare the right one in its first line"
        self._bad = DataError(f"{self._name}:{self._lines_before + line}: {why} (column {column + 1})", hint)
        if not (can_drop and self._drop):
            raise self._bad from error
        self.dropped += 1
        self._lines_before += line - 1
        self._new_parser(b"<tmx><body>")
        return place

    def _pass_over(self, piece: bytes) -> bytes:
        """What follows the end of a bad unit; nothing, if that has not come yet."""
        piece = self._rest + piece
        end = _UNIT_END.search(piece)
        size = end.end() if end else max(len(piece) - _LONGEST_END_TAG, 0)
        self._lines_before += piece.count(b"\n", 0, size)
        if end:
            self._bad = None
        self._rest = b"" if end else piece[size:]
        return piece[size:] if end else b""

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._text is not None:
            self._codes += bool(self._codes) or name in _CODE_ELEMENTS
        elif name == "tu":
            self.found += 1
            self._unit = []
        elif name == "tuv":
            self._lang = next((attributes[key] for key in _LANG_ATTRIBUTES if key in attributes), "")
            self.lang_codes[self._lang] += 1
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
                if self._unit is not None:
                    self._unit.append((self._lang, text))
                self._text = None
        elif name == "tu" and self._unit is not None:
            src, tgt = (_choose(self._unit, lang) for lang in self._langs)
            self._unit = None
            if src is None or tgt is None:
                self.skipped += 1
            else:
                self._pairs.append((src, tgt))

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._codes:
            self._length += len(text)
            if self._length > _LONGEST_SEGMENT:
                self._refuse(f"a segment of more than {_LONGEST_SEGMENT:,} characters")
            self._text.append(text)

    def _refuse_declaration(self, name: str, *_: Any) -> None:
        self._refuse(f"it declares the entity {name}")

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            self._refuse(f"unknown entity &{name};", self._unit is not None)

    def _refuse(self, why: str, can_drop: bool = False) -> NoReturn:
        parser = self._parser
        raise _RefusedError(
            why, parser.CurrentLineNumber, parser.CurrentColumnNumber, parser.CurrentByteIndex, can_drop
        )


def _choose(unit: Sequence[tuple[str, str]], lang: str) -> str | None:
    """The text in the code that fits a language best, the first of several."""
    code, text = max(unit, key=lambda variant: language_fit(variant[0], lang), default=("", ""))
    return text if unit and language_fit(code, lang) else None
