"""COMET (Rei et al. 2020), a neural metric that also reads the source, if its package is installed.

The package unbabel-comet (2.2.7 when this was written) needs numpy 1, so it cannot be one of our extras, which are
pinned with numpy 2. It downloads its model from a hub and unpickles it, so using it means trusting that hub. Nothing
else in this toolkit does so, and nothing is loaded unless this metric is chosen.
"""

import importlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from sacrebleu.metrics.base import Score as SacreScore

from aiayn_cli.errors import AiaynError
from aiayn_cli.score.metrics import SacreMetric, Score, Statistics

COMET_MODEL = "Unbabel/wmt22-comet-da"
_BATCH_LINES = 16


class CometMetric:
    """COMET with one reference and the source; the model is a name on the hub, or a checkpoint file."""

    label = "COMET"
    lower_is_better = False

    def __init__(
        self, references: Sequence[Sequence[str]], sources: Sequence[str] | None, model: str = COMET_MODEL
    ) -> None:
        if sources is None:
            raise AiaynError("COMET needs the source text", "add --source FILE, or score a test set with -t")
        if len(references) != 1:
            raise AiaynError(f"COMET takes one reference, not {len(references)}", "name one reference")
        try:
            package = importlib.import_module("comet")  # here, because few have it, and it loads torch
        except ImportError as error:
            raise AiaynError(
                "the metric comet needs the package unbabel-comet, which is not installed",
                "pip install unbabel-comet (it needs numpy 1), or choose another --metric",
            ) from error
        try:
            file = model if Path(model).is_file() else package.download_model(model)
            self._model: Any = package.load_from_checkpoint(file)
        except Exception as error:  # whatever its hub, network and format raise
            raise AiaynError(
                f"COMET's model {model} cannot be loaded: {error}", "name a model file with --comet-model"
            ) from error
        self._name = model
        self._gpus = min(1, importlib.import_module("torch").cuda.device_count())
        self._sources, self._reference = sources, references[0]
        self.backend = self

    def statistics(self, systems: Sequence[Sequence[str]]) -> list[Statistics]:
        """The score of each line, times 100, and a 1, since their mean is the score."""
        statistics: list[Statistics] = []
        for hypotheses in systems:
            samples = [
                {"src": source, "mt": hypothesis, "ref": reference}
                for source, hypothesis, reference in zip(self._sources, hypotheses, self._reference, strict=True)
            ]
            found = self._model.predict(samples, batch_size=_BATCH_LINES, gpus=self._gpus, progress_bar=False)
            statistics.append([[100 * float(score), 1.0] for score in found.scores])
        return statistics

    def score(self, statistics: Statistics) -> Score:
        found = self._aggregate_and_compute(statistics)
        return Score(metric=self.label, score=found.score, signature=str(self.get_signature()))

    def sentence(self, counts: Sequence[float]) -> float:
        return counts[0]

    # What sacreBLEU's tests call.

    def get_signature(self) -> "_Signature":
        return _Signature(self._name)

    def _aggregate_and_compute(self, statistics: Statistics) -> SacreScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*statistics, strict=True)])

    def _compute_score_from_stats(self, totals: Sequence[float]) -> SacreScore:
        return SacreScore(self.label, float(totals[0] / totals[1]))


class _Signature:
    """Key-value pairs in sacreBLEU's form; its tests add their own."""

    def __init__(self, model: str) -> None:
        self._info = {"model": model, "version": metadata.version("unbabel-comet")}

    def update(self, key: str, value: object) -> None:
        self._info[key] = str(value)

    def __str__(self) -> str:
        return "|".join(f"{key}:{value}" for key, value in self._info.items())


Metric = SacreMetric | CometMetric
