"""Each format gives the pairs that are in it, aligned and in order, and counts what is not a pair."""

import bz2
import gzip
import lzma
import xml.etree.ElementTree as ElementTree
from io import BytesIO
from itertools import chain, zip_longest
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.prepare import formats, tmx
from aiayn_cli.prepare.formats import LinePairs, Pairs, ReadCounts, SegmentPairs, TalkPairs, TsvPairs
from aiayn_cli.prepare.sources import LocalFile, MadeText
from aiayn_cli.prepare.tmx import TmxPairs


def made(content: str | bytes, name: str = "given") -> MadeText:
    return MadeText(name, content if isinstance(content, bytes) else content.encode())


def read(pairs: Pairs) -> tuple[list[tuple[str, str]], ReadCounts]:
    counts = ReadCounts()
    found = [pair for chunk in pairs.read(counts) for pair in zip(*chunk, strict=True)]
    assert counts.pairs == len(found) + counts.bad_bytes
    return found, counts


# ---- lines

LINES = st.lists(st.sampled_from([b"a", b"\xff", b"b\0", b"", b"c d", "ü".encode(), b"x\xc2\x85y"]), max_size=20)


def write(folder: Path, src: bytes, tgt: bytes) -> tuple[Path, Path]:
    (folder / "some.en").write_bytes(src)
    (folder / "some.de").write_bytes(tgt)
    return folder / "some.en", folder / "some.de"


def read_files(
    paths: tuple[Path, Path], counts: ReadCounts | None = None, *, drop: bool = False
) -> list[tuple[str, str]]:
    chunks = LinePairs(*map(LocalFile, paths), drop_bad_bytes=drop).read(counts or ReadCounts())
    return [pair for src, tgt in chunks for pair in zip(src, tgt, strict=True)]


@given(src=LINES, tgt=LINES, chunk=st.integers(1, 7))
def test_bad_bytes_drop_exactly_their_own_pair(
    tmp_path_factory: pytest.TempPathFactory, src: list[bytes], tgt: list[bytes], chunk: int
) -> None:
    src, tgt = src[: len(tgt)], tgt[: len(src)]
    paths = write(tmp_path_factory.mktemp("pairs"), *(b"".join(line + b"\n" for line in side) for side in (src, tgt)))
    counts = ReadCounts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "CHUNK_PAIRS", chunk)
        found = read_files(paths, counts, drop=True)
    bad = (b"\xff", b"b\0")
    good = [(s, t) for s, t in zip(src, tgt, strict=True) if s not in bad and t not in bad]
    assert found == [(s.decode().replace("\x85", " "), t.decode().replace("\x85", " ")) for s, t in good]
    assert (counts.pairs, counts.bad_bytes) == (len(src), len(src) - len(good))
    assert counts.mapped == [*src, *tgt].count(b"x\xc2\x85y")


@pytest.mark.parametrize(("n_src", "n_tgt"), [(3, 2), (0, 1), (25_000, 10_000), (10_000, 10_001)])
def test_unequal_numbers_of_records_stop_with_both_counts(tmp_path: Path, n_src: int, n_tgt: int) -> None:
    paths = write(tmp_path, b"a\n" * n_src, b"b\n" * n_tgt)
    with pytest.raises(DataError) as caught:
        read_files(paths)
    assert caught.value.problem == f"{paths[0]} has {n_src:,} lines, but {paths[1]} has {n_tgt:,}"
    assert caught.value.hint == "each line of one file must translate the same line of the other"


def test_unequal_numbers_point_at_foreign_line_ends_and_bad_bytes_hide_none(tmp_path: Path) -> None:
    paths = write(tmp_path, b"a\rb\nc\n", b"d\ne\nf\n")
    with pytest.raises(DataError, match="has 2 lines, but") as caught:
        read_files(paths)
    assert f"{paths[0]} has 1 CR, U+2028 or the like inside lines, which other programs take" in caught.value.hint
    paths = write(tmp_path, b"a\n\xff\nc\n\xff\n", b"d\ne\n")
    with pytest.raises(DataError, match=r"has 4 lines, but .* has 2"):
        read_files(paths, drop=True)


