import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoints import copy_damaged
from commands import Aiayn
from translation_models import DECODING, LINES, Translate, best, make_checkpoint, translate_options, translations

from aiayn_cli.errors import CheckpointError
from aiayn_cli.translate.load_models import load_models

CPU: dict[str, Any] = {"device": "cpu", "precision": "fp32"}
OTHER = "le la une chien chat souris court saute voit et"


def test_without_a_model_the_newest_run_is_taken_and_named(
    tmp_path: Path, aiayn: Aiayn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = tmp_path / "runs" / "first" / "checkpoints"
    checkpoints.mkdir(parents=True)
    make_checkpoint(checkpoints / "step-00001207", seed=7)
    said = aiayn("translate", stdin=b"hund\n")
    assert said.code == 0
    assert "model: runs/first/checkpoints/step-00001207, de-en, step 1,207" in said.err


def test_options_override_the_models_own_settings(model: Path, translate: Translate) -> None:
    options = ["--beam", "5", "--alpha", "2", "--max-extra", "2", "--batch-tokens", "11", "--nbest", "4", "--scores"]
    found = [line.split("\t") for line in translate(*options).lines]
    decoding = replace(DECODING, beam_size=5, alpha=2.0, max_extra=2, batch_tokens=11)
    expected = [each for line in translations([model], LINES, decoding, n_best=4) for each in line]
    assert len(found) == 24
    assert [text for _, text in found] == [each.text for each in expected]
    scores = [each.score for each in expected]
    assert [float(score) for score, _ in found] == pytest.approx(scores, abs=1e-3, nan_ok=True)


def test_two_models_are_an_ensemble(model: Path, tmp_path: Path, translate: Translate) -> None:
    second = make_checkpoint(tmp_path / "two", seed=2)
    assert translate("-m", model, "-m", second)[:2] == (0, best(translations([model, second], LINES)))


def test_models_that_differ_are_no_ensemble_and_a_foreign_vocabulary_is_refused(
    model: Path, tmp_path: Path, translate: Translate
) -> None:
    other, changed = make_checkpoint(tmp_path / "other", seed=2, corpus=OTHER), tmp_path / "changed"
    back = shutil.copytree(model, tmp_path / "back")
    known = json.loads((back / "model.json").read_text())
    (back / "model.json").write_text(json.dumps({**known, "src_lang": "en", "tgt_lang": "de"}))
    shutil.copytree(model, changed)
    (changed / "vocab.model").write_bytes((other / "vocab.model").read_bytes())
    for models, problem in (
        ([model, other], f"{model} and {other} have different vocabularies"),
        ([model, back], "have different languages"),
        ([changed], "is not the vocabulary that the model was trained with"),
    ):
        code, _, err = translate(*(word for path in models for word in ("-m", path)), lines=["hund"])
        assert code == 1
        assert problem in err


@pytest.mark.parametrize("others", [0, 1])
def test_weights_checked_beside_other_work_are_confirmed_before_they_are_used(
    others: int, model: Path, tmp_path: Path
) -> None:
    sound = [model] * others
    load_models(translate_options([model, *sound], **CPU), check_in_background=True).confirm()
    loaded = load_models(
        translate_options([*sound, copy_damaged(model, tmp_path / "model")], **CPU), check_in_background=True
    )
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"model.weights\.safetensors is not as it was written"):
            loaded.confirm()


@pytest.mark.parametrize("int8", [False, True])
def test_weights_are_checked_as_they_are_loaded_where_all_of_them_are_read(
    int8: bool, model: Path, tmp_path: Path
) -> None:
    options = translate_options([copy_damaged(model, tmp_path / "model")], **CPU, int8=int8)
    with pytest.raises(CheckpointError, match="is not as it was written"):
        load_models(options, check_in_background=int8)
