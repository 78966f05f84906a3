"""prepare: text of two languages in, training-ready data out."""

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiayn_cli import __version__, logs
from aiayn_cli.data.clean import REASONS, LengthRules, ScoredText
from aiayn_cli.data.corpus import SPLITS
from aiayn_cli.data.encoding import encode_chunks
from aiayn_cli.data.folders import new_folder
from aiayn_cli.data.pairs import Chunk, ReadCounts, TextSpool
from aiayn_cli.data.prepared import MANIFEST, VOCAB, PreparedData, write_manifest
from aiayn_cli.data.selection import TrainingText
from aiayn_cli.data.sources import identity_of
from aiayn_cli.data.store import TokenStoreWriter
from aiayn_cli.data.vocab import Vocab
from aiayn_cli.data.vocab_training import WordCounter, train_vocab
from aiayn_cli.errors import DataError
from aiayn_cli.stages.prepare_plan import PreparePlan, make_plan
from aiayn_cli.stages.prepare_result import PrepareResult
from aiayn_cli.stages.prepare_source import Files, PairOfFiles

HELD_OUT_PAIRS, HELD_OUT_SHARE = 2_000, 0.05  # validation pairs at most, where the user gives none
VOCAB_SAMPLE_PAIRS = 5_000_000  # training pairs that the vocabulary is learnt from, at most
PAIRS_A_SUBWORD = 3  # with fewer, most sub-words are too rare to be learnt well


def run_prepare(
    *,
    corpus: str | None = None,
    like: str | None = None,
    train: Sequence[PairOfFiles] = (),
    tsv: Sequence[Path] = (),
    tsv_columns: tuple[int, int] = (1, 2),
    tmx: Sequence[Path] = (),
    valid: PairOfFiles | None = None,
    test: PairOfFiles | None = None,
    weights: Mapping[str, int] | None = None,
    langs: str | None = None,
    out: Path | None = None,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    vocab: Path | None = None,
    workers: int | None = None,
    downloads: Path | None = None,
    from_folder: Path | None = None,
) -> PrepareResult:
    """Prepare named corpora, files, or both together.

    Args:
        corpus: a name that data/corpora.py finds, or several joined by "+"; None takes the files, or without files
            the recipe's corpus.
        like: whose way of preparing the corpus to follow; None takes ours.
        train: pairs of files, source and target side, read one after the other.
        tsv: files of tab-separated columns, for training too.
        tsv_columns: which column has the source and which the target side, from 1 on.
        tmx: translation memories, for training too.
        valid: validation files; without them, the corpus's, or else pairs of the training text are held out.
        test: test files; without them, the corpus's.
        weights: by the name of a corpus, of a part of one, or of a file: how often its training pairs are taken.
        langs: languages, such as "en-de"; needed for files and OPUS.
        out: folder to make; by default prepared/ and the name of the corpus, or else the languages.
        recipe: takes its data section for what `settings` does not say.
        settings: fields of DataConfig that the user set.
        vocab: a vocabulary to use instead of a new one: a file, or a folder that holds vocab.model.
        workers: processes that encode text; None takes one for each core. The result does not depend on it.
        downloads: folder where downloaded archives are kept; None takes prepared/.downloads.
        from_folder: folder with archives that are at hand.
    Raises:
        AiaynError: what the user can fix; an existing folder is never changed.
    """
    started = time.monotonic()
    plan = make_plan(
        corpus=corpus,
        like=like,
        files=Files(train, tsv, tsv_columns, tmx, valid, test, weights or {}),
        langs=langs,
        out=out,
        recipe=recipe,
        settings=settings or {},
        vocab=vocab,
        workers=workers,
        downloads=downloads,
        from_folder=from_folder,
    )
    if out is None:
        logs.notice(f"writing to {plan.out} (--out chooses another folder)")
    if (plan.out / MANIFEST).exists():
        manifest = _check_same(plan)
        logs.notice(f"{plan.out} holds exactly this already; nothing to do")
        return PrepareResult.from_manifest(plan.out, manifest, done_before=True, seconds=time.monotonic() - started)
    plan.source.fetch()
    with new_folder(plan.out) as folder:
        manifest = _fill(folder, plan, plan.source.describe())
        write_manifest(folder, manifest)
    return PrepareResult.from_manifest(plan.out, manifest, done_before=False, seconds=time.monotonic() - started)


def _check_same(plan: PreparePlan) -> dict[str, Any]:
    """Make sure that an existing folder is what this call would make, and give its manifest."""
    manifest = dict(PreparedData.load(plan.out).manifest)
    old: dict[str, Any] = {
        "languages": f"{manifest['src_lang']}-{manifest['tgt_lang']}",
        "text": identity_of(manifest["inputs"]),
        **manifest["settings"],
    }
    new: dict[str, Any] = {
        "languages": f"{plan.src_lang}-{plan.tgt_lang}",
        "text": plan.source.identity(),
        **plan.settings(),
    }
    changed = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
    if changed:
        both = {key for key in changed if key in old and key in new and key != "text"}
        what = ", ".join(f"{key} {old[key]} and not {new[key]}" if key in both else key for key in changed)
        hint = "remove the folder, or give another --out; nothing was changed"
        raise DataError(f"{plan.out} holds data prepared otherwise ({what})", hint)
    return manifest


