"""BLEU of validation pairs while a run trains, and translations of some of them to look at."""

from collections.abc import Callable
from contextlib import suppress

from aiayn_cli.config import DecodingConfig
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.score.bleu import bleu
from aiayn_cli.train.compilation import without_graphs
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.validation import Interrupted
from aiayn_cli.translate.search.workers import Stopped
from aiayn_cli.translate.translator import Translator

_AT_ONCE = 64  # sentences that a process translates before it asks the others whether one received a signal
_SAMPLES = 6  # validation sentences whose translations the report shows


class _Signal:
    """Set where a signal was received."""

    def __init__(self, interrupted: Callable[[], str]) -> None:
        self._interrupted = interrupted

    def is_set(self) -> bool:
        return bool(self._interrupted())


class ValidationBleu:
    """Translates validation sentences with a model as it is now, and scores them.

    Args:
        model: on its device.
        data: with validation text.
        device: the model's.
        decoding: how the recipe wants it to translate.
        wanted: sentences, spread over the set, which may be in an order of topics.
        worker: this process among others, each of which translates its share.
    Raises:
        AiaynError: BLEU of the target language needs a package that is not installed.
    """

    def __init__(
        self,
        model: TranslationModel,
        data: PreparedData,
        device: Device,
        decoding: DecodingConfig,
        wanted: int,
        worker: Worker,
    ) -> None:
        sources, references = data.valid_src_text(), data.valid_tgt_text()
        every = max(1, len(sources) // wanted)
        self._sources, self._references = sources[::every][:wanted], references[::every][:wanted]
        self._model, self._codec, self._device, self._decoding = model, data.codec(), device, decoding
        self._tgt_lang, self._trained_length = data.tgt_lang, data.max_length
        self._worker = worker
        self._samples: dict[str, list[str]] = {}
        bleu(self._references[:1], [self._references[:1]], tgt_lang=self._tgt_lang)  # what is missing is found now

    def score(self, interrupted: Callable[[], str]) -> float:
        """BLEU of the model's translations, on every process.

        Args:
            interrupted: gives the name of a signal that this process has received, or "".
        Raises:
            Interrupted: any process received one before the translations were complete.
        """
        shares = self._worker.gather(self._translate_share(interrupted))
        translations = [""] * len(self._sources)
        for rank, share in enumerate(shares):
            translations[rank :: self._worker.world_size] = share
        shown = slice(None, None, max(1, len(self._sources) // _SAMPLES))
        columns = {"sources": self._sources, "references": self._references, "translations": translations}
        self._samples = {name: lines[shown][:_SAMPLES] for name, lines in columns.items()}
        score = self._worker.from_rank_0(
            lambda: {"bleu": bleu(translations, [self._references], tgt_lang=self._tgt_lang).score}
        )
        return float(score["bleu"])

    def _translate_share(self, interrupted: Callable[[], str]) -> list[str]:
        translator = Translator(
            [self._model], self._codec, self._device, self._decoding,
            tgt_lang=self._tgt_lang, trained_length=self._trained_length, stop=_Signal(interrupted),
        )  # fmt: skip
        ranks = self._worker.world_size
        mine = self._sources[self._worker.rank :: ranks]
        longest = -(-len(self._sources) // ranks)
        at_once = longest if ranks == 1 else _AT_ONCE
        translations: list[str] = []
        for start in range(0, longest + at_once, at_once):
            if signal := self._worker.agree(interrupted()):
                raise Interrupted(signal)
            with suppress(Stopped), without_graphs(self._model):
                translations += translator.translate(mine[start : start + at_once])
        return translations

    def new_samples(self) -> dict[str, list[str]]:
        """Sources, references and translations of the last score(), once; empty where there was none since."""
        samples, self._samples = self._samples, {}
        return samples
