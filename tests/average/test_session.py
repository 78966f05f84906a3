"""The average is the mean of what was asked for, one checkpoint in memory at a time, and replaces nothing else."""

import gc
import json
import re
import shutil
import signal
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import fail_at
from torch import Tensor

from aiayn_cli.app import main
from aiayn_cli.average.session import AverageOptions, AverageResult, run_average
from aiayn_cli.checkpoint import tensor_files
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import checkpoint_path, find_model, interrupted_path, mark_best
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import CheckpointError, UsageError
from aiayn_cli.model.build import build_model
from aiayn_cli.recipe import recipe_to_yaml
from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig, Recipe

SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=8, d_ff=12, n_heads=2, d_k=3, d_v=5, dropout=0.2)
LAST = [name for name, _ in build_model(SHAPE, 9).named_parameters()][-1]
Average = Callable[..., AverageResult]


def weights_of(step: int, data: PreparedData) -> dict[str, Tensor]:
    torch.manual_seed(step)
    return {name: p.detach() * step for name, p in build_model(SHAPE, data.vocab_size).named_parameters()}


@pytest.fixture
def saved(small_data: PreparedData, tmp_path: Path) -> Callable[..., Path]:
    """A checkpoint of tmp_path/runs/small with weights of its own, or one with changed particulars."""

    def save(step: int, path: Path | None = None, weights: dict[str, Tensor] | None = None, **changes: Any) -> Path:
        checkpoint = Checkpoint(
            path=path or checkpoint_path(tmp_path / "runs" / "small", step), step=step, model=SHAPE,
            decoding=DecodingConfig(beam_size=2, max_extra=3), vocab_size=small_data.vocab_size,
            vocab_sha256=small_data.vocab_sha256, data_sha256=small_data.sha256, src_lang="en", tgt_lang="de",
            run_id="5" * 32,
        )  # fmt: skip
        content = weights or weights_of(step, small_data)
        return save_checkpoint(replace(checkpoint, **changes), content, small_data.vocab_path).path

    return save


@pytest.fixture
def run(saved: Callable[..., Path], tmp_path: Path) -> Path:
    """A run whose names are not in the order of its steps, as text."""
    run = tmp_path / "runs" / "small"
    for step in (9, 10, 100, 99):
        saved(step, run / "checkpoints" / f"step-{step}")
    write_recipe(run, average_last=3)
    return run


def write_recipe(run: Path, **training: Any) -> None:
    recipe = Recipe(training=replace(Recipe().training, **training))
    (run / "recipe.yaml").write_text(recipe_to_yaml(recipe), encoding="utf-8")


def assert_mean(model: Path, steps: list[int], data: PreparedData) -> None:
    """Its weights are the mean, by numpy in float64."""
    each = [weights_of(step, data) for step in steps]
    found = load_checkpoint(model).weights()
    assert found.keys() == each[0].keys()
    for name, weight in found.items():
        assert weight.dtype is torch.float32
        expected = np.mean([weights[name].double().numpy() for weights in each], axis=0)
        scale = np.abs(expected).max() + 1e-30
        np.testing.assert_allclose(weight.numpy() / scale, expected / scale, rtol=0, atol=1e-6)


@pytest.fixture
def average(run: Path, small_data: PreparedData) -> Average:
    """Average the run, or other paths, and compare with the mean of what it should be."""

    def average(expected: list[int], *paths: Path, **options: Any) -> AverageResult:
        result = run_average(paths or [run], AverageOptions(**options))
        assert_mean(result.model, expected, small_data)
        return result

    return average


def test_the_last_checkpoints_by_number_are_averaged(average: Average, run: Path) -> None:
    result = average([10, 99, 100])  # the recipe asks for 3
    assert result.checkpoints == ("step-10", "step-99", "step-100")
    assert result.model == run / "averaged"
    assert str(result) == f"{run / 'averaged'}: average of 3 checkpoints, step-10 to step-100"


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"last": 1}, [100]),
        ({"last": 2}, [99, 100]),
        ({"last": 4}, [9, 10, 99, 100]),
        ({"steps": "10-99"}, [10, 99]),
        ({"steps": "10-"}, [10, 99, 100]),
        ({"steps": "-99"}, [9, 10, 99]),
        ({"steps": "99-99"}, [99]),
        ({"steps": "0-1000"}, [9, 10, 99, 100]),
    ],
)
def test_the_number_of_the_last_or_a_range_of_updates_can_be_given(
    options: dict[str, Any], steps: list[int], average: Average
) -> None:
    average(steps, **options)