# ---- segments

SGML = """<srcset setid="newstest2014" srclang="any">
<doc docid="a" genre="news" origlang="de">
<hl>
<seg id="1">First &amp; foremost</seg>
</hl>
<p>
<seg id="2"> 3 < 4 & 5 > 4 </seg>
</p>
</doc>
<doc docid="b">
<SEG ID='1'>a\u00a0b</SEG><seg id=2></seg>
</doc>
</srcset>
"""


def test_segments_are_read_as_they_are_from_files_that_are_no_xml() -> None:
    reference = SGML.replace("First &amp; foremost", "Erstens")
    found, counts = read(SegmentPairs(made(SGML), made(reference)))
    assert found == [
        ("First &amp; foremost", "Erstens"),
        ("3 < 4 & 5 > 4", "3 < 4 & 5 > 4"),
        ("a\u00a0b", "a\u00a0b"),
        ("", ""),
    ]
    assert (counts.mapped, counts.skipped) == (0, 0)


def test_a_line_that_ends_inside_a_segment_becomes_a_blank_and_is_counted() -> None:
    broken = '<seg id="1">one\ntwo\r\nthree</seg>\n<seg id="2">a\u2028b</seg>\n'
    whole = '<seg id="1">eins zwei drei</seg>\n<seg id="2">a b</seg>\n'
    found, counts = read(SegmentPairs(made(broken), made(whole)))
    assert found == [("one two three", "eins zwei drei"), ("a b", "a b")]
    assert counts.mapped == 3


@pytest.mark.parametrize(
    ("src", "tgt", "problem"),
    [
        ([1, 2, 3], [1, 3, 4], "segment 2 has id 2 in src, but 3 in tgt"),
        ([1, 2, 3], [1, 2], "segment 3 has id 3 in src, but none in tgt"),
        ([1], [1, 2], "segment 2 has id none in src, but 2 in tgt"),
    ],
)
def test_segments_that_do_not_belong_together_are_refused(src: list[int], tgt: list[int], problem: str) -> None:
    sides = ["".join(f'<seg id="{number}">x</seg>\n' for number in ids) for ids in (src, tgt)]
    with pytest.raises(DataError) as caught:
        read(SegmentPairs(made(sides[0], "src"), made(sides[1], "tgt")))
    assert caught.value.problem == problem


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('<seg id="7">one\n', 1),
        ('<p>\n<seg id="7">one\n<seg id="8">two</seg>\n', 3),
        ('<seg id="7"><seg id="8"></seg>', 1),
    ],
)
def test_a_segment_without_an_end_is_refused(text: str, line: int) -> None:
    with pytest.raises(DataError, match=f"given:{line}: segment 7 has no </seg>"):
        read(SegmentPairs(made(text), made(text)))


RECORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029<")
)


@given(st.lists(st.tuples(RECORDS, RECORDS), max_size=9))
def test_any_text_without_tags_comes_out_of_segments_but_for_outer_blanks(pairs: list[tuple[str, str]]) -> None:
    sides = [
        "".join(f'<seg id="{i}">{text}</seg>\n' for i, text in enumerate(side)) for side in zip(*pairs, strict=True)
    ]
    src, tgt = sides or ("", "")
    assert read(SegmentPairs(made(src), made(tgt)))[0] == [(a.strip(), b.strip()) for a, b in pairs]


# ---- talks

