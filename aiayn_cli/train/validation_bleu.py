"""BLEU of validation pairs while a run trains, and translations of some of them to look at."""

from collections.abc import Callable

from aiayn_cli.config import DecodingConfig
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.score.bleu import bleu
from aiayn_cli.train.compilation import without_graphs
from aiayn_cli.train.validation import Interrupted
from aiayn_cli.translate.search.workers import Stopped
from aiayn_cli.translate.translator import Translator

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
    Raises:
        AiaynError: BLEU of the target language needs a package that is not installed.
    """

    def __init__(
        self, model: TranslationModel, data: PreparedData, device: Device, decoding: DecodingConfig, wanted: int
    ) -> None:
        sources, references = data.valid_src_text(), data.valid_tgt_text()
        every = max(1, len(sources) // wanted)
        self._sources, self._references = sources[::every][:wanted], references[::every][:wanted]
        self._model, self._codec, self._device, self._decoding = model, data.codec(), device, decoding
        self._tgt_lang, self._trained_length = data.tgt_lang, data.max_length
        self._samples: dict[str, list[str]] = {}
        bleu(self._references[:1], [self._references[:1]], tgt_lang=self._tgt_lang)  # what is missing is found now

    def score(self, interrupted: Callable[[], str]) -> float:
        """BLEU of the model's translations.

        Args:
            interrupted: gives the name of a signal that asks for an end, or "".
        Raises:
            Interrupted: there was one before the translations were.
        """
        translator = Translator(
            [self._model], self._codec, self._device, self._decoding,
            tgt_lang=self._tgt_lang, trained_length=self._trained_length, stop=_Signal(interrupted),
        )  # fmt: skip
        try:
            with without_graphs(self._model):
                translations = translator.translate(self._sources)
        except Stopped as error:
            raise Interrupted from error
        shown = slice(None, None, max(1, len(self._sources) // _SAMPLES))
        columns = {"sources": self._sources, "references": self._references, "translations": translations}
        self._samples = {name: lines[shown][:_SAMPLES] for name, lines in columns.items()}
        return bleu(translations, [self._references], tgt_lang=self._tgt_lang).score

    def new_samples(self) -> dict[str, list[str]]:
        """Sources, references and translations of the last score(), once; empty where there was none since."""
        samples, self._samples = self._samples, {}
        return samples
