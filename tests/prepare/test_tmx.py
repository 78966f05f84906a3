"""TMX gives the pairs of two languages; entities, and what is no XML, are refused with their line."""

import bz2
import gzip
import lzma
import xml.etree.ElementTree as ElementTree
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.prepare import tmx
from aiayn_cli.prepare.formats import ReadCounts
from aiayn_cli.prepare.sources import LocalFile, MadeText
from aiayn_cli.prepare.tmx import TmxPairs

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header/><body>\n'
TAIL = "</body></tmx>\n"


def unit(*variants: tuple[str, str]) -> str:
    inner = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in variants)
    return f"<tu>{inner}</tu>\n"


def read(content: str | bytes, src: str = "en", tgt: str = "de") -> tuple[list[tuple[str, str]], ReadCounts]:
    counts = ReadCounts()
    found = [
        pair
        for chunk in TmxPairs(
            MadeText("given.tmx", content if isinstance(content, bytes) else content.encode()), src, tgt
        ).read(counts)
        for pair in zip(*chunk, strict=True)
    ]
    assert counts.pairs == len(found)
    return found, counts


def test_units_of_both_languages_are_read_in_order_and_others_counted() -> None:
    body = (
        unit(("en", "one"), ("de", "eins"))
        + unit(("en", "two"), ("fr", "deux"))
        + unit(("de", "drei"), ("fr", "trois"), ("en", "three &amp; &#x66;our"))
        + unit(("en", "four"))
        + unit()
    )
    found, counts = read(HEAD + body + TAIL)
    assert found == [("one", "eins"), ("three & four", "drei")]
    assert counts.skipped == 3
    assert read(HEAD + body + TAIL, "de", "en")[0] == [(tgt, src) for src, tgt in found]
    assert read(HEAD + body + TAIL, "fr", "de")[0] == [("trois", "drei")]


@pytest.mark.parametrize(
    ("variants", "asked", "found"),
    [
        ([("EN-US", "a"), ("de_AT", "b")], "en-de", [("a", "b")]),
        ([("en-GB", "a"), ("en", "b"), ("de", "c")], "en-de", [("b", "c")]),
        ([("en-GB", "a"), ("en-US", "b"), ("de", "c")], "en-de", [("a", "c")]),
        ([("en-GB", "a"), ("en-US", "b"), ("de", "c")], "en_US-de", [("b", "c")]),
        ([("eng", "a"), ("de", "b")], "en-de", []),
        ([("zh-Hans-CN", "a"), ("zh-Hant", "b"), ("en", "c")], "zh_Hans-en", [("a", "c")]),
    ],
)
def test_a_language_is_found_with_its_region(
    variants: list[tuple[str, str]], asked: str, found: list[tuple[str, str]]
) -> None:
    src, tgt = asked.split("-")
    assert read(HEAD + unit(*variants) + TAIL, src, tgt)[0] == found


def test_the_attribute_of_old_files_is_known_too() -> None:
    old = '<tu><tuv lang="EN"><seg>a</seg></tuv><tuv lang="DE"><seg>b</seg></tuv></tu>'
    assert read(HEAD + old + TAIL)[0] == [("a", "b")]


def test_inline_codes_go_with_their_content_and_marked_text_stays() -> None:
    src = (
        'Click <bpt i="1">&lt;b&gt;</bpt>here<ept i="1">&lt;/b&gt;</ept><ph x="2">{img<sub>alt text</sub>}</ph>, '
        '<hi type="term">please <it pos="begin">[i]</it>now</hi>!'
    )
    assert read(HEAD + unit(("en", src), ("de", "Hier<ut>\\par</ut>!")) + TAIL)[0] == [
        ("Click here, please now!", "Hier!")
    ]


def test_line_ends_inside_a_segment_become_blanks_and_are_counted() -> None:
    found, counts = read(HEAD + unit(("en", "\n  one\n\t two\u2028three&#13;four \n"), ("de", "a&#x85;b")) + TAIL)
    assert found == [("one two three four", "a b")]
    assert counts.mapped == 4


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_the_encodings_that_xml_declares_are_read(encoding: str) -> None:
    name = encoding.removesuffix("-sig")
    text = HEAD.replace("UTF-8", name) + unit(("en", "naïve"), ("de", "Größe")) + TAIL
    assert read(text.encode(encoding))[0] == [("naïve", "Größe")]


def test_a_dtd_that_is_named_is_never_looked_at(tmp_path: Path) -> None:
    dtd = tmp_path / "tmx14.dtd"
    dtd.write_text('<!ENTITY secret "x">')
    text = HEAD.replace("<tmx", f'<!DOCTYPE tmx SYSTEM "{dtd}">\n<tmx') + unit(("en", "a"), ("de", "b")) + TAIL
    assert read(text)[0] == [("a", "b")]
    with pytest.raises(DataError, match=r"given\.tmx:4: unknown entity &secret;"):
        read(text.replace(">a<", ">&secret;<"))


LAUGHS = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(9))


