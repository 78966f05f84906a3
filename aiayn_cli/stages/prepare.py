"""prepare: text of two languages in, training-ready data out."""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aiayn_cli import __version__, logs
from aiayn_cli.config import DataConfig
from aiayn_cli.data.clean import REASONS, LengthRules, ScoredText
from aiayn_cli.data.corpora import Corpus, find_corpus, parse_langs
from aiayn_cli.data.encoding import available_cores, encode_chunks
from aiayn_cli.data.folders import new_folder
from aiayn_cli.data.pairs import Chunk, ReadCounts, TextSpool
from aiayn_cli.data.prepared import MANIFEST, PREPARED_FOLDER, VOCAB, read_manifest, write_manifest
from aiayn_cli.data.selection import TrainingText
from aiayn_cli.data.sources import DemoSource, FileSource, PairOfFiles, Source
from aiayn_cli.data.store import TokenStoreWriter
from aiayn_cli.data.vocab import Vocab
from aiayn_cli.data.vocab_training import WordCounter, train_vocab
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.recipe import load_recipe

HELD_OUT_PAIRS, HELD_OUT_SHARE = 2_000, 0.05  # validation pairs at most, where the user gives none
VOCAB_SAMPLE_PAIRS = 5_000_000  # training pairs that the vocabulary is learnt from, at most
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class PrepareResult:
    """What `prepare` did.

    Attributes:
        out: the folder with the prepared data.
        langs: source and target language, such as "en-de".
        pairs_read: training pairs that were read.
        dropped: how many of them were dropped, by rule.
        held_out: how many of them became validation pairs, since none were given.
        pairs_kept: training pairs, the rest.
        valid_pairs: validation pairs.
        test_pairs: test pairs; 0 without test text.
        src_tokens: sub-word tokens of the kept training pairs' source sides, without end tokens.
        tgt_tokens: the same for the target sides.
        unknown_tokens: how many of both are <unk>.
        mapped_characters: characters such as CR or U+2028 inside lines of all files that became blanks.
        vocab_size: sub-words, special tokens included.
        done_before: nothing was done, since the folder holds exactly this already.
        seconds: how long it took.
    """

    out: Path
    langs: str
    pairs_read: int
    dropped: dict[str, int]
    held_out: int
    pairs_kept: int
    valid_pairs: int
    test_pairs: int
    src_tokens: int
    tgt_tokens: int
    unknown_tokens: int
    mapped_characters: int
    vocab_size: int
    done_before: bool
    seconds: float

    def __str__(self) -> str:
        rows: list[tuple[str, int | None]] = [("training pairs read", self.pairs_read)]
        rows += [(f"  dropped: {REASONS[name]}", count) for name, count in self.dropped.items() if count]
        rows += [("  held out for validation", self.held_out)] if self.held_out else []
        rows += [("training pairs kept", self.pairs_kept)]
        rows += [("  source tokens", self.src_tokens), ("  target tokens", self.tgt_tokens)]
        rows += [("  unknown tokens", self.unknown_tokens)] if self.unknown_tokens else []
        rows += [("validation pairs", self.valid_pairs), ("test pairs", self.test_pairs)]
        rows += [("sub-words in the vocabulary", self.vocab_size)]
        rows += [("characters mapped to a blank", self.mapped_characters)] if self.mapped_characters else []
        width = max(len(label) for label, _ in rows)
        table = "\n".join(f"{label:<{width}}  {count:>13,}" for label, count in rows)
        return f"{self.out} ({self.langs}), {self.seconds:.1f} seconds\n{table}"


@dataclass(frozen=True)
class _Plan:
    """What one call is to do, after all choices were made."""

    out: Path
    corpus: str | None
    src_lang: str
    tgt_lang: str
    source: Source
    config: DataConfig
    vocab: Path | None
    workers: int

    def settings(self) -> dict[str, Any]:
        """Everything but the text that the result depends on."""
        values = asdict(self.config)
        del values["corpus"]
        if self.vocab:
            del values["vocab_size"]
            values["vocab_sha256"] = Vocab.load(self.vocab).sha256
        return values


