"""`aiayn average --search`: which average translates the validation set best, and whether that is more than chance.

It tries the last 1, 2, 3, ... checkpoints, the best ones by validation, and the moving average if training kept one.
Each translates the whole validation set with the recipe's search settings; sacreBLEU scores the output against the raw
references, and paired bootstrap compares it with that of the last checkpoint alone. The best of many trials on one set
looks slightly better than it is: only an unseen test set shows its quality.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.average.session import (
    AverageOptions,
    AverageResult,
    Trial,
    WeightSum,
    best_by_validation,
    choose,
    names_of,
    save_average,
)
from aiayn_cli.checkpoint.checkpoint import Checkpoint, put_into
from aiayn_cli.checkpoint.tensor_files import read_json
from aiayn_cli.data.prepared import PreparedData, find_prepared
from aiayn_cli.device import choose_device
from aiayn_cli.errors import CheckpointError, DataError, UsageError
from aiayn_cli.model.build import build_empty
from aiayn_cli.recipe import load_recipe
from aiayn_cli.score.metrics import MetricOptions, SacreMetric
from aiayn_cli.score.significance import bootstrap_p
from aiayn_cli.text.sentences import knows_single_sentences
from aiayn_cli.translate.line_translator import Cutting, LineTranslator
from aiayn_cli.translate.trust.flags import confidence, confidence_threshold

_SIGNIFICANT = 0.05
_ALL_UP_TO = 6  # windows of 1 to this number of checkpoints are all tried; longer ones grow by about a third

Candidate = tuple[str, tuple[str, ...], dict[str, Tensor]]  # name and checkpoints as of a Trial, weights


def run_search(paths: Sequence[Path], options: AverageOptions) -> AverageResult:
    """Try several averages of a run on the validation set, and keep the best."""
    choice = choose(paths, options)
    if choice.run is None:
        raise UsageError("--search needs a run", "name the run's folder")
    newest = choice.checkpoints[-1]
    prepared = _data_of(choice.run, newest, options.data)
    sources, references = prepared.read_text("valid", "src"), prepared.read_text("valid", "tgt")
    metric = SacreMetric("bleu", [references], MetricOptions(tgt_lang=prepared.tgt_lang))
    codec, device = prepared.codec(), choose_device(options.device)
    logs.notice(device.explanation)
    trials, alone, winner, best_weights = list[Trial](), None, None, dict[str, Tensor]()
    threshold: float | None = None
    for name, checkpoints, weights in _candidates(choice.run, choice.checkpoints):
        model = build_empty(newest.model, newest.vocab_size).eval()
        put_into(model, weights)
        cutting = Cutting(newest.max_length, knows_single_sentences(newest.several_sentences))
        translator = LineTranslator([model], codec, device, newest.decoding, cutting=cutting)
        outputs = [best for best, *_ in translator.translate_n_best(sources)]
        [statistics] = metric.statistics([[output.text for output in outputs]])
        trial = Trial(name, checkpoints, metric.score(statistics).score)
        logs.detail(f"{name}: BLEU {trial.bleu:.2f}")
        if alone is None:
            alone = statistics  # of the last checkpoint
        else:
            p = bootstrap_p(metric, alone, statistics)
            trial = replace(trial, difference=trial.bleu - trials[0].bleu, p=p)
        trials.append(trial)
        if winner is None or trial.bleu > winner.bleu:
            winner, best_weights = trial, weights
            threshold = confidence_threshold(map(confidence, outputs))
    assert winner is not None
    saved = save_average(choice, best_weights, winner.checkpoints, threshold)
    return replace(saved, trials=tuple(trials), verdict=verdict(winner, newest.path.name, len(sources)))


def _candidates(run: Path, checkpoints: Sequence[Checkpoint]) -> Iterator[Candidate]:
    """The averages to try, of which the first is the last checkpoint alone."""
    newest, windows, best = checkpoints[-1], window_sizes(len(checkpoints)), _best(run, checkpoints)
    has_average = bool(newest.moving_average())
    with logs.progress("searching", len(windows) + bool(best) + has_average, "averages") as progress:
        total = WeightSum()
        for checkpoint in reversed(checkpoints):  # so that each window is the one before and more checkpoints
            total.add(checkpoint)
            if total.count in windows:
                yield f"last {total.count}", names_of(checkpoints[-total.count :]), total.mean()
                progress.advance(1)
        if best:
            total = WeightSum()
            for checkpoint in reversed(best):
                total.add(checkpoint)
            yield f"best {len(best)}", names_of(best), total.mean()
            progress.advance(1)
        del total
        if has_average:
            yield "moving average", (f"{newest.path.name}/ema",), newest.moving_average()
            progress.advance(1)


def verdict(winner: Trial, last: str, pairs: int) -> str:
    """What a search found, in words, given the last checkpoint's name and the number of validation pairs."""
    if winner.p is None:
        return f"no average is better than {last} alone on {logs.counted(pairs, 'validation pair')}"
    gain = f"{winner.name}: {winner.difference:+.2f} BLEU over {last} on {logs.counted(pairs, 'validation pair')}"
    if winner.p < _SIGNIFICANT:
        return f"{gain}, which is unlikely to be chance (p = {winner.p:.4f})"
    return f"{gain}, which may be noise (p = {winner.p:.4f}): the average is kept, but do not claim a gain"


def _best(run: Path, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The recipe's number of best checkpoints by validation; none if they are the last ones anyway."""
    wanted = min(load_recipe(str(run / "recipe.yaml")).training.average_last, len(checkpoints))
    try:
        chosen = set(best_by_validation(run, [each.path for each in checkpoints], wanted))
    except CheckpointError:  # training did not validate
        return []
    best = [checkpoint for checkpoint in checkpoints if checkpoint.path in chosen]
    return [] if best == checkpoints[-len(best) :] else best


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
        raise DataError(f"{prepared.folder} is not the data that {run} was trained on", "name that data with --data")
    if prepared.text.trees:
        raise UsageError(
            f"--search compares by BLEU, but {prepared.folder} has trees",
            "use --best, which takes those with the lowest validation loss",
        )
    if prepared.valid is None or len(prepared.valid) == 0:
        raise DataError(f"{prepared.folder} has no validation pairs to search with", "average with --last instead")
    return prepared
