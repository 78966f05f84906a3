import gzip
import io
import json
import lzma
import os
import threading
import time
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from translation_models import LINES, Translate, best, translate_options, translations

from aiayn_cli.errors import DataError
from aiayn_cli.translate.formats import FORMATS
from aiayn_cli.translate.input import InputLine, InputLines
from aiayn_cli.translate.options import FormatName, TextOptions
from aiayn_cli.translate.session import run_translate


def test_stdin_is_translated_to_stdout_line_by_line_and_all_else_goes_to_stderr(
    model: Path, translate: Translate
) -> None:
    code, out, err = translate("--model", model, lines="\r\n".join(LINES).encode())
    assert (code, out) == (0, best(translations([model], LINES)))
    assert out.count("\n") == 6
    assert len(set(out.split("\n"))) > 3
    assert f"model: {model}, de-en, step 1,201" in err
    assert "device: CPU" in err
    assert "translated 6 lines in " in err
    assert ", 2 blank" in err
    assert translate(lines=lzma.compress("\n".join(LINES).encode())).out == out


def test_a_file_is_written_under_its_name_only_when_all_is_done(
    model: Path, tmp_path: Path, translate: Translate
) -> None:
    source, output = tmp_path / "in.gz", tmp_path / "out"
    source.write_bytes(gzip.compress("\n".join(LINES).encode()))
    output.write_text("old")
    assert translate("-o", output, "-i", source)[:2] == (0, "")
    assert output.read_text(encoding="utf-8") == best(translations([model], LINES))
    output.write_text("old")
    source.write_bytes(source.read_bytes()[:-9])  # cut short
    code, _, err = translate("-o", output, "-i", source)
    assert (code, output.read_text()) == (1, "old")
    assert "cannot be read after record" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.gz", "out", "out.unfinished"]