@pytest.mark.parametrize(
    ("options", "threshold"), [({"last": 4}, -0.4), ({"last": 1}, -0.5), ({"steps": "9-10"}, None)]
)
def test_the_threshold_of_confidence_is_the_mean_of_those_known(
    options: dict[str, Any], threshold: float | None, saved: Callable[..., Path], tmp_path: Path
) -> None:
    for step, known in ((9, None), (10, None), (98, -0.2), (99, -0.5), (100, -0.5)):
        saved(step, low_confidence=known)
    found = run_average([tmp_path / "runs" / "small"], AverageOptions(**options))
    assert load_checkpoint(found.model).low_confidence == pytest.approx(threshold)


def test_fewer_than_asked_for_are_averaged_with_a_notice(
    average: Average, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    average([9, 10, 99, 100], last=7)
    assert f"{run} has only 4 checkpoints, fewer than 7" in capsys.readouterr().err


def test_places_of_interruptions_and_links_are_no_part_of_it(
    average: Average, run: Path, saved: Callable[..., Path]
) -> None:
    saved(105, interrupted_path(run, 105))
    mark_best(run, run / "checkpoints" / "step-9")
    (run / "checkpoints" / "step-200").symlink_to("step-9")
    average([99, 100], last=2)


def test_named_checkpoints_are_averaged_in_the_order_of_their_steps_and_each_counts_once(
    average: Average, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, last, copy = (run / "checkpoints" / name for name in ("step-9", "step-10", "step-100", "copy"))
    result = average([9, 100], last, first)
    assert result.checkpoints == ("step-9", "step-100")
    assert result.model.samefile(run / "averaged")
    mark_best(run, first)
    shutil.copytree(first, copy)
    result = average([9, 10], copy, first, run / "checkpoints" / "best", second, second)
    assert result.checkpoints == ("step-9", "step-10")
    assert "5 checkpoints named, 2 different; each counts once" in capsys.readouterr().err


def test_the_result_is_like_a_checkpoint_names_its_parents_and_can_be_averaged(
    average: Average, run: Path, small_data: PreparedData
) -> None:
    path = average([99, 100], last=2).model
    found, newest = load_checkpoint(path), load_checkpoint(run / "checkpoints" / "step-100")
    assert found == replace(newest, path=path, parents=("step-99", "step-100"))
    assert found.vocab_path.read_bytes() == small_data.vocab_path.read_bytes()
    assert not (path / "training").exists()
    assert find_model(run) == path
    found.load_into(build_model(SHAPE, small_data.vocab_size))
    assert average([99, 100], path, out=run.parent / "again").checkpoints == ("averaged",)


def test_an_average_replaces_an_earlier_one_and_nothing_else(average: Average, run: Path, tmp_path: Path) -> None:
    average([100], last=1)
    average([99, 100], last=2)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "thesis", tmp_path / "file", run, run / "checkpoints" / "step-9", tmp_path):
        with pytest.raises(CheckpointError, match="exists and is not an averaged model") as error:
            run_average([run], AverageOptions(last=2, out=out))
        assert str(out) in error.value.problem
        assert "--out" in error.value.hint
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "mine"
    assert load_checkpoint(run / "checkpoints" / "step-9").parents == ()
    for out in (tmp_path / "empty", tmp_path / "new" / "folder"):
        average([99, 100], last=2, out=out)
    (tmp_path / "link").symlink_to("empty")
    average([100], last=1, out=tmp_path / "link")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".unfinished-")]


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("runs", {"run_id": "6" * 32}),
        ("vocabularies", {"vocab_sha256": "7" * 64}),
        ("model shapes", {"model": replace(SHAPE, d_ff=13)}),
        ("model shapes", {"model": replace(SHAPE, norm="pre")}),
    ],
)
def test_what_does_not_belong_together_is_refused_by_name(
    what: str, changes: dict[str, Any], run: Path, saved: Callable[..., Path]
) -> None:
    odd = saved(101, **changes)
    with pytest.raises(CheckpointError, match=f"are of different {what}") as error:
        run_average([run], AverageOptions())
    assert str(odd) in error.value.problem
    assert "\n" not in error.value.problem
    assert not (run / "averaged").exists()


