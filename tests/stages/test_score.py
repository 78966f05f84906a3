import gzip
import io
import json
from pathlib import Path

import pytest

from aiayn_cli.app import main
from aiayn_cli.evaluation.bleu import bleu

REFERENCE = [
    "Der Hund läuft über die Straße.",
    "Sie sagte: Halt, und alle hielten an.",
    "",
    "Zwei Männer spielen Fußball.",
]
HYPOTHESES = [
    "Der Hund rennt über die Straße.",
    "Sie sagte: Halt, und alle blieben stehen.",
    "",
    "Männer spielen Fußball.",
]


def written(path: Path, lines: list[str]) -> str:
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def feed_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


def test_score_and_signature_go_to_stdout_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = written(tmp_path / "test.de.gz", REFERENCE)
    feed_stdin(monkeypatch, "\n".join(HYPOTHESES).encode())
    assert main(["score", reference]) == 0
    out, err = capsys.readouterr()
    assert out == f"{bleu(HYPOTHESES, [REFERENCE])}\n"
    assert err == ""


def test_json_is_one_object_with_all_that_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [written(tmp_path / name, REFERENCE) for name in ("a", "b")]
    hypotheses = written(tmp_path / "hyp", HYPOTHESES)
    assert main(["score", *files, "--hyp", hypotheses, "--json", "--metric", "bleu"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = bleu(HYPOTHESES, [REFERENCE, REFERENCE])
    assert found["references"] == files
    assert (found["hypotheses"], found["lines"]) == (hypotheses, 4)
    [score] = found["scores"]
    assert (score["metric"], score["score"], score["signature"]) == ("BLEU", expected.score, expected.signature)


def test_carriage_returns_and_tabs_in_the_files_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = [written(tmp_path / "ref", REFERENCE), "--hyp", written(tmp_path / "hyp", HYPOTHESES)]
    assert main(["score", *plain]) == 0
    expected = capsys.readouterr().out
    odd = [line.replace(" ", "\t", 1).replace(" ", " \r", 1) + "\r" for line in HYPOTHESES]
    assert main(["score", plain[0], "--hyp", written(tmp_path / "odd", odd)]) == 0
    assert capsys.readouterr().out == expected


def test_a_line_count_mismatch_names_both_files_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference, hypotheses = written(tmp_path / "ref", REFERENCE), written(tmp_path / "hyp", HYPOTHESES[:3])
    assert main(["score", reference, "--hyp", hypotheses]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: {hypotheses} has 3 lines, but {reference} has 4" in err
    assert "hint: " in err


@pytest.mark.parametrize(
    ("arguments", "tokenizer"),
    [
        (["test.zh"], "zh"),
        (["test.zh.gz"], "zh"),
        (["test.de"], "13a"),
        (["reference"], "13a"),
        (["reference", "-l", "en-zh"], "zh"),
        (["test.zh", "--langs", "en-de"], "13a"),
        (["test.zh", "--tokenize", "char"], "char"),
    ],
)
def test_the_tokeniser_follows_the_language_of_the_pair_or_of_the_file_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], tokenizer: str
) -> None:
    reference = written(tmp_path / arguments[0], ["我喜欢喝绿茶。"])
    hypotheses = written(tmp_path / "hyp", ["我喜欢喝红茶。"])
    assert main(["score", reference, *arguments[1:], "--hyp", hypotheses]) == 0
    out, err = capsys.readouterr()
    assert f"|tok:{tokenizer}|" in out
    assert ("tokeniser zh, for target language zh" in err) == (tokenizer == "zh")


@pytest.mark.parametrize("langs", ["de", "en-", "en_de", "e-d", "en-de-fr"])
def test_what_is_no_language_pair_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], langs: str) -> None:
    reference = written(tmp_path / "ref", REFERENCE)
    assert main(["score", reference, "--hyp", reference, "-l", langs]) == 2
    assert f"--langs is '{langs}', but must be source-target" in capsys.readouterr().err


def test_stdin_cannot_be_reference_and_hypotheses_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "-"]) == 2
    assert "stdin is named more than once" in capsys.readouterr().err


def test_text_that_looks_wrong_is_scored_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = written(tmp_path / "ref", REFERENCE)
    hypotheses = written(tmp_path / "hyp", [line.replace("ß", "@@ ß") for line in HYPOTHESES])
    assert main(["score", reference, "--hyp", hypotheses, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("BLEU = ")
    assert "warning: 50% of the hypotheses hold sub-word marks" in err


def test_a_missing_reference_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "test.de", REFERENCE)
    assert main(["score", str(tmp_path / "test.en")]) == 1
    err = capsys.readouterr().err
    assert "test.en does not exist" in err
    assert "did you mean" in err
