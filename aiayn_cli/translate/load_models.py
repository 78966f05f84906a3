"""Loads the models of `aiayn translate` and their vocabulary, and refuses options that they do not support."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.device import choose_device
from aiayn_cli.errors import AiaynError, CheckpointError, UsageError
from aiayn_cli.model.build import build_empty
from aiayn_cli.model.cpu.int8 import use_int8
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.parsing.tree_grammar import TreeGrammar
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.sentences import knows_single_sentences
from aiayn_cli.translate.aids.glossary import Glossary, load_glossary
from aiayn_cli.translate.ctranslate2_engine import load_exported
from aiayn_cli.translate.line_translator import Cutting, LineNotice, LineTranslator
from aiayn_cli.translate.options import Engine, Split, TranslateOptions
from aiayn_cli.translate.search.sentence_search import SearchSetup


@dataclass(frozen=True)
class LoadedModels:
    """Models that are ready, an ensemble if there are several."""

    checkpoints: Sequence[Checkpoint]
    codec: Codec
    translator: LineTranslator
    glossary: Glossary | None
    confirm: Callable[[], None]  # call it before the first output: raises CheckpointError for damaged weights


def load_models(
    options: TranslateOptions,
    device: str | None = None,
    notify: Callable[[LineNotice], None] | None = None,
    *,
    check_in_background: bool = False,
) -> LoadedModels:
    """Load the named models, or the newest run's, and say what was chosen; AiaynError for what does not fit together.

    `device` overrides the options' own; `notify` is LineTranslator's. Checking the weights takes most of the time and
    can be left to a thread (LoadedModels.confirm), but not for 8 bits or CTranslate2, which use the weights at once.
    """
    checkpoints = [load_checkpoint(path) for path in map(find_model, options.engine.models or (None,))]
    first, engine = checkpoints[0], options.engine
    decoding = options.decoding.over(first.decoding, options.search)
    is_torch = engine.engine == "torch"
    if not is_torch:
        _refuse_for_ctranslate2(options, len(checkpoints))
    chosen = choose_device(device or engine.device, engine.precision if is_torch else "fp32")
    if engine.int8 and is_torch and chosen.device.type != "cpu":
        raise UsageError(f"--int8 is for CPUs, but the device is {chosen.device}", "drop --int8, or add --device cpu")
    for checkpoint in checkpoints:
        logs.notice(f"model: {checkpoint.path}, {checkpoint.src_lang}-{checkpoint.tgt_lang}, step {checkpoint.step:,}")
        _check_same(first, checkpoint)
    refuse_unsupported(checkpoints, options)
    codec = _load_codec(first)
    grammar = _tree_grammar(first, codec, engine.engine) if decoding.tree_rules else None
    if grammar is not None and options.search.min_length:  # with all words in it, a tree can only end
        raise UsageError(
            f"--min-length {options.search.min_length} does not work with {first.path}, which writes trees over the "
            "words of a line",
            "drop it, or add --no-tree-rules",
        )
    check_in_background = check_in_background and is_torch and not engine.int8
    networks = [load_network(checkpoint, checked=not check_in_background) for checkpoint in checkpoints]
    exported, explanation = None, chosen.explanation
    if not is_torch:
        exported, explanation = load_exported(first, codec, chosen, int8=engine.int8)
    elif engine.int8:
        for network in networks:
            use_int8(network, chosen.dtype)
        explanation += "; weights in 8 bits"
        chosen = replace(chosen, dtype=torch.float32)  # of all but what is kept between steps
    logs.notice(explanation)
    glossary = options.text.glossary
    terms = load_glossary(glossary, codec, first.tgt_lang) if glossary is not None else None
    setup = SearchSetup(glossary=terms, tree_grammar=grammar, engine=exported, in_processes=engine.in_processes)
    translator = LineTranslator(
        networks, codec, chosen, decoding, options=options.search, setup=setup,
        cutting=_cutting(options.text.split, checkpoints), notify=notify,
    )  # fmt: skip
    confirm = _check_in_background(checkpoints) if check_in_background else lambda: None
    return LoadedModels(checkpoints, codec, translator, terms, confirm)


def _cutting(split: Split, checkpoints: Sequence[Checkpoint]) -> Cutting:
    single = any(knows_single_sentences(each.several_sentences) for each in checkpoints)
    by_sentence = split == "sentences" or (split == "auto" and single)
    return Cutting(min(each.max_length for each in checkpoints), by_sentence)


def load_network(checkpoint: Checkpoint, *, checked: bool = True) -> TranslationModel:
    """The model of a checkpoint, in evaluation mode, with the weights in its memory-mapped file; see weights()."""
    model = build_empty(checkpoint.model, checkpoint.vocab_size).eval()  # drawing weights would take most of the time
    checkpoint.load_into(model, checked=checked)
    return model


def _check_same(first: Checkpoint, checkpoint: Checkpoint) -> None:
    for what in ("vocab_sha256", "src_lang", "tgt_lang", "text"):
        if getattr(checkpoint, what) != getattr(first, what):
            different = {"vocab_sha256": "vocabularies", "text": "text processing"}.get(what, "languages")
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


def _tree_grammar(checkpoint: Checkpoint, codec: Codec, engine: Engine) -> TreeGrammar | None:
    if not checkpoint.text.trees:
        return None
    written, reason = codec.tgt_written(), "the vocabulary has sub-words that contain blanks"
    if engine == "ctranslate2":
        written, reason = None, "--engine ctranslate2 does not support --tree-rules"
    if written is None:
        logs.notice(f"trees are not enforced in the search, but repaired after it: {reason}")
        return None
    return TreeGrammar(written, checkpoint.text, sign_tags=codec.is_separate)


def _check_in_background(checkpoints: Sequence[Checkpoint]) -> Callable[[], None]:
    """Start to check weights in a thread; the function returned waits for it, and raises what it found."""
    thread = ThreadPoolExecutor(max_workers=1)
    checks = [thread.submit(checkpoint.weights) for checkpoint in checkpoints]
    thread.shutdown(wait=False)  # it ends after the last check

    def confirm() -> None:
        for check in checks:
            check.result()

    return confirm


def _refuse_for_ctranslate2(options: TranslateOptions, n_models: int) -> None:
    refused = {
        "an ensemble": n_models > 1,
        "--sample": options.search.sampling is not None,
        "--glossary": options.text.glossary is not None,
        "--tree-rules": bool(options.decoding.tree_rules),
        "--precision bf16": options.engine.precision == "bf16",
    }
    for what, is_given in refused.items():
        if is_given:
            raise UsageError(f"--engine ctranslate2 does not support {what}", "drop one of them")


def refuse_unsupported(checkpoints: Sequence[Checkpoint], options: TranslateOptions) -> None:
    """Refuse options that need Transformers, models of raw text, models that write text, or parsers."""
    first, text, output = checkpoints[0], options.text, options.output
    needs_attention = {
        "--attention": checkpoints[:1] if output.attention is not None else [],  # only the first one's is drawn
        "--alignments": checkpoints if output.style.alignments else [],
        "--markup": checkpoints if text.markup else [],
    }
    for option, needed in needs_attention.items():
        for checkpoint in needed:
            if checkpoint.model.kind != "transformer":
                what = f"{checkpoint.path} is a {checkpoint.model.kind} model"
                raise AiaynError(f"{option} needs a Transformer, but {what}", f"drop {option}, or use a Transformer")
    trees, rules, suspect = first.text.trees, options.decoding.tree_rules, output.on_suspect
    writes = f"{first.path} {'writes trees' if trees else 'translates'}"
    drop = "drop it, or use another model"
    for what, hint, is_refused in (
        (f"--markup needs a model of plain text, but {first.path} changes its text", drop,
         text.markup and first.text.changes_text),
        (f"--tree-rules is for parsers, but {writes}", drop, rules is True and not trees),
        (f"--no-tree-rules is for parsers, but {writes}", drop, rules is False and not trees),
        (f"--alignments is for translations, but {writes}", drop, output.style.alignments and trees),
        (f"--glossary is for translations, but {writes}", drop, text.glossary is not None and trees),
        (f"--on-suspect copy is for translations, but {writes}", "--on-suspect retry, empty and fail work with trees",
         suspect == "copy" and trees),
        (f"--on-suspect retry needs a larger beam, as {writes}, and --sample has no beam",
         "--on-suspect keep, empty and fail work with --sample",
         suspect == "retry" and trees and options.search.sampling is not None),
    ):  # fmt: skip
        if is_refused:
            raise AiaynError(what, hint)
