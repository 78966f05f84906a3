"""Which models `aiayn translate` uses, and how they search."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint.format import Checkpoint, load_checkpoint
from aiayn_cli.checkpoint.run import find_model
from aiayn_cli.config import MOST_HYPOTHESES, DecodingConfig, Precision
from aiayn_cli.device import Device, choose_device
from aiayn_cli.errors import CheckpointError, UsageError
from aiayn_cli.model.build import build_empty
from aiayn_cli.model.cpu.int8 import use_int8
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.parsing.tree_grammar import TreeGrammar
from aiayn_cli.text.codec import Codec
from aiayn_cli.translate.aids.glossary import Glossary, load_glossary
from aiayn_cli.translate.exported import load_exported
from aiayn_cli.translate.search.sampling import Sampling
from aiayn_cli.translate.search.sentence_search import LONGEST_PASS
from aiayn_cli.translate.translation import SearchEngine, SearchOptions
from aiayn_cli.translate.translator import Translator
from aiayn_cli.translate.trust.notices import LineNotices

Engine = Literal["torch", "ctranslate2"]


@dataclass(frozen=True, kw_only=True)
class Search:
    """What the command line says about the search; None leaves the model's own setting (DecodingConfig)."""

    beam_size: int | None = None
    alpha: float | None = None
    max_extra: int | None = None
    batch_tokens: int | None = None
    tree_rules: bool | None = None
    n_best: int = 1
    options: SearchOptions = SearchOptions()  # noqa: RUF009 (frozen)

    def over(self, config: DecodingConfig) -> DecodingConfig:
        """The model's settings with those that were given.

        Raises:
            ConfigError: an impossible setting.
            UsageError: more outputs than the beam holds, or than can be drawn.
        """
        names = ("beam_size", "alpha", "max_extra", "batch_tokens", "tree_rules")
        changed = replace(config, **{name: value for name in names if (value := getattr(self, name)) is not None})
        if self.options.sampling is None and self.n_best > changed.beam_size:
            raise UsageError(
                f"--nbest {self.n_best} is more than the beam of {changed.beam_size} holds", f"add --beam {self.n_best}"
            )
        if self.n_best > MOST_HYPOTHESES:  # drawn side by side; a beam of so many was refused
            raise UsageError(
                f"--nbest {self.n_best} is more than {MOST_HYPOTHESES:,}, which would fill the memory",
                "draw in several runs, each with another --seed",
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
    if not 0 < chosen.get("temperature", 1.0) < math.inf:
        raise UsageError(
            f"{flags['temperature']} must be above 0 and finite", "0 would be greedy search: --beam 1 without --sample"
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
        glossary: the terms that they must use.
        confirm: to be called before the first output: waits for the check of their weights, and raises CheckpointError
            where they are damaged.
    """

    checkpoints: Sequence[Checkpoint]
    codec: Codec
    translator: Translator
    glossary: Glossary | None = None
    confirm: Callable[[], None] = lambda: None


def load_models(
    models: Sequence[Path],
    search: Search,
    device: str,
    precision: Precision,
    engine: Engine = "torch",
    int8: bool = False,
    glossary: Path | None = None,
    notices: LineNotices | None = None,
    check_beside: bool = False,
) -> LoadedModels:
    """Load the named models, or the newest run's, and say what was chosen.

    Args:
        models: checkpoints or runs; several are an ensemble; none = the newest run of the working folder.
        search: how they shall search.
        device, precision: as in choose_device().
        engine: what searches.
        int8: with 8-bit weights.
        glossary: file of terms, as in load_glossary().
        notices: as in Translator.
        check_beside: leave the check of the weights, which takes most of the time, to a thread (LoadedModels.confirm);
            not for 8 bits or another engine, which would take them as they are before that.
    Raises:
        AiaynError: no such model or device; models or a vocabulary that do not belong together; an engine that is not
            installed, has no exported model, or cannot do what is asked for.
    """
    checkpoints = [load_checkpoint(path) for path in map(find_model, models or (None,))]
    first = checkpoints[0]
    decoding = search.over(first.decoding)
    if engine == "ctranslate2":
        _check_engine_can(search, len(checkpoints), precision, glossary is not None)
        precision = "fp32"  # its own; the models are only asked about outputs
    chosen = choose_device(device, precision)
    if int8 and engine == "torch" and chosen.device.type != "cpu":
        raise UsageError(f"--int8 is for CPUs, but the device is {chosen.device}", "add --device cpu, or leave it away")
    for checkpoint in checkpoints:
        logs.notice(f"model: {checkpoint.path}, {checkpoint.src_lang}-{checkpoint.tgt_lang}, step {checkpoint.step:,}")
        for what in ("vocab_sha256", "src_lang", "tgt_lang"):
            if getattr(checkpoint, what) != getattr(first, what):
                different = "vocabularies" if what == "vocab_sha256" else "languages"
                raise CheckpointError(
                    f"{first.path} and {checkpoint.path} have different {different}",
                    "an ensemble needs models that were trained on the same prepared data",
                )
    codec = Codec.load(first.path, first.text, first.src_lang, first.tgt_lang)
    if codec.sha256 != first.vocab_sha256 or codec.size != first.vocab_size:
        raise CheckpointError(
            f"{first.vocab_path} is not the vocabulary that the model was trained with",
            "copy the checkpoint again, or take vocab.model from the run's prepared data",
        )
    grammar = _tree_grammar(first, codec, engine) if decoding.tree_rules else None
    if grammar is not None and search.options.min_length:  # once all words are in it, a tree can only end
        raise UsageError(
            f"--min-length {search.options.min_length} asks for more tokens, but {first.path} writes trees, "
            "as long as the words of a line let them be",
            "leave it away, or add --no-tree-rules",
        )
    check_beside = check_beside and engine == "torch" and not int8
    networks = [load_network(checkpoint, checked=not check_beside) for checkpoint in checkpoints]
    other: SearchEngine | None = None
    if engine == "ctranslate2":
        other, label = load_exported(first, codec, chosen, int8=int8)
        logs.notice(label)
    elif int8:
        chosen = _use_int8(networks, chosen)
    if other is None:
        logs.notice(chosen.explanation)
    terms = load_glossary(glossary, codec, first.tgt_lang) if glossary is not None else None
    translator = Translator(
        networks, codec, chosen, decoding,
        n_best=search.n_best, tgt_lang=first.tgt_lang, options=search.options, engine=other, glossary=terms,
        in_processes=True,
        notices=notices,
        # A sentence has no parts that could be parsed alone, so that any length is tried.
        trained_length=LONGEST_PASS if first.text.trees else min(each.max_length for each in checkpoints),
        splits=not first.text.trees,
        tree_grammar=grammar,
    )  # fmt: skip
    if check_beside:
        return LoadedModels(checkpoints, codec, translator, terms, _checked_beside(checkpoints))
    return LoadedModels(checkpoints, codec, translator, terms)


def _checked_beside(checkpoints: Sequence[Checkpoint]) -> Callable[[], None]:
    """Start to check weights in a thread; what is returned waits for it, and raises what it found."""
    thread = ThreadPoolExecutor(max_workers=1)
    checks = [thread.submit(checkpoint.weights) for checkpoint in checkpoints]
    thread.shutdown(wait=False)  # it ends with the last of them

    def confirm() -> None:
        for check in checks:
            check.result()

    return confirm


def _check_engine_can(search: Search, n_models: int, precision: Precision, has_glossary: bool) -> None:
    hint = "leave it away, or take --engine torch"
    if n_models > 1:
        raise UsageError(
            "--engine ctranslate2 takes one model, not an ensemble", "average them, or take --engine torch"
        )
    if search.options.sampling is not None:
        raise UsageError("--engine ctranslate2 does not sample from a seed of each line, as --sample promises", hint)
    if has_glossary:
        raise UsageError("--engine ctranslate2 knows no glossary", hint)
    if search.tree_rules:
        raise UsageError("--engine ctranslate2 knows no rules for trees, as --tree-rules asks for", hint)
    if precision == "bf16":
        raise UsageError("--engine ctranslate2 computes in float32, or in 8 bits with --int8, not in bf16", hint)


def _tree_grammar(checkpoint: Checkpoint, codec: Codec, engine: Engine) -> TreeGrammar | None:
    """The grammar of a parser's outputs, where the search can follow one."""
    if not checkpoint.text.trees:
        return None
    reason = "--engine ctranslate2 knows no rules for trees" if engine == "ctranslate2" else ""
    written = codec.tgt_written()
    if written is None:
        reason = reason or "its vocabulary has sub-words that reach over blanks"
    if reason or written is None:
        logs.notice(f"the search is free, and trees are repaired where they must be: {reason}")
        return None
    return TreeGrammar(written, checkpoint.text, sign_tags=codec.is_separate)


def _use_int8(networks: Sequence[TranslationModel], chosen: Device) -> Device:
    """Turn the weights into 8 bits; the rest stays float32, but for what is kept between steps."""
    for network in networks:
        use_int8(network, chosen.dtype)
    return replace(chosen, dtype=torch.float32, explanation=f"{chosen.explanation}; weights in 8 bits")


def load_network(checkpoint: Checkpoint, *, checked: bool = True) -> TranslationModel:
    """The model of a checkpoint, in evaluation mode, with the weights in its memory-mapped file; see weights()."""
    model = build_empty(checkpoint.model, checkpoint.vocab_size).eval()  # drawing weights takes longer than all else
    checkpoint.load_into(model, checked=checked)
    return model
