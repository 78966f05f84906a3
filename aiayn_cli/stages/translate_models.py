"""Which models `aiayn translate` uses, and how they search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.checkpoint import Checkpoint, load_checkpoint
from aiayn_cli.config import DecodingConfig, Precision
from aiayn_cli.data.codec import Codec
from aiayn_cli.decoding.sampling import Sampling
from aiayn_cli.decoding.translation import SearchOptions
from aiayn_cli.decoding.translator import Translator
from aiayn_cli.device import choose_device
from aiayn_cli.errors import CheckpointError, UsageError
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.run_checkpoints import find_model


@dataclass(frozen=True, kw_only=True)
class Search:
    """What the command line says about the search; None leaves the model's own setting (DecodingConfig)."""

    beam_size: int | None = None
    alpha: float | None = None
    max_extra: int | None = None
    batch_tokens: int | None = None
    n_best: int = 1
    options: SearchOptions = SearchOptions()  # noqa: RUF009 (frozen)

    def over(self, config: DecodingConfig) -> DecodingConfig:
        """The model's settings with those that were given.

        Raises:
            UsageError: more outputs than the beam holds.
        """
        names = ("beam_size", "alpha", "max_extra", "batch_tokens")
        changed = replace(config, **{name: value for name in names if (value := getattr(self, name)) is not None})
        if self.options.sampling is None and self.n_best > changed.beam_size:
            raise UsageError(
                f"--nbest {self.n_best} is more than the beam of {changed.beam_size} holds", f"add --beam {self.n_best}"
            )
        return changed


def make_sampling(sample: bool, **given: float | None) -> Sampling | None:
    """What is asked for of Sampling; None where outputs are searched for.

    Args:
        sample: whether outputs are drawn.
        given: fields of Sampling; None = its default.
    Raises:
        UsageError: an impossible value, or one given without --sample.
    """
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    flags = {name: f"--{name.replace('_', '-')} {value}" for name, value in chosen.items()}
    if not sample:
        for flag in flags.values():
            raise UsageError(
                f"{flag} is about sampling, but outputs are searched for", "add --sample, or leave it away"
            )
        return None
    if not chosen.get("temperature", 1.0) > 0:
        raise UsageError(
            f"{flags['temperature']} must be above 0", "0 would be greedy search: --beam 1 without --sample"
        )
    if not 0 < chosen.get("top_p", 1.0) <= 1:
        raise UsageError(f"{flags['top_p']} must be above 0 and at most 1", "0.9 leaves away the unlikeliest tenth")
    return Sampling(**chosen)


@dataclass(frozen=True)
class LoadedModels:
    """Models that are ready.

    Attributes:
        checkpoints: where they come from.
        codec: their vocabulary.
        translator: all of them, as an ensemble where there are several.
    """

    checkpoints: Sequence[Checkpoint]
    codec: Codec
    translator: Translator


def load_models(models: Sequence[Path], search: Search, device: str, precision: Precision) -> LoadedModels:
    """Load the named models, or the newest run's, and say what was chosen.

    Args:
        models: checkpoints or runs; several are an ensemble; none = the newest run of the working folder.
        search: how they shall search.
        device, precision: as in choose_device().
    Raises:
        AiaynError: no such model or device; models or a vocabulary that do not belong together.
    """
    checkpoints = [load_checkpoint(path) for path in map(find_model, models or (None,))]
    first = checkpoints[0]
    decoding = search.over(first.decoding)
    chosen = choose_device(device, precision)
    for checkpoint in checkpoints:
        logs.notice(f"model: {checkpoint.path}, {checkpoint.src_lang}-{checkpoint.tgt_lang}, step {checkpoint.step:,}")
        if checkpoint.vocab_sha256 != first.vocab_sha256:
            raise CheckpointError(
                f"{first.path} and {checkpoint.path} have different vocabularies",
                "an ensemble needs models that were trained on the same prepared data",
            )
    logs.notice(chosen.explanation)
    codec = Codec.load(first.path, first.text, first.src_lang, first.tgt_lang)
    if codec.sha256 != first.vocab_sha256 or codec.size != first.vocab_size:
        raise CheckpointError(
            f"{first.vocab_path} is not the vocabulary that the model was trained with",
            "copy the checkpoint again, or take vocab.model from the run's prepared data",
        )
    translator = Translator(
        list(map(_model_of, checkpoints)), codec, chosen, decoding,
        n_best=search.n_best, tgt_lang=first.tgt_lang, options=search.options,
    )  # fmt: skip
    return LoadedModels(checkpoints, codec, translator)


def _model_of(checkpoint: Checkpoint) -> TranslationModel:
    model = build_model(checkpoint.model, checkpoint.vocab_size).eval()
    checkpoint.load_into(model)
    return model