@pytest.mark.parametrize(
    ("declaration", "entity"),
    [
        (f'<!ENTITY l0 "ha">{LAUGHS}', "l9"),
        ('<!ENTITY f SYSTEM "file:///etc/passwd">', "f"),
        ('<!ENTITY % p SYSTEM "http://127.0.0.1:1/x.dtd"> %p;', "x"),
    ],
    ids=["billion laughs", "file", "parameter"],
)
def test_entities_are_refused_where_they_are_declared(declaration: str, entity: str) -> None:
    text = (
        HEAD.replace("<tmx", f"<!DOCTYPE tmx [{declaration}]>\n<tmx") + unit(("en", f"&{entity};"), ("de", "b")) + TAIL
    )
    with pytest.raises(DataError, match=r"given\.tmx:2: it declares the entity \w+") as caught:
        read(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + unit(("en", "a < b"), ("de", "c")) + TAIL, "given.tmx:3: not well-formed (invalid token) (column 32)"),
        (HEAD + unit(("en", "a"), ("de", "b")), "given.tmx:4: no element found (column 1)"),
        (HEAD + unit(("en", "&nbsp;"), ("de", "b")) + TAIL, "given.tmx:3: undefined entity (column 29)"),
        (HEAD + TAIL, "given.tmx has no translation unit (<tu>)"),
        ("one\teins\n", "given.tmx:1: syntax error (column 1)"),
        ("", "given.tmx:1: no element found (column 1)"),
        ((HEAD + unit(("en", "a"), ("de", "\udcff")) + TAIL).encode("utf-8", "surrogateescape"),
         "given.tmx:3: not well-formed (invalid token) (column 66)"),
    ],
    ids=["less than", "cut short", "entity", "no unit", "no XML", "empty", "bad bytes"],
)  # fmt: skip
def test_what_is_no_tmx_is_refused_with_its_place(text: str | bytes, problem: str) -> None:
    with pytest.raises(DataError) as caught:
        read(text)
    assert caught.value.problem == problem


def test_a_segment_without_end_does_not_fill_the_memory() -> None:
    class Endless(BytesIO):
        reads = 0

        def read1(self, size: int | None = -1) -> bytes:
            self.reads += 1
            return (HEAD + "<tu><tuv xml:lang='en'><seg>").encode() if self.reads == 1 else b"a" * 60_000

    source = Endless()

    class EndlessInput(MadeText):
        def open(self) -> BinaryIO:
            return source

    with pytest.raises(DataError, match="a segment of more than 1,000,000 characters"):
        list(TmxPairs(EndlessInput("given.tmx", b""), "en", "de").read(ReadCounts()))
    assert source.reads < 40


def test_units_are_given_while_the_file_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tmx, "CHUNK_PAIRS", 50)
    content = (HEAD + unit(("en", "one " * 20), ("de", "eins " * 20)) * 5_000 + TAIL).encode()
    source = BytesIO(content)

    class Watched(MadeText):
        def open(self) -> BinaryIO:
            return source

    counts = ReadCounts()
    chunks = TmxPairs(Watched("given.tmx", b""), "en", "de").read(counts)
    next(chunks)
    assert source.tell() < len(content) / 4
    assert len(list(chunks)) > 10
    assert counts.pairs == 5_000


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufffe\uffff"))


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=9))
def test_any_text_that_a_writer_of_xml_writes_is_read(pairs: list[tuple[str, str]]) -> None:
    root = ElementTree.Element("tmx")
    for pair in pairs:
        element = ElementTree.SubElement(root, "tu")
        for lang, text in zip(("en", "de"), pair, strict=True):
            variant = ElementTree.SubElement(element, "tuv", {"xml:lang": lang})
            ElementTree.SubElement(variant, "seg").text = text
    content = ElementTree.tostring(root, "utf-8")
    assert read(content)[0] == [(src.strip(), tgt.strip()) for src, tgt in pairs]


CONTENT = (HEAD + unit(("en", "one two three"), ("de", "eins zwei drei")) * 200 + TAIL).encode()


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        ("gz", gzip.compress(CONTENT)[:-20]),
        ("gz", gzip.compress(CONTENT)[:60] + b"\xff" * 9 + gzip.compress(CONTENT)[69:]),
        ("gz", CONTENT),
        ("xz", lzma.compress(CONTENT)[:-30]),
        ("xz", CONTENT),
        ("bz2", bz2.compress(CONTENT)[:-20]),
    ],
)
def test_a_compressed_file_that_is_damaged_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"memory.tmx.{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{path} cannot be read after line \d+: ") as caught:
        list(TmxPairs(LocalFile(path), "en", "de").read(ReadCounts()))
    assert caught.value.hint == "the file may be cut short or damaged: fetch or compress it again"


@pytest.mark.parametrize("encoding", ["x-unknown", "shift_jis", "utf-7", "base64"])
def test_an_encoding_that_cannot_be_read_is_an_error(encoding: str) -> None:
    content = CONTENT.replace(b"UTF-8", encoding.encode())
    with pytest.raises(DataError, match=r"given\.tmx: unknown encoding \(") as caught:
        list(TmxPairs(MadeText("given.tmx", content), "en", "de").read(ReadCounts()))
    assert caught.value.hint == "convert it to UTF-8, and declare that in its first line"