TALKS = [
    ("<url>http://www.ted.com/1</url>", "<url>http://www.ted.com/1</url>"),
    ("<keywords>a, b</keywords>", "<keywords>a, b</keywords>"),
    ("<speaker>Al Gore</speaker>", "<speaker>Al Gore</speaker>"),
    ("<talkid>1</talkid>", "<talkid>1</talkid>"),
    ("<title>Al Gore: Klima</title>", "<title>Al Gore: climate</title>"),
    (" <description>TED Talk</description>", "<description>TED talk</description>"),
    ("Vielen Dank, Chris.", "Thank you, Chris."),
    ("<reviewer>x</reviewer>", "<reviewer></reviewer>"),
    ("3 < 4", "<3 is a heart"),
    ("", ""),
]


@pytest.mark.parametrize("titles", [False, True])
def test_lines_about_a_talk_are_skipped_and_counted(titles: bool) -> None:
    src, tgt = ("".join(f"{line}\n" for line in side) for side in zip(*TALKS, strict=True))
    found, counts = read(TalkPairs(made(src), made(tgt), titles=titles))
    text = [TALKS[6], TALKS[8], TALKS[9]]
    head = [("Al Gore: Klima", "Al Gore: climate"), ("TED Talk", "TED talk")]
    assert found == (head + text if titles else text)
    assert counts.skipped == 10 - len(found)


def test_lines_about_a_talk_on_one_side_alone_shift_nothing() -> None:
    src, tgt = "eins\n<title>zwei</title>\ndrei\n", "one\ntwo\nthree\n"
    for titles in (False, True):
        found, counts = read(TalkPairs(made(src), made(tgt), titles=titles))
        assert found == [("eins", "one"), ("drei", "three")]
        assert counts.skipped == 1
    with pytest.raises(DataError, match="src has 3 lines, but tgt has 2"):
        read(TalkPairs(made(src, "src"), made("one\nthree\n", "tgt")))


# ---- TSV


def test_a_pair_is_taken_from_two_columns_whatever_the_others_hold() -> None:
    text = 'Hi\tHallo "!\tCC-BY\r\n\nGo.\tGeh.\t\n'
    found, _ = read(TsvPairs(made(text)))
    assert found == [("Hi", 'Hallo "!'), ("", ""), ("Go.", "Geh.")]
    assert read(TsvPairs(made(text), (3, 1)))[0] == [("CC-BY", "Hi"), ("", ""), ("", "Go.")]


@pytest.mark.parametrize(
    ("text", "columns", "problem"),
    [
        ("a\tb\na\tb\tc\n", (1, 2), "given:2 has 3 columns, but earlier lines have 2"),
        ("a\tb\n\na\n", (1, 2), "given:3 has 1 column, but earlier lines have 2"),
        ("a\tb\n", (1, 3), "given:1 has 2 columns, but columns 1 and 3 are needed"),
        ("a b\n", (1, 2), "given:1 has 1 column, but columns 1 and 2 are needed"),
    ],
)
def test_a_line_of_another_width_is_refused_with_its_number(text: str, columns: tuple[int, int], problem: str) -> None:
    with pytest.raises(DataError) as caught:
        read(TsvPairs(made(text), columns))
    assert caught.value.problem == problem


def test_bad_bytes_drop_their_line_or_stop_and_foreign_line_ends_are_counted() -> None:
    content = b"a\tb\nc\xff\td\ne\tf\n"
    found, counts = read(TsvPairs(made(content), drop_bad_bytes=True))
    assert (found, counts.bad_bytes) == ([("a", "b"), ("e", "f")], 1)
    with pytest.raises(DataError, match="given:2: byte 2 of the line"):
        read(TsvPairs(made(content)))
    found, counts = read(TsvPairs(made("a\u2028b\tc\x85d\n")))
    assert (found, counts.mapped) == ([("a b", "c d")], 2)


CELLS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\ufeff")
)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=20), st.integers(1, 4))
def test_any_cells_come_out_in_order_in_chunks_of_any_size(pairs: list[tuple[str, str]], chunk: int) -> None:
    text = "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "CHUNK_PAIRS", chunk)
        assert read(TsvPairs(made(text)))[0] == pairs