def run_prepare(
    *,
    corpus: str | None = None,
    train: Sequence[PairOfFiles] = (),
    valid: PairOfFiles | None = None,
    test: PairOfFiles | None = None,
    langs: str | None = None,
    out: Path | None = None,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    vocab: Path | None = None,
    workers: int | None = None,
) -> PrepareResult:
    """Prepare a named corpus, or files.

    Args:
        corpus: a name of data/corpora.py; None takes the files, or without files the recipe's corpus.
        train: pairs of files, source and target side, read one after the other.
        valid: validation files; without them, pairs of the training text are held out.
        test: test files.
        langs: languages of the files, such as "en-de".
        out: folder to make; by default prepared/ and the name of the corpus, or else the languages.
        recipe: takes its data section for what `settings` does not say.
        settings: fields of DataConfig that the user set.
        vocab: a vocabulary to use instead of a new one: a file, or a folder that holds vocab.model.
        workers: processes that encode text; None takes one for each core. The result does not depend on it.
    Raises:
        AiaynError: what the user can fix; an existing folder is never changed.
    """
    started = time.monotonic()
    plan = _make_plan(corpus, train, valid, test, langs, out, recipe, settings or {}, vocab, workers)
    inputs = plan.source.describe()
    if (plan.out / MANIFEST).exists():
        manifest = _check_same(plan, inputs)
        logs.notice(f"{plan.out} holds exactly this already; nothing to do")
        return _result(plan.out, manifest, done_before=True, seconds=time.monotonic() - started)
    with new_folder(plan.out) as folder:
        manifest = _fill(folder, plan, inputs)
        write_manifest(folder, manifest)
    return _result(plan.out, manifest, done_before=False, seconds=time.monotonic() - started)


def _make_plan(
    corpus: str | None,
    train: Sequence[PairOfFiles],
    valid: PairOfFiles | None,
    test: PairOfFiles | None,
    langs: str | None,
    out: Path | None,
    recipe: str | None,
    settings: Mapping[str, Any],
    vocab: Path | None,
    workers: int | None,
) -> _Plan:
    base = load_recipe(recipe).data if recipe else DataConfig()
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}, but must be at least 1", "leave it out to use all cores")
    if corpus is None and not train:
        if not recipe:
            raise UsageError(
                "nothing to prepare", "name a corpus (`aiayn prepare --list`), or give --train and --langs"
            )
        corpus = base.corpus
    if corpus is not None:
        for name, value in (("--train", train), ("--valid", valid), ("--test", test), ("--langs", langs)):
            if value:
                raise UsageError(f"corpus {corpus} and {name} together", "name a corpus, or give files")
        known: Corpus = find_corpus(corpus)
        if not recipe:
            base = replace(base, vocab_size=known.vocab_size)
        config = replace(base, **{"corpus": corpus, **settings})
        src_lang, tgt_lang = known.src_lang, known.tgt_lang
        source: Source = DemoSource(config.seed)
    else:
        if langs is None:
            raise UsageError("--train without --langs", "say which languages these are, such as --langs en-de")
        src_lang, tgt_lang = parse_langs(langs)
        config = replace(base, **settings)
        files = {"train": list(train), "valid": [valid] if valid else [], "test": [test] if test else []}
        files = {split: pairs for split, pairs in files.items() if pairs}
        source = FileSource(files, drop_bad_bytes=config.on_bad_bytes == "drop")
    if vocab is not None:
        if "vocab_size" in settings:
            raise UsageError(
                "--vocab and --vocab-size together", "a vocabulary that exists has its size: give one of them"
            )
        vocab = vocab / VOCAB if vocab.is_dir() else vocab
    if out is None:
        name = corpus or (config.corpus if recipe else f"{src_lang}-{tgt_lang}")
        out = PREPARED_FOLDER / name
        logs.notice(f"writing to {out} (--out chooses another folder)")
    return _Plan(out, corpus, src_lang, tgt_lang, source, config, vocab, workers or available_cores())