def _fill(folder: Path, plan: PreparePlan, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Write all files but manifest.json, and give its content."""
    counts: dict[str, ReadCounts] = {split: ReadCounts() for split in SPLITS}
    scored = _read_scored(plan, counts)
    text = TrainingText(folder)
    chunks = _read_train(plan, counts["train"])
    text.collect(chunks, ScoredText(scored.values()))
    text.dropped["bad_bytes"] = counts["train"].bad_bytes
    held_out = 0
    if "valid" not in scored:
        taken = text.hold_out(HELD_OUT_PAIRS, HELD_OUT_SHARE, plan.config.seed)
        held_out = len(taken[0])
        logs.notice(f"no validation text given: {held_out:,} training pairs are held out for it")
        if held_out:
            scored["valid"] = taken
    if plan.config.dedupe:
        text.drop_repeats()
    _refuse_nothing(len(text), counts["train"], text.dropped)

    vocab = _make_vocab(folder / VOCAB, plan, text)
    rules = LengthRules(plan.config.max_length, plan.config.max_ratio)
    splits = {"train": _encode(folder, "train", text.chunks(), rules, plan.workers, text.dropped, text.copies())}
    _refuse_nothing(splits["train"]["pairs_kept"], counts["train"], text.dropped)
    text.remove()
    for split, pairs in scored.items():
        TextSpool(folder, split, plan.src_lang, plan.tgt_lang).write([pairs])
        splits[split] = _encode(folder, split, [pairs], None, 1, Counter())

    for split, description in splits.items():
        description |= {"pairs_read": counts[split].pairs, "mapped_characters": counts[split].mapped}
        description |= {"entries_skipped": counts[split].skipped}
    splits["train"] |= {"dropped": {reason: text.dropped[reason] for reason in REASONS}, "held_out": held_out}
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


def _read_train(plan: PreparePlan, counts: ReadCounts) -> Iterator[tuple[int, Chunk]]:
    """Read the training pairs, each chunk with the weight of its origin."""
    with logs.progress("reading", None, "pairs") as progress:
        for origin, chunk in plan.source.read_train(counts):
            yield origin.weight, chunk
            progress.advance(len(chunk[0]))


def _read_scored(plan: PreparePlan, counts: Mapping[str, ReadCounts]) -> dict[str, Chunk]:
    """Read the validation and test text that there is."""
    scored: dict[str, Chunk] = {}
    for split in SPLITS[1:]:
        pairs = plan.source.scored(split, counts[split])
        if pairs is not None:
            if not pairs[0]:
                raise DataError(f"the {split} files hold no pair", f"leave out --{split}, or give other files")
            scored[split] = pairs
    return scored


def _refuse_nothing(n_pairs: int, counts: ReadCounts, dropped: Mapping[str, int]) -> None:
    if not n_pairs:
        reasons = ", ".join(f"{count:,} {REASONS[reason]}" for reason, count in dropped.items() if count)
        problem = f"no training pair is left of {counts.pairs:,}" + (f" ({reasons})" if reasons else "")
        raise DataError(problem, "look into the files; --max-length, --max-ratio and --no-dedupe let more pass")


def _make_vocab(path: Path, plan: PreparePlan, text: TrainingText) -> Vocab:
    """Put the vocabulary into the folder: the user's, or a new one."""
    if plan.vocab:
        shutil.copyfile(plan.vocab, path)
        return Vocab.load(path)
    words = WordCounter()
    for src, tgt in _with_progress("counting words", text.sample(VOCAB_SAMPLE_PAIRS, plan.config.seed)):
        words.add(src)
        words.add(tgt)
    logs.detail(f"learning sub-words from {len(words.counts):,} different words")
    wanted = plan.config.vocab_size
    path.write_bytes(train_vocab(words.counts, wanted))
    vocab = Vocab.load(path)
    if vocab.size < wanted:
        logs.notice(f"the text has only {vocab.size:,} sub-words, so the vocabulary has that many, not {wanted:,}")
    elif len(text) < PAIRS_A_SUBWORD * vocab.size:
        logs.notice(f"{vocab.size:,} sub-words are many for {len(text):,} pairs; fewer may do better (--vocab-size)")
    return vocab


def _encode(
    folder: Path,
    split: str,
    chunks: Iterable[Chunk],
    rules: LengthRules | None,
    workers: int,
    dropped: Counter[str],
    copies: Iterable[Chunk] = (),
) -> dict[str, Any]:
    """Write the token ids of a split, add to what was dropped, and describe it for the manifest.

    Copies of pairs follow the pairs, and what is dropped of them is counted with the pairs.
    """
    writer = TokenStoreWriter(folder, split, Vocab.load(folder / VOCAB).dtype)
    unknown = 0
    for encoded in encode_chunks(_with_progress(f"encoding {split}", chunks), folder / VOCAB, rules, workers):
        writer.add(encoded.src, encoded.src_lengths, encoded.tgt, encoded.tgt_lengths)
        unknown += encoded.unknown
        dropped["too_long"] += encoded.too_long
        dropped["length_ratio"] += encoded.length_ratio
    n_once = writer.n_pairs
    for encoded in encode_chunks(_with_progress("encoding copies", copies), folder / VOCAB, rules, workers):
        writer.add(encoded.src, encoded.src_lengths, encoded.tgt, encoded.tgt_lengths)
        unknown += encoded.unknown
    writer.close()
    tokens = {f"{side}_tokens": n for side, n in writer.n_tokens.items()}
    return {"pairs_kept": writer.n_pairs, "copies": writer.n_pairs - n_once, **tokens, "unknown_tokens": unknown}


def _with_progress(description: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    with logs.progress(description, None, "pairs") as progress:
        for chunk in chunks:
            yield chunk
            progress.advance(len(chunk[0]))
