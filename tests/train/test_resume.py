"""A run that is stopped or killed goes on exactly, to the last bit; its state is read back, changes told or refused."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks
from small_run import Killed, Train, ending_after, result_of, updates_logged

from aiayn_cli.app import main
from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints, newest_resumable, update_of
from aiayn_cli.data.batches import Position, split_update
from aiayn_cli.errors import CheckpointError, Terminated
from aiayn_cli.recipe_keys import DataConfig, DecodingConfig, ModelConfig, Recipe, TrainingConfig
from aiayn_cli.train import gradient as gradient_module
from aiayn_cli.train import validation as validation_module
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState, changed_settings, continued_recipe

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")


def stop_and_resume(train: Train, after: int, *settings: str, name: str = "run") -> None:
    with ending_after(after, "SIGTERM"), pytest.raises(Terminated):
        train(*settings, name=name)
    train(*settings, name=name)


def test_a_run_stopped_by_a_signal_goes_on_exactly(
    train: Train, tmp_path: Path, unbroken: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run, stop = tmp_path / "run", 4
    with ending_after(stop, "SIGTERM"), pytest.raises(Terminated, match=f"at update {stop};") as error:
        train()
    assert error.value.exit_code == 143
    newest = newest_resumable(run)
    assert newest.name == f"interrupted-{stop:08d}"  # also where a validation is due, which the next call makes up for
    with ending_after(12 - stop, "SIGINT"), pytest.raises(KeyboardInterrupt):  # the last validation is left, too
        train()
    train()
    assert result_of(run) == unbroken
    assert f"resuming {run} from update {stop}" in capsys.readouterr().err


def test_a_checkpoint_carries_the_threshold_of_confidence_of_the_newest_validation(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threshold(path: Path | None) -> float | None:
        return load_checkpoint(path).low_confidence

    measured = iter([-1.5, -1.0, -0.5])
    monkeypatch.setattr(validation_module, "confidence_threshold", lambda _: next(measured))
    settings = ("save_every_steps=2", "validate_every_saves=2", "keep_checkpoints=9")
    with ending_after(7, "SIGTERM"), pytest.raises(Terminated):
        train(*settings)
    assert threshold(newest_resumable(tmp_path / "run")) == -1.5
    train(*settings)
    found = {update_of(path): threshold(path) for path in list_checkpoints(tmp_path / "run")}
    assert found == {2: None, 4: -1.5, 6: -1.5, 8: -1.0, 10: -1.0, 12: -0.5}
    train("validation_bleu_pairs=0", "best_metric=loss", "max_updates=4", name="without")
    assert threshold(newest_resumable(tmp_path / "without")) is None


def test_a_run_in_bf16_goes_on_exactly_from_its_float32_weights(train: Train, tmp_path: Path) -> None:
    settings = ("precision=bf16", "max_updates=4")
    train(*settings, name="unbroken")
    stop_and_resume(train, 3, *settings)
    assert result_of(tmp_path / "run") == result_of(tmp_path / "unbroken")


def test_a_run_stopped_again_and_again_is_still_the_same(
    train: Train, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    for how, updates in (("SIGTERM", 2), ("SIGINT", 1), ("SIGINT", 2), ("kill", 2), ("kill", 4), ("SIGTERM", 3)):
        ends = {"SIGTERM": Terminated, "SIGINT": KeyboardInterrupt, "kill": Killed}[how]
        with ending_after(updates, how), pytest.raises(ends):
            train()
    train()
    assert result_of(tmp_path / "run") == unbroken


def test_an_update_left_out_before_the_stop_is_left_out_of_adams_count_too(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def note(*args: Any) -> Any:
        calls.append(1)
        return split_update(*args)

    accumulate = MasterAdam.accumulate

    def spoilt(self: MasterAdam) -> None:
        accumulate(self)
        if len(calls) in (2, 3):  # the second and third update of a run
            self.gradient[0] = float("nan")

    monkeypatch.setattr(gradient_module, "split_update", note)
    monkeypatch.setattr(MasterAdam, "accumulate", spoilt)
    train(name="unbroken")
    expected = result_of(tmp_path / "unbroken")
    assert expected["state"]["skipped"] == 2
    calls.clear()
    stop_and_resume(train, 5, name="stopped")
    assert result_of(tmp_path / "stopped") == expected


def test_real_signals_and_a_real_kill_lose_nothing(
    train: Train, command: Callable[..., list[str]], tmp_path: Path
) -> None:
    run, rarely = tmp_path / "run", "validate_every_saves=1000"
    words = command("max_updates=1000000", rarely)
    for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9), (signal.SIGINT, 130)):
        before = updates_logged(run)
        process = Ranks(lambda _: main(words), 1, tmp_path / "written", address=None)
        deadline = time.monotonic() + 60
        while updates_logged(run) < before + 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pids[0], number)
        [ended] = process.wait(seconds=60)
        err = ended.err
        assert ended.code == code, err
        assert ended.out == ""
        assert "Traceback" not in err
        newest = newest_resumable(run)
        if number == signal.SIGTERM:
            assert f"error: stopped by SIGTERM at update {load_checkpoint(newest).step};" in err
            assert "hint: the same command resumes from there" in err
        if number == signal.SIGINT:
            assert f"stopped by Ctrl-C at update {load_checkpoint(newest).step}; {run} is saved" in err
    end = (load_checkpoint(newest).step // 4 + 2) * 4
    train(f"max_updates={end}", rarely)
    train(f"max_updates={end}", rarely, name="unbroken")
    assert result_of(run) == result_of(tmp_path / "unbroken")


def test_metrics_of_all_calls_are_in_one_file(train: Train, tmp_path: Path) -> None:
    stop_and_resume(train, 6)
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [r["step"] for r in records if r["event"] == "train"] == list(range(1, 13))
    assert [r["step"] for r in records if r["event"] == "resume"] == [6]
    assert [r["path"] for r in records if r["event"] == "checkpoint"] == [
        "step-00000004", "interrupted-00000006", "step-00000008", "step-00000012",
    ]  # fmt: skip


STATE = TrainingState(step=3, position=Position(1, 70), best_value=2.5, best_step=2, pool_pairs=131_072)


def test_a_state_comes_back_as_it_was_saved() -> None:
    assert TrainingState.from_json(STATE.to_json(), Path("state.json")) == STATE


def test_as_many_operations_as_the_papers_big_model_takes_are_no_damage() -> None:
    state = replace(STATE, flops=23 * 10**18)
    assert TrainingState.from_json(state.to_json(), Path("state.json")) == state


def test_a_run_from_before_pools_had_sizes_keeps_its_order_of_pairs() -> None:
    content = STATE.to_json()
    del content["pool_pairs"]
    assert TrainingState.from_json(content, Path("state.json")) == replace(STATE, pool_pairs=65_536)


@pytest.mark.parametrize(
    "change",
    [
        {"pool_pairs": -1}, {"step": -1}, {"division": 0}, {"step": "3"}, {"steps": 4}, {"division": 10**9},
        {"saves": -3}, {"seconds": float("nan")}, {"usual_norm": -1.0}, {"best_step": 10**40},
        {"best_value": float("nan")},
        {"best_step": 4}, {"saves": 4}, {"skipped": 4}, {"skipped_in_a_row": 4}, {"worse_validations": 4},
        {"position": {"epoch": -1, "pairs": 0}}, {"position": {"epoch": 0, "pairs": 10**40}},
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"state\.json is not a training state"):
        TrainingState.from_json({**STATE.to_json(), **change}, Path("state.json"))


def test_a_new_run_takes_the_pool_of_its_updates_and_one_that_goes_on_keeps_its_own(watched: Any) -> None:
    assert watched(batch_tokens=120).trainer.state.pool_pairs == 65_536
    assert watched(batch_tokens=25_000).trainer.state.pool_pairs == 524_288
    assert watched(batch_tokens=25_000, state=STATE).trainer.state.pool_pairs == 131_072


OLD, RUN = Recipe(), Path("runs/base")
OTHERS: dict[str, Any] = {
    "kind": "recurrent", "n_heads": 4, "norm": "pre", "positions": "learned", "share_embeddings": "none",
    "best_metric": "loss", "precision": "fp32", "compile": "off", "on_bad_bytes": "drop", "corpus": "demo",
    "d_model": 1024, "dropout": 0.3, "attention_dropout": 0.1, "activation_dropout": 0.1, "label_smoothing": 0.2,
    "adam_beta1": 0.8, "ema_decay": 0.999,
    "adam_beta2": 0.9, "average_last": 4, "case_copies": 0.1, "vocab_type": "unigram", "normaliser": 0,
}  # fmt: skip


def with_another(section: str, name: str) -> tuple[Recipe, Any]:
    """The old recipe with one setting changed, and its new value."""
    before = getattr(getattr(OLD, section), name)
    value = OTHERS[name] if name in OTHERS else not before if isinstance(before, bool) else before + 1
    with_it = {"case_copies": 0.0} if name == "trees" else {}  # trees have no copies in other case
    return replace(OLD, **{section: replace(getattr(OLD, section), **{name: value, **with_it})}), value


EVERY_SETTING = [
    (section, field.name)
    for section, kind in (("model", ModelConfig), ("training", TrainingConfig), ("decoding", DecodingConfig))
    for field in fields(kind)
]
# What the weights or the pairs of an update depend on.
REFUSED = {f"model.{field.name}" for field in fields(ModelConfig) if "dropout" not in field.name}
REFUSED |= {"training.batch_tokens", "training.seed"}


@pytest.mark.parametrize(("section", "name"), EVERY_SETTING)
def test_each_setting_is_applied_or_refused_by_name(section: str, name: str) -> None:
    new, value = with_another(section, name)
    key, before = f"{section}.{name}", getattr(getattr(OLD, section), name)
    assert changed_settings(OLD, new) == {key: (before, value)}
    if key in REFUSED:
        with pytest.raises(CheckpointError) as error:
            continued_recipe(OLD, new, RUN)
        assert error.value.problem == f"runs/base cannot continue with {key} {before} -> {value}"
    else:
        assert continued_recipe(OLD, new, RUN) == (new, [f"{key} {before} -> {value}"])


@pytest.mark.parametrize("name", [field.name for field in fields(DataConfig)])
def test_what_prepare_did_stays_as_it_was(name: str) -> None:
    new, _ = with_another("data", name)
    assert continued_recipe(OLD, new, RUN) == (OLD, [])


def test_without_a_change_nothing_is_said() -> None:
    assert continued_recipe(OLD, Recipe(), RUN) == (OLD, [])