def test_bad_lines_at_the_end_are_counted_with_their_own_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "CHUNK_PAIRS", 2)
    for good, bad in ((2, 3), (0, 1), (3, 2)):
        counts = ReadCounts()
        chunks = TsvPairs(MadeText("made", b"a\tb\n" * good + b"\xff\n" * bad), drop_bad_bytes=True).read(counts)
        *_, seen = [(counts.pairs, counts.bad_bytes) for _ in chunks]
        assert seen == (good + bad, bad)  # before the next file is begun


HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header/><body>\n'
TAIL = "</body></tmx>\n"


def unit(*variants: tuple[str, str]) -> str:
    inner = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in variants)
    return f"<tu>{inner}</tu>\n"


def read_tmx(content: str | bytes, src: str = "en", tgt: str = "de") -> tuple[list[tuple[str, str]], ReadCounts]:
    return read(TmxPairs(made(content, "given.tmx"), src, tgt))


def test_units_of_both_languages_are_read_in_order_and_others_counted() -> None:
    body = (
        unit(("en", "one"), ("de", "eins"))
        + unit(("en", "two"), ("fr", "deux"))
        + unit(("de", "drei"), ("fr", "trois"), ("en", "three &amp; &#x66;our"))
        + unit(("en", "four"))
        + unit()
    )
    found, counts = read_tmx(HEAD + body + TAIL)
    assert found == [("one", "eins"), ("three & four", "drei")]
    assert counts.skipped == 3
    assert read_tmx(HEAD + body + TAIL, "de", "en")[0] == [(tgt, src) for src, tgt in found]
    assert read_tmx(HEAD + body + TAIL, "fr", "de")[0] == [("trois", "drei")]
    old = '<tu><tuv lang="EN"><seg>a</seg></tuv><tuv lang="DE"><seg>b</seg></tuv></tu>'
    assert read_tmx(HEAD + old + TAIL)[0] == [("a", "b")]


@pytest.mark.parametrize(
    ("variants", "asked", "found"),
    [
        ([("EN-US", "a"), ("de_AT", "b")], "en-de", [("a", "b")]),
        ([("en-GB", "a"), ("en", "b"), ("de", "c")], "en-de", [("b", "c")]),
        ([("en-GB", "a"), ("en-US", "b"), ("de", "c")], "en-de", [("a", "c")]),
        ([("en-GB", "a"), ("en-US", "b"), ("de", "c")], "en_US-de", [("b", "c")]),
        ([("eng", "a"), ("ger", "b")], "en-de", [("a", "b")]),
        ([("eng", "a"), ("en-GB", "b"), ("en", "c"), ("DEU_de", "d")], "en-de", [("c", "d")]),
        ([("en", "a"), ("pt-PT", "b"), ("pt-BR", "c")], "eng-por_BR", [("a", "c")]),
        ([("en", "a"), ("zh-CN", "b"), ("zh-TW", "c")], "en-zho_Hant", [("a", "c")]),
        ([("en-US", "a"), ("de", "b")], "eng_Latn-deu_Latn", [("a", "b")]),
        ([("zh-Hans-CN", "a"), ("zh-Hant", "b"), ("en", "c")], "zh_Hans-en", [("a", "c")]),
    ],
)
def test_a_language_is_found_with_its_region(
    variants: list[tuple[str, str]], asked: str, found: list[tuple[str, str]]
) -> None:
    src, tgt = asked.split("-")
    assert read_tmx(HEAD + unit(*variants) + TAIL, src, tgt)[0] == found


def test_a_file_without_the_languages_names_those_that_it_has() -> None:
    body = unit(("EN-US", "a"), ("pt", "b")) * 1_200 + unit(("EN-US", "a"), ("fr", "c")) + "<tu/>"
    with pytest.raises(DataError) as caught:
        read_tmx(HEAD + body + TAIL, "en", "pt-BR")
    assert caught.value.problem == (
        "given.tmx has no unit with both en and pt-BR; it has EN-US (1,201), pt (1,200), fr (1)"
    )


