import errno
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from translation_models import LINES, best, feed_stdin, run, translations

from aiayn_cli.app import main


def test_json_lines_keep_their_fields_and_give_one_object_for_each_output(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [{"id": f"x{i}", "text": line, "page": [i]} for i, line in enumerate(LINES)]
    data = "".join(json.dumps(record) + "\n" for record in records).encode() + b"\n"
    out = run(model, ["--format", "jsonl", "--nbest", "2", "--scores", "--alignments"], data, monkeypatch, capsys)
    lines = out.split("\n")
    assert len(lines) == 2 * len(LINES) + 2 + 1  # a blank record gives blank ones
    found = [json.loads(line) for line in lines[: 2 * len(LINES)]]
    expected = translations([model], LINES, n_best=2)
    for i, line in enumerate(LINES):
        for rank, output in enumerate(expected[i]):
            record = found[2 * i + rank]
            assert (record["id"], record["page"], record["rank"]) == (f"x{i}", [i], rank + 1)
            assert record["text"] == output.text
            assert (record["score"] is None) == (record["log_prob"] is None) == (not line.strip())
            if line.strip():
                assert record["score"] == pytest.approx(output.score, abs=1e-3)
                assert sum(log_prob for _, log_prob in record["tokens"]) == pytest.approx(output.log_prob, abs=1e-2)
            assert [j for _, j in record["alignment"]] == list(range(len(output.text.split())))
            assert all(0 <= i < len(line.split()) for i, _ in record["alignment"])


def test_lines_of_text_become_json_where_only_the_output_is(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--format", "jsonl", "--input-format", "text"]
    out = run(model, options, "\n".join(LINES).encode(), monkeypatch, capsys)
    found = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [record["line"] for record in found] == [1, 2, 3, 4, 5, 6]
    assert "".join(record["text"] + "\n" for record in found) == best(translations([model], LINES))


def test_alignments_stand_behind_the_text(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(model, ["--scores", "--alignments"], "\n".join(LINES).encode(), monkeypatch, capsys)
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert "".join(text + "\n" for _, text, _ in rows) == best(translations([model], LINES))
    for line, (_, text, pairs) in zip(LINES, rows, strict=True):
        links = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        assert [j for _, j in links] == list(range(len(text.split())))
        assert all(i < len(line.split()) for i, _ in links)


def test_samples_are_repeated_by_their_seed(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(*options: str, lines: list[str] = LINES) -> list[str]:
        options = ("--sample", "--nbest", "5", *options)
        return run(model, list(options), "\n".join(lines).encode(), monkeypatch, capsys).split("\n")[:-1]

    first = draw("--seed", "3")
    assert len(first) == 5 * len(LINES)
    assert draw("--seed", "3", "--batch-tokens", "1") == first
    assert draw("--seed", "4") != first
    assert draw("--seed", "3", lines=[LINES[4]]) == first[20:25]


def test_a_broken_record_of_json_gives_one_that_says_so_and_all_others_are_translated(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        b'{"id": 1, "text": "hund"}',
        b"{broken",
        b'{"id": "b", "text": [1]}',
        b"\xff",
        b'{"id": 3, "text": "maus"}',
    ]
    options = ["--format", "jsonl", "--nbest", "2", "--report", str(tmp_path / "report"), "-o", str(tmp_path / "out")]
    feed_stdin(monkeypatch, b"\n".join(records))
    assert main(["translate", "-m", str(model), "--precision", "fp32", *options]) == 1
    err = capsys.readouterr().err
    assert "warning: stdin:2: invalid JSON: " in err
    assert "error: 3 lines of the input could not be read" in err
    found = [json.loads(line) for line in (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1]]
    expected = [each.text for line in translations([model], ["hund", "", "", "", "maus"], n_best=2) for each in line]
    assert [record["text"] for record in found] == expected
    assert [record.get("id") for record in found[::2]] == [1, None, "b", None, 3]
    assert [record.get("line") for record in found[::2]] == [None, 2, 3, 4, None]
    assert ["error" in record for record in found[1::2]] == [False, True, True, True, False]
    assert found[4]["error"] == found[5]["error"] == "text is [1], not a string"
    assert [record["score"] is None is record["log_prob"] for record in found[::2]] == [False, True, True, True, False]
    report = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [record.get("error") for record in report] == [record.get("error") for record in found[::2]]
    # As text, their lines stay blank.
    feed_stdin(monkeypatch, b"\n".join(records))
    assert main(["translate", "-m", str(model), "--precision", "fp32", "--input-format", "jsonl"]) == 1
    assert [bool(line) for line in capsys.readouterr().out.split("\n")] == [True, False, False, False, True, False]


def test_a_broken_record_of_json_has_no_score(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "targets").write_text("die maus\n" * 2)
    feed_stdin(monkeypatch, b'{"text": "hund"}\n{broken\n')
    options = ["--format", "jsonl", "--score-against", str(tmp_path / "targets")]
    assert main(["translate", "-m", str(model), "--precision", "fp32", *options]) == 1
    first, second = map(json.loads, capsys.readouterr().out.split("\n")[:-1])
    assert first["log_prob"] < 0
    assert (second["line"], second["log_prob"]) == (2, None)
    assert second["error"].startswith("invalid JSON: ")


def test_an_error_of_a_records_own_is_a_field_like_any_other(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(model, ["--format", "jsonl"], b'{"id": 5, "text": "hund", "error": "mine"}\n', monkeypatch, capsys)
    record = json.loads(out)
    assert (record["error"], "line" in record) == ("mine", False)
    assert record["text"]


def test_json_holds_of_json_lines_what_would_be_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def both(options: list[str], data: bytes) -> tuple[list[str], dict[str, Any]]:
        written = []
        for more in ([], ["--json"]):
            feed_stdin(monkeypatch, data)
            command = ["translate", "-m", str(model), "--precision", "fp32", "--device", "cpu", "--format", "jsonl"]
            assert main([*command, *options, *more]) == 1  # for the broken record
            written.append(capsys.readouterr().out)
        return written[0].split("\n")[:-1], json.loads(written[1])

    data = b'{"id": 9, "text": "der hund", "page": [1, null]}\n\n{"id": 8, "text": 7}\n{"text": "maus"}\n'
    lines, result = both(["--nbest", "2", "--scores", "--alignments"], data)
    assert [list(map(json.loads, lines[i : i + 2])) for i in range(0, 8, 2)] == result["translations"]
    assert (result["translations"][0][1]["id"], result["translations"][0][1]["rank"]) == (9, 2)
    assert result["translations"][3][0]["tokens"]
    (tmp_path / "targets").write_text("maus\n\nx\nhund\n")
    lines, result = both(["--score-against", str(tmp_path / "targets")], data)
    assert list(map(json.loads, lines)) == result["scores"]
    assert (result["scores"][0]["id"], result["scores"][0]["translation"]) == (9, "maus")


def test_json_of_work_that_an_error_ends_holds_what_was_done_and_why_it_ended(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*options: str) -> tuple[dict[str, Any], str]:
        feed_stdin(monkeypatch, "\n\n\nder hund 1999 läuft\nhund\n".encode())
        command = ["translate", "-m", str(model), "--precision", "fp32", "--device", "cpu", "--json"]
        assert main([*command, *options]) == 1
        out, err = capsys.readouterr()
        result = json.loads(out)
        assert f"error: {result['stopped']}\n" in err
        return result, result["stopped"]

    result, why = stopped("--on-suspect", "fail")
    assert why.startswith("stdin:4: the translation is suspect: ")
    assert (result["lines"], [each[0]["text"] for each in result["translations"]]) == (3, [""] * 3)
    result, _ = stopped("--on-suspect", "fail", "-o", str(tmp_path / "out"))
    assert (result["lines"], result["translations"]) == (3, None)
    assert (tmp_path / "out.unfinished").read_text() == "\n" * 3
    for option in ("--prefix", "--score-against"):
        (tmp_path / "two").write_text("und\nund\n")
        result, why = stopped(option, str(tmp_path / "two"))
        assert why == f"{tmp_path}/two has 2 lines, but stdin has more"
        assert result["lines"] == 2
        assert len(result["translations" if option == "--prefix" else "scores"]) == 2


@pytest.mark.parametrize("option", ["--prefix", "--score-against"])
@pytest.mark.parametrize(("text", "count"), [(["-i", "in"], "3"), (["-i", "in.gz"], "3"), (["hund", "maus"], "2")])
def test_files_of_different_lengths_are_refused_before_any_work(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str,
    text: list[str], count: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("hund\n\nmaus")
    Path("in.gz").write_bytes(gzip.compress(b"hund\n\nmaus"))
    Path("one").write_text("und\n")
    assert main(["translate", "-m", str(model), option, "one", *text]) == 1
    out, err = capsys.readouterr()
    name = text[1] if "-i" in text else "the command line"
    assert (out, err.partition("\n")[0]) == ("", f"error: one has 1 line, but {name} has {count}")


def test_json_of_work_that_is_not_stopped_says_so_and_one_that_is_full_hides_no_error(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(run(model, ["--json"], b"hund\n", monkeypatch, capsys))["stopped"] is None

    def full(result: object, as_json: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "stdout")

    monkeypatch.setattr("aiayn_cli.translate.command.print_result", full)
    feed_stdin(monkeypatch, "der hund 1999 läuft\n".encode())
    assert main(["translate", "-m", str(model), "--precision", "fp32", "--json", "--on-suspect", "fail"]) == 1
    err = capsys.readouterr().err
    assert "warning: [Errno 28] No space left on device: 'stdout'" in err
    assert "error: stdin:1: the translation is suspect: " in err
