import gzip
import json
import lzma
import os
from pathlib import Path

import pytest
from translation_models import LINES, best, feed_stdin, run, translate_options, translations

from aiayn_cli.app import main
from aiayn_cli.translate.session import run_translate


def test_stdin_is_translated_to_stdout_line_by_line_and_all_else_goes_to_stderr(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, "\r\n".join(LINES).encode())
    assert main(["translate", "--model", str(model), "--precision", "fp32"]) == 0
    out, err = capsys.readouterr()
    assert out == best(translations([model], LINES))
    assert out.count("\n") == 6
    assert len(set(out.split("\n"))) > 3
    assert f"model: {model}, de-en, step 1,201" in err
    assert "device: CPU" in err
    assert "translated 6 lines in " in err
    assert ", 2 blank" in err


def test_quiet_says_nothing_on_stderr(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("hund\n")
    assert main(["translate", "-m", str(model), "-i", str(tmp_path / "in"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_file_is_written_under_its_name_only_when_all_is_done(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in.gz", tmp_path / "out"
    source.write_bytes(gzip.compress("\n".join(LINES).encode()))
    output.write_text("old")
    arguments = ["translate", "-m", str(model), "-o", str(output), "--precision", "fp32"]
    assert main([*arguments, "-i", str(source)]) == 0
    assert output.read_text(encoding="utf-8") == best(translations([model], LINES))
    assert capsys.readouterr().out == ""
    output.write_text("old")
    source.write_bytes(source.read_bytes()[:-9])  # cut short
    assert main([*arguments, "-i", str(source)]) == 1
    assert output.read_text() == "old"
    assert "cannot be read after record" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.gz", "out", "out.unfinished"]


def test_a_minus_is_stdout_and_a_pipe_with_a_name_is_written_and_not_replaced(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["translate", "-m", str(model), "--precision", "fp32", "-o"]
    feed_stdin(monkeypatch, b"hund\n")
    assert main([*arguments, "-"]) == 0
    expected = best(translations([model], ["hund"]))
    assert capsys.readouterr().out == expected
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    feed_stdin(monkeypatch, b"hund\n")
    assert main([*arguments, "pipe"]) == 0
    assert os.read(reader, 1 << 16).decode() == expected
    os.close(reader)
    assert Path("pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_bytes_that_are_no_text_keep_their_line(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [b"hund", b"l\xe4uft", b"katze", b"a\0b", *[b"\xff"] * 5, b"maus"]
    feed_stdin(monkeypatch, b"\n".join(lines) + b"\n")
    assert main(["translate", "-m", str(model), "--precision", "fp32", "--quiet"]) == 1  # after all others
    out, err = capsys.readouterr()
    assert out == best(translations([model], ["hund", "", "katze", "", *[""] * 5, "maus"]))
    assert "error: 7 lines of the input could not be read" in err
    assert "warning: stdin:2: not UTF-8, or holds NUL: left blank" in err
    assert err.count("left blank") == 5
    assert "7 unreadable lines in all" in err


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\nhund\n\n", "hund\x0bhund\u2028hund\x85\rhund".encode()])
def test_a_record_ends_at_lf_and_nowhere_else(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    feed_stdin(monkeypatch, data)
    assert main(["translate", "-m", str(model)]) == 0
    records = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    assert capsys.readouterr().out.count("\n") == records


def test_json_holds_the_translations_or_counts_what_a_file_holds(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("\n".join(LINES), encoding="utf-8")
    arguments = ["translate", "-m", str(model), "-i", str(source), "--json", "--nbest", "2", "--precision", "fp32"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["lines"], found["blank_lines"], found["unreadable_lines"], found["split_lines"]) == (6, 2, 0, 0)
    expected = [[each.text for each in line] for line in translations([model], LINES, n_best=2)]
    assert [[each["text"] for each in line] for line in found["translations"]] == expected
    assert main([*arguments, "-o", str(output)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["translations"] is None
    assert found["lines_per_second"] > 0
    assert output.read_text(encoding="utf-8").count("\n") == 12


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--nbest", "4"], 2, "--nbest 4 is more than the beam of 3 holds"),
        (["--beam", "0"], 2, "beam"),
        (["--beam", "1001"], 1, "--beam is 1001, but must be at most 1000"),  # the kernel would kill 100,000
        (["--sample", "--nbest", "1001"], 2, "--nbest 1001 is more than 1,000"),
        (["--top-k", "3"], 2, "--top-k 3 needs --sample"),
        (["--sample", "--beam", "2"], 2, "--beam 2 has no effect with --sample"),
        (["--sample", "--temperature", "0"], 2, "--temperature 0.0 must be above 0"),
        (["--sample", "--top-p", "1.5"], 2, "--top-p 1.5 must be above 0 and at most 1"),
        (["--prefix", "missing"], 1, "missing does not exist"),
        (["--format", "xml"], 2, "xml"),
        (["--sample", "--temperature", "inf"], 2, "--temperature inf must be above 0 and finite"),
        (["--alpha", "-1"], 2, "alpha"),
        (["--alpha", "500"], 1, "--alpha is 500.0, but must be at most 10"),
        (["--report", "r.jsonl.gz"], 2, "r.jsonl.gz: output is not compressed"),
        (["-o", "out", "--report", "../" + "{here}/out"], 2, "out cannot hold two outputs"),
        (["--report", "-"], 2, "- is stdout, which is only for translations"),
        (["--prefix", "-"], 2, "stdin cannot be read for two inputs"),
        (["--score-against", "x", "--nbest", "2"], 2, "--nbest has no effect with --score-against"),
        (["--score-against", "x", "--int8"], 2, "--int8 has no effect with --score-against"),
        (["--score-against", "x", "-o", "nowhere/y"], 1, "cannot write nowhere/y: there is no folder nowhere"),
        (["-i", "missing"], 1, "missing does not exist"),
        (["-m", "missing"], 1, "missing"),
        (["--device", "tpu"], 1, "tpu"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    options: list[str], code: int, problem: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    feed_stdin(monkeypatch, b"hund\n")
    options = [option.replace("{here}", tmp_path.name) for option in options]
    assert main(["translate", "-m", str(model), *options]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert problem in err


def test_a_buffer_full_of_lines_is_not_the_end(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiayn_cli.translate.input._LINES_TOGETHER", 7)
    lines = [f"{word} hund" for word in "abcdefghijklmnopqrstuvwxyz"] * 2
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
    result = run_translate(
        translate_options([model], source=str(tmp_path / "in"), path=tmp_path / "out", precision="fp32")
    )
    assert result.lines == 52
    assert (tmp_path / "out").read_text(encoding="utf-8") == best(translations([model], lines))


def test_compressed_stdin_is_unpacked(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lzma.compress("\n".join(LINES).encode())
    assert run(model, [], data, monkeypatch, capsys) == best(translations([model], LINES))
