"""COMET itself is not installed here: what stands for it is a package of the same shape that counts words."""

import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from commands import Aiayn

from aiayn_cli.errors import AiaynError
from aiayn_cli.score.comet import CometMetric
from aiayn_cli.score.significance import compare, with_confidence

REFERENCE = ["Der Hund läuft.", "Sie ging.", "Ja.", "Vier Wörter sind hier."]
SOURCE = ["The dog runs.", "She left.", "Yes.", "Four words are here."]
HYPOTHESES = ["Der Hund rennt.", "Sie ging.", "Nein.", "Vier Worte sind hier."]


class WordOverlap:
    """Scores a sample with the share of the reference's words that are in the translation, from 0 to 1."""

    asked: list[dict[str, Any]]

    def predict(self, samples: list[dict[str, str]], **options: Any) -> SimpleNamespace:
        self.asked = [*samples, options]
        shares = [len(set(s["ref"].split()) & set(s["mt"].split())) / len(set(s["ref"].split())) for s in samples]
        return SimpleNamespace(scores=shares, system_score=sum(shares) / len(shares))


@pytest.fixture
def comet(monkeypatch: pytest.MonkeyPatch) -> WordOverlap:
    model = WordOverlap()
    package = ModuleType("comet")
    package.download_model = lambda name: f"/hub/{name}"  # type: ignore[attr-defined]
    package.load_from_checkpoint = lambda path: {"/hub/Unbabel/wmt22-comet-da": model}[path]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "comet", package)
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "2.2.6" if name == "unbabel-comet" else version(name)
    )
    return model


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(AiaynError, match="needs the package unbabel-comet") as error:
        CometMetric([REFERENCE], SOURCE)
    assert "pip install unbabel-comet" in error.value.hint


def test_a_line_s_score_is_the_model_s_times_100_and_the_system_s_is_their_mean(comet: WordOverlap) -> None:
    metric = CometMetric([REFERENCE], SOURCE)
    [statistics] = metric.statistics([HYPOTHESES])
    assert comet.asked[0] == {"src": "The dog runs.", "mt": "Der Hund rennt.", "ref": "Der Hund läuft."}
    assert [metric.sentence(counts) for counts in statistics] == pytest.approx([200 / 3, 100, 0, 75])
    score = metric.score(statistics)
    assert (score.metric, score.score) == ("COMET", pytest.approx((200 / 3 + 175) / 4))
    assert score.signature == "model:Unbabel/wmt22-comet-da|version:2.2.6"


def test_intervals_and_tests_work_on_it_too(comet: WordOverlap) -> None:
    metric = CometMetric([REFERENCE * 10], SOURCE * 10)
    worse = [line.replace("Der", "Die") for line in HYPOTHESES]
    both = metric.statistics([HYPOTHESES * 10, worse * 10])
    score = with_confidence(metric, both[0], resamples=50)
    assert score.mean is not None
    assert score.mean == pytest.approx(score.score, abs=5)
    [found] = compare(metric, ["a", "b"], both, resamples=50, trials=50)
    assert found.difference == pytest.approx(-100 / 3 / 4)
    assert max(found.p_bootstrap, found.p_randomisation) < 0.05
    assert "|ar:50" in found.randomisation_signature


def test_the_command_gives_it_the_source(
    comet: WordOverlap, tmp_path: Path, aiayn: Aiayn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("ref", REFERENCE), ("src", SOURCE), ("hyp", HYPOTHESES)):
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = ["score", "ref", "--hyp", "hyp", "--metric", "comet"]
    [score] = aiayn(*command, "--source", "src", "--json").json["systems"][0]["scores"]
    assert score["score"] == pytest.approx(60.4166667)
    said = aiayn(*command)
    assert said.code == 1
    assert "COMET needs the source text" in said.err


def test_a_model_that_cannot_be_loaded_is_named_and_several_references_are_too_many(comet: WordOverlap) -> None:
    with pytest.raises(AiaynError, match="COMET's model mine cannot be loaded") as error:
        CometMetric([REFERENCE], SOURCE, model="mine")
    assert "--comet-model" in error.value.hint
    with pytest.raises(AiaynError, match="COMET takes one reference, not 2"):
        CometMetric([REFERENCE, REFERENCE], SOURCE)