def test_a_dropout_that_changed_on_the_way_is_no_other_shape(average: Average, saved: Callable[..., Path]) -> None:
    saved(101, model=replace(SHAPE, dropout=0.3, attention_dropout=0.1))
    average([100, 101], last=2)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda weights: weights.update(b=torch.zeros(2)), "step-00000101 differs from the others in b"),
        (lambda weights: weights.update({LAST: torch.zeros(1)}), rf"{re.escape(LAST)} has shape \[1\], not \["),
        *((lambda weights, value=value: weights[LAST].view(-1)[0].fill_(value),
           rf"step-00000101/\S+: number 0 of {re.escape(LAST)} is {value}") for value in (torch.nan, torch.inf)),
    ],
)  # fmt: skip
def test_weights_that_would_spoil_the_mean_are_refused_by_name(
    spoil: Callable[[dict[str, Tensor]], object], problem: str, average: Average, run: Path, small_data: PreparedData,
    saved: Callable[..., Path],
) -> None:  # fmt: skip
    earlier = average([10, 99, 100]).model
    weights = weights_of(101, small_data)
    spoil(weights)
    saved(101, weights=weights)
    with pytest.raises(CheckpointError, match=problem):
        run_average([run], AverageOptions())
    assert_mean(earlier, [10, 99, 100], small_data)


def test_a_range_without_a_checkpoint_says_which_there_are(run: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint from updates 11-98") as error:
        run_average([run], AverageOptions(steps="11-98"))
    assert error.value.hint == "it has those from updates 9, 10, 99, 100"


def validated(run: Path, best_metric: str, records: list[dict[str, Any]]) -> None:
    """Give a run the records of validations."""
    write_recipe(run, best_metric=best_metric)
    lines = [json.dumps({"event": "validation", **record}) for record in records]
    (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in ['{"event": "train"}', *lines, '{"cut']))


def test_the_best_by_validation_are_averaged(average: Average, run: Path) -> None:
    scores = [(9, 20.0, 3.0), (10, 30.0, 2.5), (99, 29.0, 2.0), (100, 10.0, 1.0), (100, 28.0, 9.0), (7, 99.0, 0.1)]
    records = [{"step": step, "bleu": bleu, "loss": loss} for step, bleu, loss in scores]
    validated(run, "bleu", records)
    average([10, 99], best=2)
    average([10, 99, 100], best=3)  # step 100 was done again: its last record counts
    validated(run, "loss", records)
    average([10, 99], best=2)
    average([99], best=1)
    validated(run, "bleu", [{"step": step, "bleu": 5.0, "loss": 1.0} for step in (9, 10, 99, 100)])
    average([99, 100], best=2)  # of equally good ones the later