def test_a_minus_is_stdout_and_a_pipe_with_a_name_is_written_and_not_replaced(
    model: Path, tmp_path: Path, translate: Translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = best(translations([model], ["hund"]))
    assert translate("-o", "-", lines=["hund"])[:2] == (0, expected)
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert translate("-o", "pipe", lines=["hund"]).code == 0
    assert os.read(reader, 1 << 16).decode() == expected
    os.close(reader)
    assert Path("pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_bytes_that_are_no_text_keep_their_line(model: Path, translate: Translate) -> None:
    lines = [b"hund", b"l\xe4uft", b"katze", b"a\0b", *[b"\xff"] * 5, b"maus"]
    code, out, err = translate("--quiet", lines=b"\n".join(lines) + b"\n")
    assert code == 1  # after all others
    assert out == best(translations([model], ["hund", "", "katze", "", *[""] * 5, "maus"]))
    assert "error: 7 lines of the input could not be read" in err
    assert "warning: stdin:2: not valid UTF-8, or contains a NUL byte; its output is blank" in err
    assert err.count("output is blank") == 5
    assert "7 unreadable lines in all" in err


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\nhund\n\n", "hund\x0bhund\u2028hund\x85\rhund".encode()])
def test_a_record_ends_at_lf_and_nowhere_else(translate: Translate, data: bytes) -> None:
    records = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    code, out, err = translate(lines=data)
    assert (code, out.count("\n"), "the input is empty" in err) == (0, records, not data)


def test_json_holds_the_translations_or_counts_what_a_file_holds(
    model: Path, tmp_path: Path, translate: Translate
) -> None:
    found = json.loads(translate("--json", "--nbest", "2").out)
    assert (found["lines"], found["blank_lines"], found["unreadable_lines"], found["split_lines"]) == (6, 2, 0, 0)
    expected = [[each.text for each in line] for line in translations([model], LINES, n_best=2)]
    assert [[each["text"] for each in line] for line in found["translations"]] == expected
    found = json.loads(translate("--json", "--nbest", "2", "-o", tmp_path / "out").out)
    assert found["translations"] is None
    assert found["lines_per_second"] > 0
    assert (tmp_path / "out").read_text(encoding="utf-8").count("\n") == 12


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ("--nbest 4", 2, "--nbest 4 is more than the beam of 3 holds"),
        ("--beam 0", 2, "beam"),
        ("--beam 1001", 1, "--beam is 1001, but must be at most 1000"),  # the kernel would kill 100,000
        ("--sample --nbest 1001", 2, "--nbest 1001 is more than 1,000"),
        ("--top-k 3", 2, "--top-k 3 needs --sample"),
        ("--sample --beam 2", 2, "--beam 2 has no effect with --sample"),
        ("--sample --temperature 0", 2, "--temperature 0.0 must be above 0"),
        ("--sample --top-p 1.5", 2, "--top-p 1.5 must be above 0 and at most 1"),
        ("--sample --glossary x", 2, "--glossary does not work with --sample"),
        ("--prefix missing", 1, "missing does not exist"),
        ("--format xml", 2, "xml"),
        ("--sample --temperature inf", 2, "--temperature inf must be above 0 and finite"),
        ("--alpha -1", 2, "alpha"),
        ("--alpha 500", 1, "--alpha is 500.0, but must be at most 10"),
        ("--min-length 6 --max-length 5", 2, "--min-length 6 is more than --max-length 5\nhint: change one of them\n"),
        ("--min-length 1000 --max-length 2000", 2, "--min-length 1,000 is more than the 999 tokens that an output can"),
        ("--report r.jsonl.gz", 2, "r.jsonl.gz: output is not compressed"),
        ("-o out --report ../{here}/out", 2, "out cannot hold two outputs"),
        ("--report -", 2, "- is stdout, which is only for translations"),
        ("--prefix -", 2, "stdin cannot be read for two inputs"),
        ("--score-against x --nbest 2", 2, "--nbest has no effect with --score-against"),
        ("--score-against x --int8", 2, "--int8 has no effect with --score-against"),
        ("--score-against x -o nowhere/y", 1, "cannot write nowhere/y: there is no folder nowhere"),
        ("--score-against x --gpus 2", 2, "--gpus has no effect with --score-against"),
        ("-i missing", 1, "missing does not exist"),
        ("-m missing", 1, "missing"),
        ("--device tpu", 1, "tpu"),
        ("--gpus 0", 2, "gpus"),
        ("--gpus 2 --device cuda:0", 2, "--gpus 2 and --device cuda:0 contradict each other"),
        ("--gpus 99 --device auto", 1, "--gpus 99, but "),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(
    tmp_path: Path, translate: Translate, monkeypatch: pytest.MonkeyPatch, options: str, code: int, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = translate(*options.replace("{here}", tmp_path.name).split(), lines=["hund"])
    assert (said.code, said.out) == (code, "")
    assert problem in said.err


def test_a_buffer_full_of_lines_is_not_the_end(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiayn_cli.translate.input._LINES_TOGETHER", 7)
    lines = [f"{word} hund" for word in "abcdefghijklmnopqrstuvwxyz"] * 2
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
    result = run_translate(
        translate_options([model], source=str(tmp_path / "in"), path=tmp_path / "out", precision="fp32")
    )
    assert result.lines == 52
    assert (tmp_path / "out").read_text(encoding="utf-8") == best(translations([model], lines))


def read(
    content: bytes, name: FormatName = "jsonl", prefixes: bytes | None = None, *, second_is_target: bool = False
) -> list[InputLine]:
    options = TextOptions(source="in", format=name, prefix=Path("prefixes"))
    second = None if prefixes is None else io.BytesIO(prefixes)
    lines = InputLines(options, FORMATS[name].read, io.BytesIO(content), second, second_is_target=second_is_target)
    return [line for block in lines.blocks() for line in block]


def test_lines_and_records_are_numbered_and_blank_or_unreadable_ones_empty() -> None:
    assert read("hund\n \u3000\n\n\xff".encode("latin-1", "replace"), "text")[:1] == [InputLine(1, "hund")]
    found = read(b"a\n \n\xff\nb", "text")
    assert [(line.number, line.text, not line.error) for line in found] == [
        (1, "a", True), (2, "", True), (3, "", False), (4, "b", True),
    ]  # fmt: skip
    found = read(b'\n{"text": "a"}\n\xff\n \n')
    assert [(line.text, not line.error, line.fields is None) for line in found] == [
        ("", True, True), ("a", True, False), ("", False, True), ("", True, True),
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


def test_prefixes_come_from_the_object_or_a_second_file_and_given_translations_replace_them() -> None:
    found = read(b'{"text": "a", "prefix": "x"}\n{"text": "b"}\n', prefixes=b"p\nq\n")
    assert [line.prefix for line in found] == ["x", "q"]
    assert [line.prefix for line in read(b"a\n\nb\n", "text", prefixes=b"p\n\n\n")] == ["p", "", ""]
    [line] = read(b'{"text": "a", "prefix": "x"}', prefixes=b"y", second_is_target=True)
    assert (line.text, line.prefix) == ("a", "y")
    with pytest.raises(DataError) as caught:
        read(b'{"text": "a"}', prefixes=b"y\nz\n", second_is_target=True)
    assert caught.value.hint == "give one translation for each line"


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


def test_every_format_has_a_row_in_the_table() -> None:
    assert tuple(FORMATS) == get_args(FormatName)


def test_the_speed_is_that_of_translating_and_not_of_typing(model: Path, tmp_path: Path) -> None:
    pipe, waits = tmp_path / "pipe", 0.7
    os.mkfifo(pipe)

    def type_slowly() -> None:
        with pipe.open("wb", buffering=0) as keyboard:
            for line in (b"hund\n", b"katze\n"):
                keyboard.write(line)
                time.sleep(waits)

    typist = threading.Thread(target=type_slowly)
    typist.start()
    result = run_translate(
        translate_options([model], source=str(pipe), path=tmp_path / "out", precision="fp32", device="cpu", max_extra=2)
    )
    typist.join()
    assert result.lines == 2
    assert 0 < result.seconds < waits
    assert result.lines_per_second == pytest.approx(2 / result.seconds)


def test_a_sentence_without_quotes_is_noticed(translate: Translate) -> None:
    assert "2 arguments are 2 lines; put a sentence in quotes\n" in translate("der", "hund").err
    assert "arguments" not in translate("der hund", "katze").err
