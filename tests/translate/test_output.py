import errno
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from commands import records
from translation_models import LINES, Translate, best, translations


def test_json_lines_keep_their_fields_and_give_one_object_for_each_output(model: Path, translate: Translate) -> None:
    given = [{"id": f"x{i}", "text": line, "page": [i]} for i, line in enumerate(LINES)]
    data = "".join(json.dumps(record) + "\n" for record in given).encode() + b"\n"
    said = translate("--format", "jsonl", "--nbest", "2", "--scores", "--alignments", lines=data)
    assert (said.code, len(said.lines)) == (0, 2 * len(LINES) + 2)  # a blank record gives blank ones
    expected = translations([model], LINES, n_best=2)
    for i, line in enumerate(LINES):
        for rank, output in enumerate(expected[i]):
            record = said.records[2 * i + rank]
            assert (record["id"], record["page"], record["rank"]) == (f"x{i}", [i], rank + 1)
            assert record["text"] == output.text
            assert (record["score"] is None) == (record["log_prob"] is None) == (not line.strip())
            if line.strip():
                assert record["score"] == pytest.approx(output.score, abs=1e-3)
                assert sum(log_prob for _, log_prob in record["tokens"]) == pytest.approx(output.log_prob, abs=1e-2)
            assert [j for _, j in record["alignment"]] == list(range(len(output.text.split())))
            assert all(0 <= i < len(line.split()) for i, _ in record["alignment"])


def test_lines_of_text_become_json_where_only_the_output_is(model: Path, translate: Translate) -> None:
    found = translate("--format", "jsonl", "--input-format", "text").records
    assert [record["line"] for record in found] == [1, 2, 3, 4, 5, 6]
    assert "".join(record["text"] + "\n" for record in found) == best(translations([model], LINES))


def test_alignments_stand_behind_the_text(model: Path, translate: Translate) -> None:
    rows = [line.split("\t") for line in translate("--scores", "--alignments").lines]
    assert "".join(text + "\n" for _, text, _ in rows) == best(translations([model], LINES))
    for line, (_, text, pairs) in zip(LINES, rows, strict=True):
        links = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        assert [j for _, j in links] == list(range(len(text.split())))
        assert all(i < len(line.split()) for i, _ in links)


def test_samples_are_repeated_by_their_seed(translate: Translate) -> None:
    def draw(*options: str, lines: list[str] = LINES) -> list[str]:
        return translate("--sample", "--nbest", "5", *options, lines=lines).lines

    first = draw("--seed", "3")
    assert len(first) == 5 * len(LINES)
    assert draw("--seed", "3", "--batch-tokens", "1") == first
    assert draw("--seed", "4") != first
    assert draw("--seed", "3", lines=[LINES[4]]) == first[20:25]


def test_a_broken_record_of_json_gives_one_that_says_so_and_all_others_are_translated(
    model: Path, tmp_path: Path, translate: Translate
) -> None:
    data = b'{"id": 1, "text": "hund"}\n{broken\n{"id": "b", "text": [1]}\n\xff\n{"id": 3, "text": "maus"}'
    files = "--report", tmp_path / "report", "-o", tmp_path / "out"
    code, _, err = translate("--format", "jsonl", "--nbest", "2", *files, lines=data)
    assert code == 1
    assert "warning: stdin:2: invalid JSON: " in err
    assert "error: 3 lines of the input could not be read" in err
    found, report = records(tmp_path / "out"), records(tmp_path / "report")
    expected = [each.text for line in translations([model], ["hund", "", "", "", "maus"], n_best=2) for each in line]
    assert [record["text"] for record in found] == expected
    assert [record.get("id") for record in found[::2]] == [1, None, "b", None, 3]
    assert [record.get("line") for record in found[::2]] == [None, 2, 3, 4, None]
    assert ["error" in record for record in found[1::2]] == [False, True, True, True, False]
    assert found[4]["error"] == found[5]["error"] == "text is [1], not a string"
    assert [record["score"] is None is record["log_prob"] for record in found[::2]] == [False, True, True, True, False]
    assert [record.get("error") for record in report] == [record.get("error") for record in found[::2]]
    said = translate("--input-format", "jsonl", lines=data)  # as text, their lines stay blank
    assert (said.code, list(map(bool, said.lines))) == (1, [True, False, False, False, True])


