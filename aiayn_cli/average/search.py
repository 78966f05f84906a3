"""`aiayn average --search`: which average translates the validation set best, and whether that is more than chance.

It tries the last 1, 2, 3, ... checkpoints, the best ones by validation, and the moving average if training kept one.
Each translates the whole validation set as the recipe wants it; sacreBLEU scores it against the raw references, and
paired bootstrap resampling compares it with the last checkpoint alone. The winner of many trials on one set looks a
little better than it is: only an unseen test set says how good it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.average.choice import AverageOptions, Choice, best_by_validation
from aiayn_cli.average.mean import AverageResult, Trial, WeightSum, choose_free, save_average
from aiayn_cli.checkpoint.checkpoint import Checkpoint, put_into
from aiayn_cli.checkpoint.tensor_files import read_json
from aiayn_cli.data.prepared import PreparedData, find_prepared
from aiayn_cli.device import choose_device
from aiayn_cli.errors import CheckpointError, DataError, UsageError
from aiayn_cli.model.build import build_empty
from aiayn_cli.recipe import load_recipe
from aiayn_cli.score.metrics import MetricOptions, SacreMetric, Statistics
from aiayn_cli.score.significance import bootstrap_p
from aiayn_cli.translate.translator import Translator

_SIGNIFICANT = 0.05
_ALL_UP_TO = 6  # windows of 1 to so many checkpoints are all tried; longer ones grow by about a third


def run_search(paths: Sequence[Path], options: AverageOptions) -> AverageResult:
    """Try several averages of a run on the validation set, and keep the best."""
    choice = choose_free(paths, options)
    search = CheckpointSearch(choice, options.data, options.device)
    trials, winner = search.run()
    saved = save_average(choice, search.weights(winner), winner.checkpoints)
    return replace(saved, trials=tuple(trials), verdict=search.verdict(winner))


class CheckpointSearch:
    """Tries averages of a run's checkpoints on the validation pairs of its data."""

    def __init__(self, choice: Choice, data: Path | None, device: str) -> None:
        if choice.run is None:
            raise UsageError("--search needs a run", "name the run's folder")
        self._run, self._checkpoints = choice.run, choice.checkpoints
        newest = self._checkpoints[-1]
        prepared = _data_of(self._run, newest, data)
        self._sources, references = prepared.valid_src_text(), prepared.valid_tgt_text()
        self._codec = prepared.codec()
        self._device = choose_device(device)
        logs.notice(self._device.explanation)
        self._metric = SacreMetric("bleu", [references], MetricOptions(tgt_lang=prepared.tgt_lang))
        self._statistics: dict[str, Statistics] = {}

    def run(self) -> tuple[list[Trial], Trial]:
        """Try all; return the trials in their order, and the best."""
        newest = self._checkpoints[-1]
        trials: list[Trial] = []
        windows = set(window_sizes(len(self._checkpoints)))
        best = self._best()
        has_average = bool(newest.moving_average())
        with logs.progress("searching", len(windows) + len(best) + has_average, "averages") as progress:
            total = WeightSum()
            # The newest first, so that each window is the one before and one more.
            for checkpoint in reversed(self._checkpoints[-max(windows) :]):
                total.add(checkpoint)
                if total.count in windows:
                    members = self._checkpoints[-total.count :]
                    trials.append(self._try(f"last {total.count}", _names(members), total.mean()))
                    progress.advance(1)
            del total
            for members in best:
                trials.append(self._try(f"best {len(members)}", _names(members), _mean(members)))
                progress.advance(1)
            if has_average:
                name = f"{newest.path.name}/ema"
                trials.append(self._try("moving average", (name,), newest.moving_average()))
                progress.advance(1)
        first, tested = self._statistics[trials[0].name], trials[:1]
        for trial in trials[1:]:
            p = bootstrap_p(self._metric, first, self._statistics[trial.name])
            tested.append(replace(trial, difference=trial.bleu - trials[0].bleu, p=p))
        return tested, max(tested, key=lambda trial: trial.bleu)

    def weights(self, trial: Trial) -> dict[str, Tensor]:
        """A trial's weights, computed again, since only sums were kept in memory."""
        by_name = {checkpoint.path.name: checkpoint for checkpoint in self._checkpoints}
        if trial.checkpoints[0] not in by_name:
            return self._checkpoints[-1].moving_average()
        return _mean([by_name[name] for name in trial.checkpoints])

    def verdict(self, winner: Trial) -> str:
        last = self._checkpoints[-1].path.name
        if winner.p is None:
            return f"no average is better than {last} alone on the {len(self._sources):,} validation pairs"
        gain = f"{winner.name}: {winner.difference:+.2f} BLEU over {last} on {len(self._sources):,} validation pairs"
        if winner.p < _SIGNIFICANT:
            return f"{gain}, which is hardly chance (p = {winner.p:.4f})"
        return f"{gain}, which may be noise (p = {winner.p:.4f}): it is kept, but claim no gain"

    def _best(self) -> list[list[Checkpoint]]:
        """The recipe's number of best checkpoints by validation, unless they are the last ones anyway."""
        wanted = min(load_recipe(str(self._run / "recipe.yaml")).training.average_last, len(self._checkpoints))
        try:
            chosen = set(best_by_validation(self._run, [each.path for each in self._checkpoints], wanted))
        except CheckpointError:
            return []  # without validation there is none
        members = [checkpoint for checkpoint in self._checkpoints if checkpoint.path in chosen]
        return [] if members == self._checkpoints[-len(members) :] else [members]

    def _try(self, name: str, checkpoints: tuple[str, ...], weights: dict[str, Tensor]) -> Trial:
        newest = self._checkpoints[-1]
        model = build_empty(newest.model, newest.vocab_size).eval()
        put_into(model, weights)
        translator = Translator([model], self._codec, self._device, newest.decoding, trained_length=newest.max_length)
        [statistics] = self._metric.statistics([translator.translate(self._sources)])
        self._statistics[name] = statistics
        trial = Trial(name, checkpoints, self._metric.score(statistics).score)
        logs.detail(f"{name}: BLEU {trial.bleu:.2f}")
        return trial


def window_sizes(checkpoints: int) -> list[int]:
    """Numbers of last checkpoints to try: 1, 2, ... 6, then by about a third more each, and all."""
    sizes = list(range(1, min(checkpoints, _ALL_UP_TO) + 1))
    while sizes[-1] < checkpoints:
        sizes.append(min(checkpoints, sizes[-1] * 4 // 3))
    return sizes


def _data_of(run: Path, checkpoint: Checkpoint, data: Path | None) -> PreparedData:
    where = data if data is not None else Path(str(read_json(run / "manifest.json", "a run").get("data")))
    prepared = PreparedData.load(find_prepared(where))
    if prepared.sha256 != checkpoint.data_sha256:
        raise DataError(f"{prepared.folder} is not the data that {run} was trained on", "name it with --data")
    if prepared.text.trees:
        raise UsageError(
            f"--search compares by BLEU, but {prepared.folder} holds trees",
            "--best takes those with the lowest validation loss; `aiayn score --brackets` scores each average",
        )
    if prepared.valid is None or len(prepared.valid) == 0:
        raise DataError(f"{prepared.folder} has no validation pairs to search with", "average with --last instead")
    return prepared


def _mean(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    total = WeightSum()
    for checkpoint in reversed(checkpoints):  # as the windows do, so that the same sum has the same rounding
        total.add(checkpoint)
    return total.mean()


def _names(checkpoints: Sequence[Checkpoint]) -> tuple[str, ...]:
    return tuple(checkpoint.path.name for checkpoint in checkpoints)
