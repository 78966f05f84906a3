import json
import re
import shutil
from pathlib import Path

import pytest
from record.record import FIXTURES
from translation_models import LINES, best, feed_stdin, run, translations

from aiayn_cli.app import main
from aiayn_cli.translate.aids.markup import find_markup
from aiayn_cli.translate.trust.flags import confidence, confidence_threshold


def test_a_report_and_a_summary_tell_which_lines_not_to_trust(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, "\n".join(LINES).encode())
    arguments = ["translate", "-m", str(model), "--precision", "fp32", "--report", str(tmp_path / "report"), "--json"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    records = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [record["line"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert [record["source"] for record in records] == [line.strip(" \u3000") for line in LINES]
    expected = translations([model], LINES)
    assert [record["translation"] for record in records] == [each[0].text for each in expected]
    suspect = sum(bool(record["flags"]) for record in records)
    assert suspect > 0, "a model with random weights says nothing sensible"
    assert f"{suspect} of 6 lines look wrong: " in err
    result = json.loads(out)
    assert result["suspect_lines"] == suspect
    assert sum(result["flags"].values()) == sum(len(record["flags"]) for record in records)


@pytest.mark.parametrize("on_suspect", ["retry", "empty", "copy"])
def test_suspect_lines_are_dealt_with_and_every_line_keeps_its_place(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], on_suspect: str
) -> None:
    options = ["--report", str(tmp_path / "report"), "--on-suspect", on_suspect, "--nbest", "2", "--alignments"]
    out = run(model, options, "\n".join(LINES).encode(), monkeypatch, capsys).split("\n")[:-1]
    records = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert len(out) == 2 * len(LINES) == 2 * len(records)
    assert any(record["flags"] or record.get("helped") for record in records)
    for record, text in zip(records, out[::2], strict=True):
        assert text.split("\t")[0] == record["translation"]
        if record["flags"] and on_suspect != "retry":
            assert record["replaced_by"] == on_suspect
            assert text == ("\t" if on_suspect == "empty" else f"{record['source']}\t")


def test_on_suspect_fail_stops_there_and_keeps_what_was_before(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, "\n\n\nder hund 1999 läuft\nhund\n".encode())
    options = ["--on-suspect", "fail", "--report", str(tmp_path / "report")]
    assert main(["translate", "-m", str(model), "--precision", "fp32", *options]) == 1
    out, err = capsys.readouterr()
    assert out == "\n\n\n"
    assert "stdin:4: the translation is suspect: " in err
    assert "number lost (a number of the source is missing)" in err
    assert "--on-suspect retry" in err
    assert "translated 3 lines in " in err
    assert (tmp_path / "report.unfinished").read_text().count("\n") == 3


def test_outputs_that_a_trained_model_finds_unlikely_are_flagged_but_not_those_for_text_like_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained, report = tmp_path / "model", tmp_path / "report"
    shutil.copytree(FIXTURES / "run" / "averaged", trained)
    own = (FIXTURES / "text" / "test.en").read_bytes()
    nonsense = b"the the the the the the\nXXXXXX YYYYY\nzzzzzz\n"

    def flagged(*options: str) -> list[int]:
        run(trained, ["--report", str(report), *options], own + nonsense, monkeypatch, capsys)
        records = map(json.loads, report.read_text(encoding="utf-8").splitlines())
        return [record["line"] for record in records if "low_confidence" in record["flags"]]

    assert flagged() == []  # a checkpoint of an earlier version has no threshold
    translated = translations([trained], (FIXTURES / "text" / "valid.en").read_text().splitlines(), None)
    known = json.loads((trained / "model.json").read_bytes())
    known["low_confidence"] = confidence_threshold(confidence(best) for best, *_ in translated)
    (trained / "model.json").write_text(json.dumps(known), encoding="utf-8")
    assert flagged() == [41, 42, 43]
    assert flagged("--sample", "--seed", "1") == []
    assert flagged("-m", str(FIXTURES / "run" / "averaged")) == []  # an ensemble, of which one model has no threshold
    feed_stdin(monkeypatch, nonsense)
    assert main(["translate", "-m", str(trained), "--precision", "fp32", "--on-suspect", "fail"]) == 1
    assert "low confidence (log p per token is lower than for 99 %" in capsys.readouterr().err


def test_a_page_draws_where_the_model_looked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    out = run(model, ["--attention", str(page)], "\n".join(LINES).encode(), monkeypatch, capsys)
    [data] = re.findall('<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    examples = json.loads(data)
    assert [each["label"] for each in examples] == ["line 1", "line 3", "line 5", "line 6"]
    assert [each["output"] for each in examples] == [text for text in out.split("\n") if text]
    for each in examples:
        assert "".join(each["cross"]["to"]).replace("\u2581", " ").strip() == f"{each['source']}</s>"
        assert "".join(each["cross"]["from"]).replace("\u2581", " ").strip() == f"{each['output']}</s>"
        assert (each["cross"]["layers"], each["encoder"]["layers"], each["decoder"]["heads"]) == (2, 1, 2)


def test_a_glossary_is_obeyed_and_its_misses_are_reported(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "terms.tsv").write_text("hund\tkatze\nmaus\t\u4e2d\n", encoding="utf-8")
    options = ["--glossary", str(tmp_path / "terms.tsv"), "--report", str(tmp_path / "report")]
    out = run(model, options, "\n".join(LINES).encode(), monkeypatch, capsys).split("\n")
    records = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert "katze" in out[0]
    assert "katze" in out[4]
    for i in (1, 2, 3):
        assert out[i] == best(translations([model], LINES)).split("\n")[i]
    assert [("glossary_missed" in record["flags"], record.get("missing_terms")) for record in records] == [
        (False, None)
    ] * 5 + [(True, ["maus = \u4e2d"])]
    feed_stdin(monkeypatch, b"hund\n")
    assert main(["translate", "-m", str(model), "--sample", *options]) == 2
    assert "--glossary does not work with --sample" in capsys.readouterr().err


def test_markup_comes_through_in_every_mode_and_is_flagged_where_it_does_not(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["der <b>hund</b> und %s", "", "die {name} <br/>", "hund"]
    data = "\n".join(lines).encode()
    options = ["--markup", "--on-suspect", "retry", "--nbest", "2", "--report", str(tmp_path / "report")]
    out = run(model, options, data, monkeypatch, capsys).split("\n")[:-1]
    for line, *outputs in zip(lines, out[::2], out[1::2], strict=True):
        assert [find_markup(output) for output in outputs] == [find_markup(line)] * 2
    assert "markup_lost" not in (tmp_path / "report").read_text(encoding="utf-8")
    monkeypatch.setattr("aiayn_cli.translate.aids.markup.put_back", lambda plain, items, output, links: output)
    run(model, options, data, monkeypatch, capsys)
    records = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert ["markup_lost" in record["flags"] for record in records] == [True, False, True, False]
