import json
import math
from pathlib import Path

import pytest
from translation_models import LINES, best, feed_stdin, translations

from aiayn_cli.app import main
from aiayn_cli.config import TextConfig
from aiayn_cli.text.codec import Codec


def score_against(
    model: Path, folder: Path, targets: str, options: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], sources: str = "\n".join(LINES),
) -> tuple[str, str]:  # fmt: skip
    """stdout and stderr of scoring pairs."""
    (folder / "targets").write_text(targets, encoding="utf-8")
    feed_stdin(monkeypatch, sources.encode())
    arguments = ["translate", "-m", str(model), "--precision", "fp32", "--score-against", str(folder / "targets")]
    assert main([*arguments, *options]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_translation_scores_what_the_search_said_of_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A text can be split in other ways than the search did, so that the ids are compared first.
    expected = translations([model], LINES)
    codec = Codec.load(model, TextConfig(), "de", "en")
    out, err = score_against(model, tmp_path, best(expected), ["--batch-tokens", "30"], monkeypatch, capsys)
    rows = [list(map(float, line.split("\t"))) for line in out.split("\n")[:-1]]
    assert len(rows) == len(LINES)
    compared, total, tokens = 0, 0.0, 0
    for line, [output], (log_prob, perplexity) in zip(LINES, expected, rows, strict=True):
        ids = codec.encode_tgt([output.text])[0]
        if not line.strip():
            assert math.isnan(log_prob)
            assert math.isnan(perplexity)
            continue
        total, tokens = total + log_prob, tokens + len(ids) + 1
        assert perplexity == pytest.approx(math.exp(-log_prob / (len(ids) + 1)), rel=1e-3)
        if tuple(ids) == output.parts[0].tgt:
            assert log_prob == pytest.approx(output.log_prob, abs=2e-3)
            compared += 1
    assert compared > 0
    assert f"scored 6 pairs: perplexity {math.exp(-total / tokens):.4g} over {tokens} tokens, 2 without a score" in err
    assert "line 2: no score: a side is blank, unreadable or longer than 1,000 sub-words" in err


def test_scores_as_json_name_each_token(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = '{"id": 1, "text": "der hund"}\n\n{"text": "hund"}\n'
    targets = "die maus\nx\n" + "a " * 1001 + "\n"
    out, _ = score_against(model, tmp_path, targets, ["--format", "jsonl"], monkeypatch, capsys, sources)
    first, second, third = map(json.loads, out.split("\n")[:-1])
    assert (first["id"], first["text"], first["translation"]) == (1, "der hund", "die maus")
    assert "".join(piece for piece, _ in first["tokens"]).replace("\u2581", " ") == " die maus</s>"
    assert sum(log_prob for _, log_prob in first["tokens"]) == pytest.approx(first["log_prob"], abs=1e-3)
    assert (second["line"], second["log_prob"], second["perplexity"], second["tokens"]) == (2, None, None, [])
    assert third["log_prob"] is None
    result = json.loads(score_against(model, tmp_path, "die maus\n", ["--json"], monkeypatch, capsys, "der hund\n")[0])
    assert result["scores"] == [
        [pytest.approx(first["log_prob"], abs=1e-3), pytest.approx(first["perplexity"], rel=1e-3)]
    ]
    assert result["tokens"] == len(first["tokens"])