def test_an_error_of_a_records_own_is_a_field_like_any_other(translate: Translate) -> None:
    [record] = translate("--format", "jsonl", lines=b'{"id": 5, "text": "hund", "error": "mine"}\n').records
    assert (record["error"], "line" in record) == ("mine", False)
    assert record["text"]


def test_json_holds_of_json_lines_what_would_be_written(tmp_path: Path, translate: Translate) -> None:
    def both(*options: object) -> tuple[list[Any], dict[str, Any]]:
        data = b'{"id": 9, "text": "der hund", "page": [1, null]}\n\n{"id": 8, "text": 7}\n{"text": "maus"}\n'
        plain, whole = (translate("--format", "jsonl", *options, *more, lines=data) for more in ([], ["--json"]))
        assert (plain.code, whole.code) == (1, 1)  # for the broken record
        return [json.loads(line) for line in plain.lines], json.loads(whole.out)

    written, result = both("--nbest", "2", "--scores", "--alignments")
    assert [written[i : i + 2] for i in range(0, 8, 2)] == result["translations"]
    assert (result["translations"][0][1]["id"], result["translations"][0][1]["rank"]) == (9, 2)
    assert result["translations"][3][0]["tokens"]
    (tmp_path / "targets").write_text("maus\n\nx\nhund\n")
    written, result = both("--score-against", tmp_path / "targets")
    assert written == result["scores"]
    assert (written[0]["id"], written[0]["translation"]) == (9, "maus")
    assert written[0]["log_prob"] < 0
    assert (written[2]["id"], written[2]["log_prob"], written[2]["error"][:9]) == (8, None, "text is 7")


def test_json_of_work_that_an_error_ends_holds_what_was_done_and_why_it_ended(
    tmp_path: Path, translate: Translate
) -> None:
    def stopped(*options: object) -> tuple[dict[str, Any], str]:
        code, out, err = translate("--json", *options, lines=["", "", "", "der hund 1999 läuft", "hund"])
        result = json.loads(out)
        assert code == 1
        assert f"error: {result['stopped']}\n" in err
        return result, result["stopped"]

    result, why = stopped("--on-suspect", "fail")
    assert why.startswith("stdin:4: the translation is suspect: ")
    assert (result["lines"], [each[0]["text"] for each in result["translations"]]) == (3, [""] * 3)
    result, _ = stopped("--on-suspect", "fail", "-o", tmp_path / "out")
    assert (result["lines"], result["translations"]) == (3, None)
    assert (tmp_path / "out.unfinished").read_text() == "\n" * 3
    (tmp_path / "two").write_text("und\nund\n")
    for option, outputs in (("--prefix", "translations"), ("--score-against", "scores")):
        result, why = stopped(option, tmp_path / "two")
        assert why == f"{tmp_path}/two has 2 lines, but stdin has more"
        assert result["lines"] == len(result[outputs]) == 2


@pytest.mark.parametrize("option", ["--prefix", "--score-against"])
@pytest.mark.parametrize(("text", "count"), [(["-i", "in"], "3"), (["-i", "in.gz"], "3"), (["der hund", "maus"], "2")])
def test_files_of_different_lengths_are_refused_before_any_work(
    tmp_path: Path, translate: Translate, monkeypatch: pytest.MonkeyPatch, option: str, text: list[str], count: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("hund\n\nmaus")
    Path("in.gz").write_bytes(gzip.compress(b"hund\n\nmaus"))
    Path("one").write_text("und\n")
    code, out, err = translate(option, "one", *text)
    name = text[1] if "-i" in text else "the command line"
    assert (code, out, err.partition("\n")[0]) == (1, "", f"error: one has 1 line, but {name} has {count}")


def test_json_of_work_that_is_not_stopped_says_so_and_one_that_is_full_hides_no_error(
    translate: Translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(translate("--json", lines=["hund"]).out)["stopped"] is None

    def full(result: object, as_json: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "stdout")

    monkeypatch.setattr("aiayn_cli.translate.command.print_result", full)
    code, _, err = translate("--json", "--on-suspect", "fail", lines=["der hund 1999 läuft"])
    assert code == 1
    assert "warning: [Errno 28] No space left on device: 'stdout'" in err
    assert "error: stdin:1: the translation is suspect: " in err
