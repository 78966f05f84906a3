"""Loads the models of `aiayn translate` and their vocabulary, and refuses options that they cannot fulfil."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.device import Device, choose_device
from aiayn_cli.errors import AiaynError, CheckpointError, UsageError
from aiayn_cli.model.build import build_empty
from aiayn_cli.model.cpu.int8 import use_int8
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.parsing.tree_grammar import TreeGrammar
from aiayn_cli.text.codec import Codec
from aiayn_cli.translate.aids.glossary import Glossary, load_glossary
from aiayn_cli.translate.ctranslate2_engine import CTranslate2Engine, load_exported
from aiayn_cli.translate.options import Engine, TranslateOptions
from aiayn_cli.translate.search.sentence_search import SearchSetup
from aiayn_cli.translate.translator import Translator
from aiayn_cli.translate.trust.notices import LineNotices


@dataclass(frozen=True)
class LoadedModels:
    """Models that are ready."""

    checkpoints: Sequence[Checkpoint]  # where they come from
    codec: Codec  # their vocabulary
    translator: Translator  # all of them, as an ensemble where there are several
    glossary: Glossary | None  # the terms that they must use
    # to be called before the first output: waits for the check of their weights, and raises CheckpointError where
    # they are damaged
    confirm: Callable[[], None]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(checkpoint.path) for checkpoint in self.checkpoints)


def load_models(
    options: TranslateOptions,
    device: str | None = None,
    notices: LineNotices | None = None,
    *,
    check_in_background: bool = False,
) -> LoadedModels:
    """Load the named models, or the newest run's, and say what was chosen.

    Args:
        device: instead of the options' own.
        notices: as in Translator.
        check_in_background: leave the check of the weights, which takes most of the time, to a thread
            (LoadedModels.confirm); not for 8 bits or another engine, which would use the weights before that.
    Raises:
        AiaynError: no such model or device; models or a vocabulary that do not belong together; an option that the
            models cannot fulfil; an engine that is not installed or has no exported model.
    """
    checkpoints = [load_checkpoint(path) for path in map(find_model, options.engine.models or (None,))]
    first, engine = checkpoints[0], options.engine
    decoding = options.decoding.over(first.decoding, options.search)
    other = engine.engine == "ctranslate2"
    if other:
        _refuse_for_ctranslate2(options, len(checkpoints))
    chosen = choose_device(device or engine.device, "fp32" if other else engine.precision)
    if engine.int8 and not other and chosen.device.type != "cpu":
        raise UsageError(f"--int8 is for CPUs, but the device is {chosen.device}", "add --device cpu, or drop it")
    for checkpoint in checkpoints:
        logs.notice(f"model: {checkpoint.path}, {checkpoint.src_lang}-{checkpoint.tgt_lang}, step {checkpoint.step:,}")
        _check_same(first, checkpoint)
    refuse_unsupported(checkpoints, options)
    codec = _load_codec(first)
    grammar = _tree_grammar(first, codec, engine.engine) if decoding.tree_rules else None
    if grammar is not None and options.search.min_length:  # once all words are in it, a tree can only end
        raise UsageError(
            f"--min-length {options.search.min_length} needs more tokens, but {first.path} writes trees, "
            "whose length the words of a line bound",
            "drop it, or add --no-tree-rules",
        )
    check_in_background = check_in_background and not other and not engine.int8
    networks = [load_network(checkpoint, checked=not check_in_background) for checkpoint in checkpoints]
    exported: CTranslate2Engine | None = None
    if other:
        exported, label = load_exported(first, codec, chosen, int8=engine.int8)
        logs.notice(label)
    else:
        chosen = _use_int8(networks, chosen) if engine.int8 else chosen
        logs.notice(chosen.explanation)
    glossary = options.text.glossary
    terms = load_glossary(glossary, codec, first.tgt_lang) if glossary is not None else None
    translator = Translator(
        networks, codec, chosen, decoding,
        options=options.search,
        setup=SearchSetup(glossary=terms, tree_grammar=grammar, engine=exported, in_processes=True),
        trained_length=min(each.max_length for each in checkpoints),
        notices=notices,
    )  # fmt: skip
    confirm = _check_in_background(checkpoints) if check_in_background else lambda: None
    return LoadedModels(checkpoints, codec, translator, terms, confirm)


def _check_same(first: Checkpoint, checkpoint: Checkpoint) -> None:
    for what in ("vocab_sha256", "src_lang", "tgt_lang"):
        if getattr(checkpoint, what) != getattr(first, what):
            different = "vocabularies" if what == "vocab_sha256" else "languages"
            raise CheckpointError(
                f"{first.path} and {checkpoint.path} have different {different}",
                "an ensemble needs models that were trained on the same prepared data",
            )


def _load_codec(checkpoint: Checkpoint) -> Codec:
    codec = Codec.load(checkpoint.path, checkpoint.text, checkpoint.src_lang, checkpoint.tgt_lang)
    if codec.sha256 != checkpoint.vocab_sha256 or codec.size != checkpoint.vocab_size:
        raise CheckpointError(
            f"{checkpoint.vocab_path} is not the vocabulary that the model was trained with",
            "copy the checkpoint again, or take vocab.model from the run's prepared data",
        )
    return codec


def _check_in_background(checkpoints: Sequence[Checkpoint]) -> Callable[[], None]:
    """Start to check weights in a thread; the function returned waits for it, and raises what it found."""
    thread = ThreadPoolExecutor(max_workers=1)
    checks = [thread.submit(checkpoint.weights) for checkpoint in checkpoints]
    thread.shutdown(wait=False)  # it ends with the last of them

    def confirm() -> None:
        for check in checks:
            check.result()

    return confirm


def _refuse_for_ctranslate2(options: TranslateOptions, n_models: int) -> None:
    hint = "drop it, or take --engine torch"
    if n_models > 1:
        raise UsageError(
            "--engine ctranslate2 takes one model, not an ensemble", "average them, or take --engine torch"
        )
    if options.search.sampling is not None:
        raise UsageError("--engine ctranslate2 does not sample from a seed of each line, as --sample promises", hint)
    if options.text.glossary is not None:
        raise UsageError("--engine ctranslate2 knows no glossary", hint)
    if options.decoding.tree_rules:
        raise UsageError("--engine ctranslate2 knows no rules for trees, as --tree-rules requires", hint)
    if options.engine.precision == "bf16":
        raise UsageError("--engine ctranslate2 computes in float32, or in 8 bits with --int8, not in bf16", hint)


def refuse_unsupported(checkpoints: Sequence[Checkpoint], options: TranslateOptions) -> None:
    """Refuse options for Transformers, for models of raw text, for models that write text, or for parsers.

    Of an ensemble, the first one's attention is drawn.
    """
    first, text, output = checkpoints[0], options.text, options.output
    shows_attention = {
        "--attention": output.attention is not None,
        "--alignments": output.style.alignments,
        "--markup": text.markup,
    }
    for option, is_given in shows_attention.items():
        for checkpoint in checkpoints if option != "--attention" else [first]:
            if is_given and checkpoint.model.kind != "transformer":
                raise AiaynError(
                    f"{option} looks at the attention of a Transformer, but {checkpoint.path} is a "
                    f"{checkpoint.model.kind} model",
                    f"drop {option}, or take a Transformer",
                )
    if text.markup and first.text.changes_text:
        raise AiaynError(
            f"--markup puts tags between words, but {first.path} reads and writes text in another form",
            "drop --markup, or take a model of raw text",
        )
    if first.text.trees:
        _refuse_for_trees(first, options)
    elif options.decoding.tree_rules is not None:
        option = "--tree-rules" if options.decoding.tree_rules else "--no-tree-rules"
        raise AiaynError(f"{option} is about a parser's trees, but {first.path} writes text", f"drop {option}")


def _refuse_for_trees(parser: Checkpoint, options: TranslateOptions) -> None:
    of_text = {
        "--alignments": (options.output.style.alignments, "drop --alignments"),
        "--glossary": (options.text.glossary is not None, "drop --glossary"),
        "--on-suspect copy": (options.output.on_suspect == "copy", "--on-suspect retry, empty and fail go with trees"),
    }
    for option, (is_given, hint) in of_text.items():
        if is_given:
            raise AiaynError(f"{option} is about words of a translation, but {parser.path} writes trees", hint)
    if options.output.on_suspect == "retry" and options.search.sampling is not None:
        raise AiaynError(
            f"--on-suspect retry searches with a larger beam where a model writes trees, as {parser.path} does, "
            "and --sample has none",
            "--on-suspect keep, empty and fail go with --sample",
        )


def _tree_grammar(checkpoint: Checkpoint, codec: Codec, engine: Engine) -> TreeGrammar | None:
    if not checkpoint.text.trees:
        return None
    reason = "--engine ctranslate2 knows no rules for trees" if engine == "ctranslate2" else ""
    written = codec.tgt_written()
    if written is None:
        reason = reason or "its vocabulary has sub-words that contain blanks"
    if reason or written is None:
        logs.notice(f"the search is free, and trees are repaired where necessary: {reason}")
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
