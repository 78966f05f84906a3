import json
import re
import shutil
from pathlib import Path

import pytest
from commands import records
from record.record import FIXTURES
from translation_models import LINES, Translate, best, translations

from aiayn_cli.translate.aids.markup import find_markup
from aiayn_cli.translate.trust.flags import confidence, confidence_threshold


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report"


def test_a_report_and_a_summary_tell_which_lines_not_to_trust(model: Path, report: Path, translate: Translate) -> None:
    code, out, err = translate("--report", report, "--json")
    found, result = records(report), json.loads(out)
    assert code == 0
    assert [record["line"] for record in found] == [1, 2, 3, 4, 5, 6]
    assert [record["source"] for record in found] == [line.strip(" \u3000") for line in LINES]
    assert [record["translation"] for record in found] == [each[0].text for each in translations([model], LINES)]
    suspect = sum(bool(record["flags"]) for record in found)
    assert suspect > 0, "a model with random weights says nothing sensible"
    assert f"{suspect} of 6 lines look wrong: " in err
    assert result["suspect_lines"] == suspect
    assert sum(result["flags"].values()) == sum(len(record["flags"]) for record in found)


@pytest.mark.parametrize("on_suspect", ["retry", "empty", "copy"])
def test_suspect_lines_are_dealt_with_and_every_line_keeps_its_place(
    report: Path, translate: Translate, on_suspect: str
) -> None:
    out = translate("--report", report, "--on-suspect", on_suspect, "--nbest", "2", "--alignments").lines
    found = records(report)
    assert len(out) == 2 * len(LINES) == 2 * len(found)
    assert any(record["flags"] or record.get("helped") for record in found)
    for record, text in zip(found, out[::2], strict=True):
        assert text.split("\t")[0] == record["translation"]
        if record["flags"] and on_suspect != "retry":
            assert record["replaced_by"] == on_suspect
            assert text == ("\t" if on_suspect == "empty" else f"{record['source']}\t")


def test_on_suspect_fail_stops_there_and_keeps_what_was_before(tmp_path: Path, translate: Translate) -> None:
    lines = ["", "", "", "der hund 1999 läuft", "hund"]
    code, out, err = translate("--on-suspect", "fail", "--report", tmp_path / "report", lines=lines)
    assert (code, out) == (1, "\n\n\n")
    assert "stdin:4: the translation is suspect: " in err
    assert "number lost (a number of the source above 12 is missing)" in err
    assert "--on-suspect retry" in err
    assert "translated 3 lines in " in err
    assert (tmp_path / "report.unfinished").read_text().count("\n") == 3


def test_outputs_that_a_trained_model_finds_unlikely_are_flagged_but_not_those_for_text_like_its_own(
    tmp_path: Path, report: Path, translate: Translate
) -> None:
    trained = tmp_path / "model"
    shutil.copytree(FIXTURES / "run" / "averaged", trained)
    own = (FIXTURES / "text" / "test.en").read_bytes()
    nonsense = b"the the the the the the\nXXXXXX YYYYY\nzzzzzz\n"

    def flagged(*options: object) -> list[int]:
        assert translate("-m", trained, "--report", report, *options, lines=own + nonsense).code == 0
        return [record["line"] for record in records(report) if "low_confidence" in record["flags"]]

    assert flagged() == []  # a checkpoint of an earlier version has no threshold
    translated = translations([trained], (FIXTURES / "text" / "valid.en").read_text().splitlines(), None)
    known = json.loads((trained / "model.json").read_bytes())
    known["low_confidence"] = confidence_threshold(confidence(best) for best, *_ in translated)
    (trained / "model.json").write_text(json.dumps(known), encoding="utf-8")
    assert flagged() == [41, 42, 43]
    assert flagged("--sample", "--seed", "1") == []
    assert flagged("-m", FIXTURES / "run" / "averaged") == []  # an ensemble, of which one model has no threshold
    code, _, err = translate("-m", trained, "--on-suspect", "fail", lines=nonsense)
    assert code == 1
    assert "low confidence (log p per token is lower than for 99 %" in err


def test_a_page_draws_where_the_model_looked(tmp_path: Path, translate: Translate) -> None:
    page = tmp_path / "page.html"
    out = translate("--attention", page).lines
    [data] = re.findall('<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    examples = json.loads(data)
    assert [each["label"] for each in examples] == ["line 1", "line 3", "line 5", "line 6"]
    assert [each["output"] for each in examples] == [text for text in out if text]
    for each in examples:
        assert "".join(each["cross"]["to"]).replace("\u2581", " ").strip() == f"{each['source']}</s>"
        assert "".join(each["cross"]["from"]).replace("\u2581", " ").strip() == f"{each['output']}</s>"
        assert (each["cross"]["layers"], each["encoder"]["layers"], each["decoder"]["heads"]) == (2, 1, 2)


def test_a_glossary_is_obeyed_and_its_misses_are_reported(
    model: Path, tmp_path: Path, report: Path, translate: Translate
) -> None:
    (tmp_path / "terms.tsv").write_text("hund\tkatze\nmaus\t\u4e2d\n", encoding="utf-8")
    out = translate("--glossary", tmp_path / "terms.tsv", "--report", report).lines
    assert ["katze" in out[i] for i in (0, 4)] == [True, True]
    assert out[1:4] == best(translations([model], LINES)).split("\n")[1:4]
    missed = [("glossary_missed" in record["flags"], record.get("missing_terms")) for record in records(report)]
    assert missed == [(False, None)] * 5 + [(True, ["maus = \u4e2d"])]


def test_markup_comes_through_in_every_mode_and_is_flagged_where_it_does_not(
    report: Path, translate: Translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["der <b>hund</b> und %s", "", "die {name} <br/>", "hund"]
    options = ["--markup", "--on-suspect", "retry", "--nbest", "2", "--report", report]
    out = translate(*options, lines=lines).lines
    for line, *outputs in zip(lines, out[::2], out[1::2], strict=True):
        assert [find_markup(output) for output in outputs] == [find_markup(line)] * 2
    assert "markup_lost" not in report.read_text(encoding="utf-8")
    monkeypatch.setattr("aiayn_cli.translate.aids.markup.put_back", lambda plain, items, output, links: output)
    translate(*options, lines=lines)
    assert ["markup_lost" in record["flags"] for record in records(report)] == [True, False, True, False]