def test_the_best_without_enough_validations(average: Average, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint of .* has a validation BLEU") as error:
        run_average([run], AverageOptions(best=2))
    assert "--last" in error.value.hint
    validated(run, "bleu", [{"step": 10, "bleu": 5.0}, {"step": 99, "bleu": None}])
    average([10], best=2)
    assert "has only 1 checkpoint with a validation BLEU, fewer than 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "names", "problem"),
    [
        ({"last": 1, "best": 2}, [], "--last and --best contradict each other"),
        ({"steps": "1-2", "best": 2}, [], "--steps and --best contradict each other"),
        ({"ema": True, "last": 2}, [], "--ema and --last contradict each other"),
        ({"search": True, "best": 2}, [], "--search tries --best and --ema anyway"),
        ({"search": True, "ema": True}, [], "--search tries --best and --ema anyway"),
        ({"data": Path("prepared")}, [], "--data needs --search"),
        ({"last": 2}, ["step-9", "step-10"], "--last needs a run"),
        ({"ema": True}, ["step-9", "step-10"], "takes one checkpoint's moving average, not 2"),
        *(({"steps": steps}, [], "must be a range of updates") for steps in ("", "-", "9", "a-b", "9-10-11")),
    ],
)
def test_choices_that_do_not_fit_together_are_refused(
    options: dict[str, Any], names: list[str], problem: str, run: Path
) -> None:
    with pytest.raises(UsageError, match=problem):
        run_average([run / "checkpoints" / name for name in names] or [run], AverageOptions(**options))


def test_one_checkpoint_is_in_memory_at_a_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    read = Checkpoint.weights

    def watched(checkpoint: Checkpoint) -> dict[str, Tensor]:
        gc.collect()
        alive.append(sum(reference() is not None for reference in opened))
        weights = read(checkpoint)
        opened.extend(weakref.ref(weight) for weight in weights.values())
        return weights

    monkeypatch.setattr(Checkpoint, "weights", watched)
    run_average([run], AverageOptions(last=4))
    assert alive == [0, 0, 0, 0]


def test_a_damaged_checkpoint_is_named_and_leaves_the_earlier_average(
    average: Average, run: Path, small_data: PreparedData
) -> None:
    average([100], last=1)
    weights = run / "checkpoints" / "step-99" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match=r"step-99/weights\.safetensors is not as it was written"):
        run_average([run], AverageOptions(last=3))
    assert_mean(run / "averaged", [100], small_data)


def test_without_a_run_in_sight_the_message_says_what_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for paths, message in (
        ([], "no trained model in runs/"),
        ([tmp_path / "empty"], "empty has no checkpoints"),
        ([tmp_path / "nowhere"], "nowhere does not exist"),
        ([run / "checkpoints"], "checkpoints is part of a run"),
        ([run / "checkpoints" / "step-9", tmp_path / "nowhere"], "nowhere is not a checkpoint"),
    ):
        with pytest.raises(CheckpointError, match=message):
            run_average(paths, AverageOptions())


def test_checkpoints_outside_of_a_run_need_a_place_for_the_result(
    tmp_path: Path, saved: Callable[..., Path], average: Average
) -> None:
    copies = [saved(step, tmp_path / f"copy-{step}") for step in (1, 2)]
    with pytest.raises(UsageError, match="copy-1 is not in a run") as error:
        run_average(copies, AverageOptions())
    assert "--out" in error.value.hint
    average([1, 2], *copies, out=tmp_path / "out")


def test_the_command_takes_the_newest_run_and_translate_takes_its_average(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["average", "--last", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["model"], found["checkpoints"]) == ("runs/small/averaged", ["step-99", "step-100"])
    assert "averaging the newest run, runs/small" in err
    (tmp_path / "in").write_text("the dog runs\n\n", encoding="utf-8")
    assert main(["translate", "-i", "in", "-o", "out", "--precision", "fp32"]) == 0
    assert (tmp_path / "out").read_bytes().count(b"\n") == 2
    assert "runs/small/averaged" in capsys.readouterr().err


def test_ctrl_c_in_the_middle_leaves_the_earlier_average_and_nothing_else(
    average: Average, run: Path, small_data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = average([99, 100], last=2).model
    before = sorted(run.iterdir())
    fail_at(monkeypatch, tensor_files, "save_file", 1, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_average([run], AverageOptions())
    assert sorted(run.iterdir()) == before
    assert_mean(earlier, [99, 100], small_data)


def test_an_earlier_average_that_is_damaged_is_not_replaced_unasked(run: Path) -> None:
    earlier = run_average([run], AverageOptions()).model
    (earlier / "model.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match="cannot be read") as error:
        run_average([run], AverageOptions())
    assert error.value.hint == f"move {earlier} away, or give another --out"