BAD_UNITS = [
    unit(("en", "a&#x1F;b"), ("de", "c")),
    unit(("en", "a\x1fb"), ("de", "c")),
    unit(("en", "a"), ("de", "b &nbsp; c")),
    unit(("en", "a < b\n"), ("de", "c")),
    unit(("en", "a\n\n</tuv>"), ("de", "c")),
    "<tu><tuv xml:lang=en><seg>a</seg></tuv></tu >\n",
]


@pytest.mark.parametrize("doctype", ["", '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'])
@pytest.mark.parametrize("step", [1, 7, 300, 1 << 16])
def test_units_that_are_no_xml_are_dropped_and_counted_if_wished(
    monkeypatch: pytest.MonkeyPatch, step: int, doctype: str
) -> None:
    monkeypatch.setattr(tmx, "_READ_BYTES", step)
    good = [(f"one {i}", f"eins {i}") for i in range(9)]
    units = [unit(("en", src), ("de", tgt)) for src, tgt in good]
    mixed = "".join(chain.from_iterable(zip_longest(units, BAD_UNITS, fillvalue="")))
    content = HEAD.replace("<tmx", f"{doctype}<tmx") + mixed + TAIL
    found, counts = read(TmxPairs(made(content), "en", "de", drop_bad_bytes=True))
    assert (found, counts.bad_bytes, counts.skipped) == (good, len(BAD_UNITS), 0)
    late = content.replace("</body>", "</ body>")
    with pytest.raises(DataError, match=rf"given:{late[: late.index('</ body>')].count(chr(10)) + 1}: not well-formed"):
        read(TmxPairs(made(late), "en", "de", drop_bad_bytes=True))


@pytest.mark.parametrize("bad", BAD_UNITS)
def test_a_bad_unit_is_named_with_the_way_out(bad: str) -> None:
    with pytest.raises(DataError, match=r"given\.tmx:[3-6]: ") as caught:
        read_tmx(HEAD + bad + TAIL)
    assert caught.value.hint == "repair the file, or drop such units: --on-bad-bytes drop"


def test_a_bad_unit_without_an_end_is_an_error_even_then() -> None:
    with pytest.raises(DataError, match=r"given:3: reference to invalid character number"):
        read(TmxPairs(made(HEAD + unit(("en", "&#1;")).replace("</tu>", "")), "en", "de", drop_bad_bytes=True))


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        (HEAD.replace("UTF-8", "UTF-16"), "utf-8"),
        (HEAD, "utf-16"),
        (HEAD, "utf-16-le"),
        (HEAD.replace("UTF-8", "ISO-8859-1"), "utf-8"),
        (HEAD.replace("UTF-8", "us-ascii"), "utf-8"),
        (HEAD.replace("UTF-8", "windows-1252"), "cp1252"),
        (HEAD.replace("1.0", "1.1"), "utf-8"),
        ("\n" + HEAD, "utf-8"),
        ("\r\n \n" + HEAD, "utf-8-sig"),
        ("\n" + HEAD.replace("UTF-8", "utf-16"), "utf-16"),
    ],
)
def test_the_encoding_of_the_bytes_counts_and_blank_lines_before_it_do_not(head: str, encoding: str) -> None:
    text = head + unit(("en", "naïve"), ("de", "Größe")) * 3
    assert read_tmx((text + TAIL).encode(encoding))[0] == [("naïve", "Größe")] * 3
    with pytest.raises(DataError, match=rf"given\.tmx:{text.count(chr(10)) + 1}: "):
        read_tmx((text + "&" + TAIL).encode(encoding))


def test_bytes_of_another_encoding_than_declared_are_named() -> None:
    with pytest.raises(DataError, match=r"given\.tmx:3: ") as caught:
        read_tmx((HEAD + unit(("en", "naïve"), ("de", "Größe")) + TAIL).encode("cp1252"))
    assert "declare the right one" in caught.value.hint


