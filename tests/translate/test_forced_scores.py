import json
import math
from pathlib import Path

import pytest
from translation_models import LINES, Translate, best, translations

from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text.codec import Codec


def test_a_translation_scores_what_the_search_said_of_it(model: Path, tmp_path: Path, translate: Translate) -> None:
    # A text can be split in other ways than the search did, so that the ids are compared first.
    expected = translations([model], LINES)
    codec = Codec.load(model, TextConfig(), "de", "en")
    (tmp_path / "targets").write_text(best(expected), encoding="utf-8")
    said = translate("--score-against", tmp_path / "targets", "--batch-tokens", "30")
    rows = [list(map(float, line.split("\t"))) for line in said.lines]
    assert (said.code, len(rows)) == (0, len(LINES))
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
    summary = f"perplexity {math.exp(-total / tokens):.4g} over {tokens} tokens, 2 without a score"
    assert f"scored 6 pairs: {summary}" in said.err
    assert "line 2: no score: a side is blank, unreadable or longer than 1,000 sub-words" in said.err


def test_scores_as_json_name_each_token(tmp_path: Path, translate: Translate) -> None:
    (tmp_path / "targets").write_text("die maus\nx\n" + "a " * 1001 + "\n")
    sources = b'{"id": 1, "text": "der hund"}\n\n{"text": "hund"}\n'
    first, second, third = translate(
        "--score-against", tmp_path / "targets", "--format", "jsonl", lines=sources
    ).records
    assert (first["id"], first["text"], first["translation"]) == (1, "der hund", "die maus")
    assert "".join(piece for piece, _ in first["tokens"]).replace("\u2581", " ") == " die maus</s>"
    assert sum(log_prob for _, log_prob in first["tokens"]) == pytest.approx(first["log_prob"], abs=1e-3)
    assert (second["line"], second["log_prob"], second["perplexity"], second["tokens"]) == (2, None, None, [])
    assert third["log_prob"] is None
    (tmp_path / "targets").write_text("die maus\n")
    result = json.loads(translate("--score-against", tmp_path / "targets", "--json", lines=["der hund"]).out)
    [[log_prob, perplexity]] = result["scores"]
    assert log_prob == pytest.approx(first["log_prob"], abs=1e-3)
    assert perplexity == pytest.approx(first["perplexity"], rel=1e-3)
    assert result["tokens"] == len(first["tokens"])