def _check_same(plan: _Plan, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Make sure that an existing folder is what this call would make, and give its manifest."""
    manifest, _ = read_manifest(plan.out)
    old: dict[str, Any] = {
        "languages": f"{manifest['src_lang']}-{manifest['tgt_lang']}",
        "text": [(entry["split"], entry["sha256"]) for entry in manifest["inputs"]],
        **manifest["settings"],
    }
    new: dict[str, Any] = {
        "languages": f"{plan.src_lang}-{plan.tgt_lang}",
        "text": [(entry["split"], entry["sha256"]) for entry in inputs],
        **plan.settings(),
    }
    changed = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
    if changed:
        what = ", ".join(key if key == "text" else f"{key} {old.get(key)} and not {new.get(key)}" for key in changed)
        hint = "remove the folder, or give another --out; nothing was changed"
        raise DataError(f"{plan.out} holds data prepared otherwise ({what})", hint)
    return manifest


def _fill(folder: Path, plan: _Plan, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Write all files but manifest.json, and give its content."""
    counts = {split: ReadCounts() for split in SPLITS}
    scored = {split: plan.source.scored(split, counts[split]) for split in SPLITS[1:]}
    for split, pairs in scored.items():
        if pairs is not None and not pairs[0]:
            raise DataError(
                f"there is no {split} pair: the files are empty", f"leave out --{split}, or give other files"
            )

    text = TrainingText(folder)
    text.collect(_with_progress("reading", plan.source.train(counts["train"])))
    text.dropped["bad_bytes"] = counts["train"].bad_bytes
    held_out = 0
    if scored["valid"] is None:
        scored["valid"] = text.hold_out(HELD_OUT_PAIRS, HELD_OUT_SHARE, plan.config.seed)
        held_out = len(scored["valid"][0])
        logs.notice(f"no validation text given: {held_out:,} training pairs are held out for it")
    if plan.config.dedupe:
        text.drop_repeats()
    text.protect(ScoredText(pairs for pairs in scored.values() if pairs is not None))

    vocab = _make_vocab(folder / VOCAB, plan, text)
    rules = LengthRules(plan.config.max_length, plan.config.max_ratio)
    splits = {"train": _encode(folder, "train", text.chunks(), rules, plan.workers, text.dropped)}
    text.remove()
    for split, pairs in scored.items():
        if pairs is not None:
            TextSpool(folder, split, plan.src_lang, plan.tgt_lang).write([pairs])
            splits[split] = _encode(folder, split, [pairs], None, 1, {})
    dropped = {name: text.dropped[name] for name in REASONS}
    if not splits["train"]["pairs_kept"]:
        what = ", ".join(f"{count:,} {REASONS[name]}" for name, count in dropped.items() if count)
        problem = f"no training pair is left of {counts['train'].pairs:,} ({what or 'the files are empty'})"
        raise DataError(problem, "check the files; --max-length, --max-ratio and --no-dedupe keep more")
    for split, split_counts in counts.items():
        if split in splits:
            more = {"pairs_read": split_counts.pairs, "mapped_characters": split_counts.mapped}
            splits[split] = {**more, **splits[split]}
    splits["train"] |= {"dropped": dropped, "held_out": held_out}
    if held_out:
        splits["valid"]["held_out_of"] = {"split": "train", "seed": plan.config.seed}
    return {
        "aiayn_version": __version__,
        "corpus": plan.corpus,
        "src_lang": plan.src_lang,
        "tgt_lang": plan.tgt_lang,
        "vocab": {"size": vocab.size, "sha256": vocab.sha256},
        "splits": splits,
        "settings": plan.settings(),
        "inputs": inputs,
    }


def _make_vocab(path: Path, plan: _Plan, text: TrainingText) -> Vocab:
    """Put the vocabulary into the folder: the user's, or a new one."""
    if plan.vocab:
        shutil.copyfile(plan.vocab, path)
        return Vocab.load(path)
    words = WordCounter()
    for src, tgt in _with_progress("counting words", text.sample(VOCAB_SAMPLE_PAIRS, plan.config.seed)):
        words.add(src)
        words.add(tgt)
    logs.detail(f"learning a vocabulary from {len(words.counts):,} different words")
    path.write_bytes(train_vocab(words.counts, plan.config.vocab_size))
    vocab = Vocab.load(path)
    if vocab.size < plan.config.vocab_size:
        logs.notice(f"the text has no more than {vocab.size:,} sub-words, so the vocabulary is that size")
    return vocab


def _encode(
    folder: Path,
    split: str,
    chunks: Iterable[Chunk],
    rules: LengthRules | None,
    workers: int,
    dropped: dict[str, int],
) -> dict[str, Any]:
    """Write the token ids of a split, add to what was dropped, and describe it for the manifest."""
    writer = TokenStoreWriter(folder, split, Vocab.load(folder / VOCAB).dtype)
    unknown = 0
    for encoded in encode_chunks(_with_progress(f"encoding {split}", chunks), folder / VOCAB, rules, workers):
        writer.add(encoded.src, encoded.src_lengths, encoded.tgt, encoded.tgt_lengths)
        unknown += encoded.unknown
        for reason, count in (("too_long", encoded.too_long), ("length_ratio", encoded.length_ratio)):
            if count:
                dropped[reason] = dropped.get(reason, 0) + count
    writer.close()
    tokens = {f"{side}_tokens": n for side, n in writer.n_tokens.items()}
    return {"pairs_kept": writer.n_pairs, **tokens, "unknown_tokens": unknown}


def _with_progress(description: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    with logs.progress(description, None, "pairs") as progress:
        for chunk in chunks:
            yield chunk
            progress.advance(len(chunk[0]))


def _result(out: Path, manifest: Mapping[str, Any], *, done_before: bool, seconds: float) -> PrepareResult:
    splits = manifest["splits"]
    train = splits["train"]
    return PrepareResult(
        out=out,
        langs=f"{manifest['src_lang']}-{manifest['tgt_lang']}",
        pairs_read=train["pairs_read"],
        dropped=dict(train["dropped"]),
        held_out=train["held_out"],
        pairs_kept=train["pairs_kept"],
        valid_pairs=splits["valid"]["pairs_kept"] if "valid" in splits else 0,
        test_pairs=splits["test"]["pairs_kept"] if "test" in splits else 0,
        src_tokens=train["src_tokens"],
        tgt_tokens=train["tgt_tokens"],
        unknown_tokens=train["unknown_tokens"],
        mapped_characters=sum(split["mapped_characters"] for split in splits.values()),
        vocab_size=manifest["vocab"]["size"],
        done_before=done_before,
        seconds=seconds,
    )