def test_inline_codes_go_with_their_content_and_marked_text_stays() -> None:
    src = (
        'Click <bpt i="1">&lt;b&gt;</bpt>here<ept i="1">&lt;/b&gt;</ept><ph x="2">{img<sub>alt text</sub>}</ph>, '
        '<hi type="term">please <it pos="begin">[i]</it>now</hi>!'
    )
    assert read_tmx(HEAD + unit(("en", src), ("de", "Hier<ut>\\par</ut>!")) + TAIL)[0] == [
        ("Click here, please now!", "Hier!")
    ]


def test_line_ends_inside_a_segment_become_blanks_and_are_counted() -> None:
    found, counts = read_tmx(HEAD + unit(("en", "\n  one\n\t two\u2028three&#13;four \n"), ("de", "a&#x85;b")) + TAIL)
    assert found == [("one two three four", "a b")]
    assert counts.mapped == 4


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_the_encodings_that_xml_declares_are_read(encoding: str) -> None:
    name = encoding.removesuffix("-sig")
    text = HEAD.replace("UTF-8", name) + unit(("en", "naïve"), ("de", "Größe")) + TAIL
    assert read_tmx(text.encode(encoding))[0] == [("naïve", "Größe")]


def test_a_dtd_that_is_named_is_never_looked_at(tmp_path: Path) -> None:
    dtd = tmp_path / "tmx14.dtd"
    dtd.write_text('<!ENTITY secret "x">')
    text = HEAD.replace("<tmx", f'<!DOCTYPE tmx SYSTEM "{dtd}">\n<tmx') + unit(("en", "a"), ("de", "b")) + TAIL
    assert read_tmx(text)[0] == [("a", "b")]
    with pytest.raises(DataError, match=r"given\.tmx:4: unknown entity &secret;"):
        read_tmx(text.replace(">a<", ">&secret;<"))


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
        read_tmx(text)
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
        read_tmx(text)
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
    assert read_tmx(content)[0] == [(src.strip(), tgt.strip()) for src, tgt in pairs]


CONTENT = (HEAD + unit(("en", "one two three"), ("de", "eins zwei drei")) * 200 + TAIL).encode()


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        ("gz", gzip.compress(CONTENT)[:-20]),
        ("gz", gzip.compress(CONTENT)[:60] + b"\xff" * 9 + gzip.compress(CONTENT)[69:]),
        ("xz", lzma.compress(CONTENT)[:-30]),
        ("bz2", bz2.compress(CONTENT)[:-20]),
    ],
)
def test_a_compressed_file_that_is_damaged_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"memory.tmx.{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{path} cannot be read after line \d+: ") as caught:
        list(TmxPairs(LocalFile(path), "en", "de").read(ReadCounts()))
    assert caught.value.hint == "the file may be cut short or damaged: fetch or compress it again"


@pytest.mark.parametrize(("suffix", "program"), [("gz", "gzip"), ("xz", "xz"), ("bz2", "bzip2")])
def test_a_file_that_only_claims_to_be_compressed_is_named(tmp_path: Path, suffix: str, program: str) -> None:
    path = tmp_path / f"memory.tmx.{suffix}"
    path.write_bytes(CONTENT)
    with pytest.raises(DataError, match=rf"{path} is not compressed with {program}"):
        list(TmxPairs(LocalFile(path), "en", "de").read(ReadCounts()))


@pytest.mark.parametrize("encoding", ["x-unknown", "base64"])
def test_an_encoding_that_cannot_be_read_is_an_error(encoding: str) -> None:
    content = CONTENT.replace(b"UTF-8", encoding.encode())
    with pytest.raises(DataError, match=r"given\.tmx: unknown encoding \(") as caught:
        list(TmxPairs(MadeText("given.tmx", content), "en", "de").read(ReadCounts()))
    assert caught.value.hint == "convert it to UTF-8, and declare that in its first line"
