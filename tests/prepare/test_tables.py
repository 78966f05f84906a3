"""CSV and JSONL give their pairs whatever the columns are called; other rows are named, or dropped and counted."""

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from commands import Aiayn
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.formats import Pairs, ReadCounts
from aiayn_cli.prepare.sources import MadeText
from aiayn_cli.prepare.tables import CsvPairs, JsonPairs, TsvPairs, find_columns

LANGS = ("en", "de")


def made(content: str | bytes) -> MadeText:
    return MadeText("given", content if isinstance(content, bytes) else content.encode())


def read(pairs: Pairs) -> tuple[list[tuple[str, str]], ReadCounts]:
    counts = ReadCounts()
    found = [pair for chunk in pairs.read(counts) for pair in zip(*chunk, strict=True)]
    assert counts.pairs == len(found) + counts.bad_bytes
    return found, counts


@pytest.mark.parametrize(
    ("names", "langs", "places"),
    [
        ("en de", LANGS, (0, 1)),
        ("id DE fr EN", LANGS, (3, 1)),
        ("eng_Latn deu_Latn", LANGS, (0, 1)),
        ("sentence_deu_Latn sentence_eng_Latn", LANGS, (1, 0)),
        ("translation.en translation.de", LANGS, (0, 1)),
        ("en-US en de", LANGS, (1, 2)),
        ("en ger", ("eng", "de"), (0, 1)),
        ("en pt-PT pt-BR", ("en", "pt_BR"), (0, 2)),
        ("score source target", LANGS, (1, 2)),
        ("tgt src", LANGS, (1, 0)),
        ("en fr", LANGS, None),
        ("source de", LANGS, (0, 1)),
        ("en", ("en", "en-GB"), None),
        ("", LANGS, None),
    ],
)
def test_columns_are_found_by_code_or_role(names: str, langs: tuple[str, str], places: tuple[int, int] | None) -> None:
    assert find_columns(tuple(names.split()), langs) == places


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=9)


@given(PAIRS, st.booleans())
def test_any_json_is_read(pairs: list[tuple[str, str]], nested: bool) -> None:
    rows = [{"de": tgt, "n": 1, "en": src} for src, tgt in pairs]
    text = "".join(json.dumps({"translation": row} if nested else row) + "\n" for row in rows)
    assert read(JsonPairs(made(text), LANGS))[0] == pairs


@given(PAIRS, st.sampled_from(",;\t"), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_any_csv_is_read(pairs: list[tuple[str, str]], delimiter: str, quoting: int) -> None:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
    writer.writerows([("de", "id", "en"), *((tgt, "7", src) for src, tgt in pairs)])
    found = read(CsvPairs(made(file.getvalue()), LANGS))[0]
    assert [(src.strip(" "), tgt.strip(" ")) for src, tgt in found] == [(s.strip(" "), t.strip(" ")) for s, t in pairs]


def test_quoted_cells_hold_commas_and_line_breaks() -> None:
    text = 'en,de\n"a, ""b""\nc","d\r\ne"\n\nf, g \n'
    found, counts = read(CsvPairs(made(text), LANGS))
    assert found == [('a, "b" c', "d e"), ("f", "g ")]
    assert (counts.mapped, counts.skipped) == (2, 1)
    assert read(JsonPairs(made('{"en": "a\\nb", "de": "c\\u2028"}\n\n'), LANGS))[0] == [("a b", "c ")]


def test_two_columns_need_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert read(CsvPairs(made("one,eins\ntwo,zwei"), LANGS))[0] == [("one", "eins"), ("two", "zwei")]
    assert "given: no line names the columns, so they are en and de" in capsys.readouterr().err
    with pytest.raises(DataError, match="given:1 has id, english, deutsch, but en and de are needed"):
        read(CsvPairs(made("id,english,deutsch\n"), LANGS))


GOOD = {TsvPairs: "a\tb\n", CsvPairs: "a,b\n", JsonPairs: '{"en": "a", "de": "b"}\n'}


@pytest.mark.parametrize(
    ("kind", "row", "problem", "count"),
    [
        (TsvPairs, "a\n", " has 1 column, but earlier lines have 2", 1),
        (TsvPairs, "a\tb\tc\n", " has 3 columns, but earlier lines have 2", 1),
        (CsvPairs, "a\n", " has 1 column, but the first line has 2", 1),
        (CsvPairs, "a, b, c\n", " has 3 columns, but the first line has 2", 1),
        (CsvPairs, '"a" x,b\n', ": ',' expected after '\"'", 1),
        (CsvPairs, '"a,b\nc,d\n"e,f"\n', ": ',' expected after '\"'", 3),
        (JsonPairs, "{\n", ": not JSON: ", 1),
        (JsonPairs, '["a", "b"]\n', ": not a JSON object", 1),
        (JsonPairs, '{"en": "a", "fr": "b"}\n', " has en, fr, but en and de are needed", 1),
        (JsonPairs, '{"en": "a", "de": null}\n', ": no text for de, but null", 1),
        (JsonPairs, '{"en": "a", "de": "\\ud800"}\n', ": the text for de has U+D800, which is no character", 1),
        (JsonPairs, '{"en": "a\\u0000", "de": "b"}\n', ": the text for en has U+0000, which is no character", 1),
        (CsvPairs, b"a\xff,b\n", ": byte 2 of the line", 1),
        (JsonPairs, b'{"en": "a\xff", "de": "b"}\n', ": byte 10 of the line", 1),
    ],
)
def test_a_row_that_is_no_pair_is_named_or_dropped(kind: type, row: str | bytes, problem: str, count: int) -> None:
    head = "en,de\n" if kind is CsvPairs else ""
    good = GOOD[kind].encode()
    content = head.encode() + good + (row if isinstance(row, bytes) else row.encode()) + good * 2
    options = {} if kind is TsvPairs else {"langs": LANGS}
    with pytest.raises(DataError) as caught:
        read(kind(made(content), **options))
    assert caught.value.problem.startswith(f"given:{3 if head else 2}{problem}")
    if isinstance(row, str):
        assert "--on-bad-bytes drop" in caught.value.hint
    found, counts = read(kind(made(content), drop_bad_bytes=True, **options))
    assert (found, counts.bad_bytes) == ([("a", "b")] * 3, count)


def test_a_quote_without_its_end_counts_every_line_that_it_swallows() -> None:
    _, counts = read(CsvPairs(made('en,de\na,b\n"c,d\n' + "e,f\n" * 9), LANGS, drop_bad_bytes=True))
    assert (counts.pairs, counts.bad_bytes) == (11, 10)


def test_both_are_options_of_prepare_and_may_be_compressed(here: Path, aiayn: Aiayn) -> None:
    rows = [(f"the house {i} is big, {i}", f"das Haus {i} ist groß, {i}") for i in range(80)]
    lines = "".join(json.dumps({"translation": {"deu": tgt, "eng": src}}) + "\n" for src, tgt in rows[:40])
    Path("a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    Path("b.csv").write_text("de;en\n" + "".join(f'"{tgt}";"{src}"\n' for src, tgt in rows[40:]) + "x\n", "utf-8")
    line = "prepare --jsonl a.jsonl.gz --csv b.csv --langs en-de --vocab-size 60 --on-bad-bytes drop --out out"
    code, out, _ = aiayn(*line.split())
    assert code == 0
    assert "  dropped: unreadable " in out
    data = PreparedData.load(Path("out"))
    assert data.manifest["splits"]["train"]["pairs_read"] == 81
    assert sorted(each["part"] for each in data.manifest["inputs"]) == ["a.jsonl.gz", "b.csv"]
