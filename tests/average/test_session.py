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
from aiayn_cli.average.session import AverageOptions, run_average
from aiayn_cli.checkpoint import tensor_files
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import checkpoint_path, find_model, interrupted_path, mark_best
from aiayn_cli.config import DecodingConfig, ModelConfig, Recipe
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import CheckpointError, UsageError
from aiayn_cli.model.build import build_model
from aiayn_cli.recipe import recipe_to_yaml

SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=8, d_ff=12, n_heads=2, d_k=3, d_v=5, dropout=0.2)


def weights_of(step: int, data: PreparedData) -> dict[str, Tensor]:
    torch.manual_seed(step)
    return {name: p.detach() * step for name, p in build_model(SHAPE, data.vocab_size).named_parameters()}


@pytest.fixture
def saved(small_data: PreparedData, tmp_path: Path) -> Callable[..., Path]:
    """A checkpoint of tmp_path/runs/small with weights of its own, or one with changed particulars."""

    def save(step: int, path: Path | None = None, **changes: Any) -> Path:
        run = tmp_path / "runs" / "small"
        checkpoint = Checkpoint(
            path=path or checkpoint_path(run, step),
            step=step,
            model=SHAPE,
            decoding=DecodingConfig(beam_size=2, max_extra=3),
            vocab_size=small_data.vocab_size,
            vocab_sha256=small_data.vocab_sha256,
            data_sha256=small_data.sha256,
            src_lang="en",
            tgt_lang="de",
            run_id="5" * 32,
        )
        saved = save_checkpoint(replace(checkpoint, **changes), weights_of(step, small_data), small_data.vocab_path)
        return saved.path

    return save


@pytest.fixture
def run(saved: Callable[..., Path], tmp_path: Path) -> Path:
    """A run whose names are not in the order of its steps, as text."""
    for step in (9, 10, 100, 99):
        saved(step, checkpoint_path(tmp_path / "runs" / "small", step).with_name(f"step-{step}"))
    recipe = Recipe(training=replace(Recipe().training, average_last=3))
    (tmp_path / "runs" / "small" / "recipe.yaml").write_text(recipe_to_yaml(recipe), encoding="utf-8")
    return tmp_path / "runs" / "small"


def mean_of(steps: list[int], data: PreparedData) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """The mean in float64, by numpy."""
    each = [weights_of(step, data) for step in steps]
    return {name: np.mean([weights[name].double().numpy() for weights in each], axis=0) for name in each[0]}


def assert_mean(model: Path, steps: list[int], data: PreparedData) -> None:
    found, expected = load_checkpoint(model).weights(), mean_of(steps, data)
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        assert weight.dtype is torch.float32
        scale = np.abs(expected[name]).max() + 1e-30
        np.testing.assert_allclose(weight.numpy() / scale, expected[name] / scale, rtol=0, atol=1e-6)


def test_the_last_checkpoints_by_number_are_averaged(run: Path, small_data: PreparedData) -> None:
    result = run_average([run], AverageOptions())  # the recipe asks for 3
    assert result.checkpoints == ("step-10", "step-99", "step-100")
    assert_mean(result.model, [10, 99, 100], small_data)
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
    options: dict[str, Any], steps: list[int], run: Path, small_data: PreparedData
) -> None:
    assert_mean(run_average([run], AverageOptions(**options)).model, steps, small_data)


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
    run: Path, small_data: PreparedData, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_average([run], AverageOptions(last=7))
    assert_mean(result.model, [9, 10, 99, 100], small_data)
    assert f"{run} has only 4 checkpoints, fewer than 7" in capsys.readouterr().err


def test_places_of_interruptions_and_links_are_no_part_of_it(
    run: Path, saved: Callable[..., Path], small_data: PreparedData
) -> None:
    saved(105, interrupted_path(run, 105))
    mark_best(run, run / "checkpoints" / "step-9")
    (run / "checkpoints" / "step-200").symlink_to("step-9")
    assert_mean(run_average([run], AverageOptions(last=2)).model, [99, 100], small_data)


