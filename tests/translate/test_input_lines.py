import io
import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.translate.formats import FORMATS
from aiayn_cli.translate.input import InputLine, InputLines
from aiayn_cli.translate.options import FormatName, TextOptions


def read(
    content: bytes, name: FormatName = "jsonl", prefixes: bytes | None = None, *, second_is_target: bool = False
) -> list[InputLine]:
    options = TextOptions(source="in", format=name, prefix=Path("prefixes"))
    second = None if prefixes is None else io.BytesIO(prefixes)
    lines = InputLines(options, FORMATS[name].read, io.BytesIO(content), second, second_is_target=second_is_target)
    return [line for block in lines.blocks() for line in block]


def test_lines_of_text_are_numbered_and_blank_ones_empty() -> None:
    assert read("hund\n \u3000\n\n\xff".encode("latin-1", "replace"), "text")[:1] == [InputLine(1, "hund")]
    found = read(b"a\n \n\xff\nb", "text")
    assert [(line.number, line.text, not line.error) for line in found] == [
        (1, "a", True), (2, "", True), (3, "", False), (4, "b", True),
    ]  # fmt: skip


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]))), ascii_only=st.booleans())
def test_any_text_in_json_is_one_line(texts: list[str], ascii_only: bool) -> None:
    content = "".join(
        json.dumps({"id": i, "text": text}, ensure_ascii=ascii_only) + "\n" for i, text in enumerate(texts)
    )
    found = read(content.encode())
    assert len(found) == len(texts)
    for line, text in zip(found, texts, strict=True):
        assert line.fields is not None
        assert line.fields["id"] == line.number - 1
        assert len(line.text.split()) == len(text.replace("\0", " ").split())
        assert not set(line.text) & set("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\0")


def test_prefixes_come_from_the_object_or_from_a_second_file() -> None:
    found = read(b'{"text": "a", "prefix": "x"}\n{"text": "b"}\n', prefixes=b"p\nq\n")
    assert [line.prefix for line in found] == ["x", "q"]
    assert [line.prefix for line in read(b"a\n\nb\n", "text", prefixes=b"p\n\n\n")] == ["p", "", ""]


@pytest.mark.parametrize(
    ("prefixes", "problem"),
    [(b"p\n", "prefixes has 1 line, but in has more"), (b"p\n" * 3, "in has 2 lines, but prefixes has more")],
)
def test_as_many_prefixes_as_lines(prefixes: bytes, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read(b"a\nb\n", "text", prefixes)


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (b"hund", "invalid JSON"),
        (b'"hund"', "a JSON string, not an object"),
        (b"[1]", "a JSON array, not an object"),
        (b"null", "a JSON null, not an object"),
        (b"true", "a JSON Boolean, not an object"),
        (b"7.5", "a JSON number, not an object"),
        (b'{"id": 7}', 'the field "text" is missing'),
        (b'{"text": 7}', "text is 7, not a string"),
        (b'{"text": "a", "prefix": null}', "prefix is null, not a string"),
        (b'{"text": "\\ud800"}', "text holds half of a surrogate pair"),
        (b'{"text": "a", "id": {"x": ["\\ud800"]}}', "id holds half of a surrogate pair"),
        (b'{"text": "a", "\\udc00": 1}', '"\\udc00" holds half of a surrogate pair'),
        (b'{"text": "a", "x": NaN}', "invalid JSON: NaN is not a JSON number"),
        (b'{"text": "a", "x": [-Infinity]}', "invalid JSON: -Infinity is not a JSON number"),
        (b'{"text": "a", "x": 1e999}', "invalid JSON: 1e999 is too large a number"),
        (b"[" * 100_000, "invalid JSON"),
        (b'{"text": "a", "x": ' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 100 deep"),
    ],
)
def test_a_record_that_is_no_such_object_keeps_its_place_and_says_why(record: bytes, error: str) -> None:
    before, broken, after = read(b'{"text": "a"}\n' + record + b'\n{"text": "b"}')
    assert (before.text, after.text, after.number) == ("a", "b", 3)
    assert (before.error, after.error) == ("", "")
    assert broken.error.startswith(error)
    assert (broken.number, broken.text) == (2, "")
    json.dumps(broken.fields, ensure_ascii=False).encode()


@pytest.mark.parametrize("line_id", ['"x7"', "7", "7.5"])
def test_a_broken_record_keeps_its_id_and_nothing_else(line_id: str) -> None:
    [line] = read(f'{{"id": {line_id}, "text": 7, "page": 3}}'.encode())
    assert line.fields == {"id": json.loads(line_id)}


def test_an_object_may_be_as_wide_as_it_likes_and_a_hundred_deep() -> None:
    content = {"text": "a", "wide": [[]] * 1_000, "deep": json.loads("[" * 99 + "]" * 99)}
    [line] = read(json.dumps(content).encode())
    assert line.fields == content


def test_given_translations_replace_an_objects_own_prefix_and_are_as_many_as_the_lines() -> None:
    [line] = read(b'{"text": "a", "prefix": "x"}', prefixes=b"y", second_is_target=True)
    assert (line.text, line.prefix) == ("a", "y")
    with pytest.raises(DataError) as caught:
        read(b'{"text": "a"}', prefixes=b"y\nz\n", second_is_target=True)
    assert caught.value.hint == "give one translation for each line"


def test_every_format_has_a_row_in_the_table() -> None:
    assert tuple(FORMATS) == get_args(FormatName)


def test_a_blank_or_unreadable_record_of_json_keeps_its_line() -> None:
    found = read(b'\n{"text": "a"}\n\xff\n \n')
    assert [(line.text, not line.error, line.fields is None) for line in found] == [
        ("", True, True), ("a", True, False), ("", False, True), ("", True, True),
    ]  # fmt: skip