def test_named_checkpoints_are_averaged_in_the_order_of_their_steps(run: Path, small_data: PreparedData) -> None:
    names = [run / "checkpoints" / name for name in ("step-100", "step-9")]
    result = run_average(names, AverageOptions())
    assert result.checkpoints == ("step-9", "step-100")
    assert_mean(result.model, [9, 100], small_data)
    assert result.model.samefile(run / "averaged")


def test_a_checkpoint_named_twice_linked_or_copied_counts_once(
    run: Path, small_data: PreparedData, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, copy = (run / "checkpoints" / name for name in ("step-9", "step-10", "copy"))
    mark_best(run, first)
    shutil.copytree(first, copy)
    result = run_average([copy, first, run / "checkpoints" / "best", second, second], AverageOptions())
    assert result.checkpoints == ("step-9", "step-10")
    assert_mean(result.model, [9, 10], small_data)
    assert "5 checkpoints named, 2 different; each counts once" in capsys.readouterr().err


def test_the_result_is_like_a_checkpoint_and_names_its_parents(run: Path, small_data: PreparedData) -> None:
    path = run_average([run], AverageOptions(last=2)).model
    found, newest = load_checkpoint(path), load_checkpoint(run / "checkpoints" / "step-100")
    assert found == replace(newest, path=path, parents=("step-99", "step-100"))
    assert found.vocab_path.read_bytes() == small_data.vocab_path.read_bytes()
    assert not (path / "training").exists()
    assert find_model(run) == path
    found.load_into(build_model(SHAPE, small_data.vocab_size))


def test_an_average_replaces_an_earlier_one_and_nothing_else(
    run: Path, small_data: PreparedData, tmp_path: Path
) -> None:
    run_average([run], AverageOptions(last=1))
    assert_mean(run_average([run], AverageOptions(last=2)).model, [99, 100], small_data)
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
        assert_mean(run_average([run], AverageOptions(last=2, out=out)).model, [99, 100], small_data)
    (tmp_path / "link").symlink_to("empty")
    assert_mean(run_average([run], AverageOptions(last=1, out=tmp_path / "link")).model, [100], small_data)
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


def test_a_dropout_that_changed_on_the_way_is_no_other_shape(
    run: Path, saved: Callable[..., Path], small_data: PreparedData
) -> None:
    saved(101, model=replace(SHAPE, dropout=0.3, attention_dropout=0.1))
    assert_mean(run_average([run], AverageOptions(last=2)).model, [100, 101], small_data)


def test_a_range_without_a_checkpoint_says_which_there_are(run: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint from updates 11-98") as error:
        run_average([run], AverageOptions(steps="11-98"))
    assert error.value.hint == "it has those from updates 9, 10, 99, 100"


@pytest.mark.parametrize("steps", ["", "-", "9", "a-b", "9-10-11"])
def test_what_is_no_range_is_refused(steps: str, run: Path) -> None:
    with pytest.raises(UsageError, match="must be a range of updates"):
        run_average([run], AverageOptions(steps=steps))


def validated(run: Path, best_metric: str, records: list[dict[str, Any]]) -> None:
    """Give a run the records of validations."""
    recipe = Recipe(training=replace(Recipe().training, best_metric=best_metric))  # type: ignore[arg-type]
    (run / "recipe.yaml").write_text(recipe_to_yaml(recipe), encoding="utf-8")
    lines = [json.dumps({"event": "validation", **record}) for record in records]
    (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in ['{"event": "train"}', *lines, '{"cut']))


def test_the_best_by_validation_are_averaged(run: Path, small_data: PreparedData) -> None:
    scores = [(9, 20.0, 3.0), (10, 30.0, 2.5), (99, 29.0, 2.0), (100, 10.0, 1.0), (100, 28.0, 9.0), (7, 99.0, 0.1)]
    records = [{"step": step, "bleu": bleu, "loss": loss} for step, bleu, loss in scores]
    validated(run, "bleu", records)
    assert_mean(run_average([run], AverageOptions(best=2)).model, [10, 99], small_data)
    # Step 100 was done again: its last record counts.
    assert_mean(run_average([run], AverageOptions(best=3)).model, [10, 99, 100], small_data)
    validated(run, "loss", records)
    assert_mean(run_average([run], AverageOptions(best=2)).model, [10, 99], small_data)
    assert_mean(run_average([run], AverageOptions(best=1)).model, [99], small_data)


def test_of_equally_good_ones_the_later_are_taken(run: Path, small_data: PreparedData) -> None:
    validated(run, "bleu", [{"step": step, "bleu": 5.0, "loss": 1.0} for step in (9, 10, 99, 100)])
    assert_mean(run_average([run], AverageOptions(best=2)).model, [99, 100], small_data)


def test_the_best_without_enough_validations(
    run: Path, small_data: PreparedData, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint of .* has a validation bleu") as error:
        run_average([run], AverageOptions(best=2))
    assert "--last" in error.value.hint
    validated(run, "bleu", [{"step": 10, "bleu": 5.0}, {"step": 99, "bleu": None}])
    assert_mean(run_average([run], AverageOptions(best=2)).model, [10], small_data)
    assert "has only 1 checkpoint with a validation bleu, fewer than 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"last": 1, "best": 2}, "--last and --best contradict each other"),
        ({"steps": "1-2", "best": 2}, "--steps and --best contradict each other"),
        ({"ema": True, "last": 2}, "--ema and --last contradict each other"),
        ({"search": True, "best": 2}, "--search tries --best and --ema anyway"),
        ({"search": True, "ema": True}, "--search tries --best and --ema anyway"),
        ({"data": Path("prepared")}, "--data without --search"),
    ],
)
def test_choices_that_contradict_each_other_are_refused(run: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        run_average([run], AverageOptions(**options))


def test_an_average_can_be_averaged_and_found_like_a_checkpoint(run: Path, small_data: PreparedData) -> None:
    first = run_average([run], AverageOptions(last=2)).model
    again = run_average([first], AverageOptions(out=run.parent / "again"))
    assert again.checkpoints == ("averaged",)
    assert_mean(again.model, [99, 100], small_data)


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


def test_a_damaged_checkpoint_is_named_and_leaves_the_earlier_average(run: Path, small_data: PreparedData) -> None:
    run_average([run], AverageOptions(last=1))
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
        ([tmp_path / "nowhere"], "there is no .*nowhere"),
        ([run / "checkpoints"], "checkpoints is part of a run"),
        ([run / "checkpoints" / "step-9", tmp_path / "nowhere"], "nowhere is not a checkpoint"),
    ):
        with pytest.raises(CheckpointError, match=message):
            run_average(paths, AverageOptions())


def test_checkpoints_outside_of_a_run_need_a_place_for_the_result(
    tmp_path: Path, saved: Callable[..., Path], small_data: PreparedData
) -> None:
    copies = [saved(step, tmp_path / f"copy-{step}") for step in (1, 2)]
    with pytest.raises(UsageError, match="copy-1 is not in a run") as error:
        run_average(copies, AverageOptions())
    assert "--out" in error.value.hint
    assert_mean(run_average(copies, AverageOptions(out=tmp_path / "out")).model, [1, 2], small_data)


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


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(
    value: float, run: Path, small_data: PreparedData, saved: Callable[..., Path]
) -> None:
    earlier = run_average([run], AverageOptions()).model
    path = saved(101)
    weights = weights_of(101, small_data)
    name = next(reversed(weights))
    weights[name].view(-1)[0] = value
    save_checkpoint(load_checkpoint(path), weights, small_data.vocab_path)
    with pytest.raises(CheckpointError, match=rf"step-00000101/\S+: number 0 of {re.escape(name)} is {value}"):
        run_average([run], AverageOptions())
    assert_mean(earlier, [10, 99, 100], small_data)


def test_options_that_do_not_fit_named_checkpoints_are_refused(run: Path) -> None:
    named = [run / "checkpoints" / "step-9", run / "checkpoints" / "step-10"]
    with pytest.raises(UsageError, match="--last needs a run"):
        run_average(named, AverageOptions(last=2))
    with pytest.raises(UsageError, match="takes one checkpoint's moving average, not 2"):
        run_average(named, AverageOptions(ema=True))


def test_ctrl_c_in_the_middle_leaves_the_earlier_average_and_nothing_else(
    run: Path, small_data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = run_average([run], AverageOptions(last=2)).model
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
