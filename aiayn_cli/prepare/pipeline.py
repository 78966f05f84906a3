"""`prepare` from top to bottom: read and clean the text, select pairs, learn a vocabulary, encode, write a manifest.

Each step has a marker, so that interrupted work resumes after the last finished one."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from aiayn_cli import __version__, logs
from aiayn_cli.corpora.corpus import SPLITS
from aiayn_cli.data.prepared import MANIFEST, PreparedData, damaged_manifest, write_manifest
from aiayn_cli.data.recipe_choice import AUTO, choose_recipe
from aiayn_cli.data.store import TokenStoreWriter
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.drop_rules import REASONS, LengthRules, ScoredText, TextRules, all_reasons, refuse_empty
from aiayn_cli.prepare.formats import Chunk, ReadCounts
from aiayn_cli.prepare.partial_folder import Steps, damaged, new_folder, remove_leftovers
from aiayn_cli.prepare.plan import PrepareOptions as PrepareOptions
from aiayn_cli.prepare.plan import PreparePlan, make_plan
from aiayn_cli.prepare.selection import TrainingText
from aiayn_cli.prepare.sources import check_disk, estimate_disk, identity_of, names_of
from aiayn_cli.prepare.text_shards import PairsWithCopies, encode_chunk, encode_pieces, make_processor, numbered
from aiayn_cli.prepare.vocab_training import WordCounter, learn_vocab
from aiayn_cli.recipe import load_recipe
from aiayn_cli.text.codec import TGT_VOCAB, VOCAB, joint_sha256, load_vocabs
from aiayn_cli.text.lines import is_blank, read_file, write_records
from aiayn_cli.text.sentences import split_sentences

HELD_OUT_PAIRS, HELD_OUT_SHARE = 2_000, 0.05  # validation pairs at most, if the user gives none
VOCAB_SAMPLE_PAIRS = 5_000_000  # training pairs that the vocabulary is learnt from, at most
_SAMPLED_PIECES, _SAMPLED_LINES = 10, 200  # chunks and lines of each whose sentences are counted


@dataclass(frozen=True)
class PrepareResult:
    """What `prepare` did."""

    out: Path
    langs: str  # source and target language, such as "en-de"
    pairs_read: int  # training pairs
    dropped: dict[str, int]  # training pairs, by rule
    held_out: int  # training pairs that became validation pairs, since none were given
    copies: int  # pairs added because an origin has a weight above 1
    upper_case_copies: int
    title_case_copies: int
    pairs_kept: int  # training pairs with all copies
    origins: tuple[tuple[str, int, int], ...]  # of each: name, training pairs read, training pairs kept with copies
    valid_pairs: int
    test_pairs: int
    src_tokens: int  # of the training pairs kept, without end tokens
    tgt_tokens: int
    unknown_tokens: int  # how many of both are <unk>
    entries_skipped: int  # lines about talks, units without both languages
    mapped_characters: int  # line breaks inside lines, such as CR or U+2028, that became a blank
    vocab_size: int  # special tokens included
    characters_left_out: int  # characters of the training text too rare for a place in the vocabulary
    done_before: bool = False  # the folder held exactly this already
    seconds: float = 0.0

    def __str__(self) -> str:
        rows: list[tuple[str, int, bool]] = [  # label, number, whether to show a 0
            ("training pairs read", self.pairs_read, True),
            ("  entries skipped, not pairs", self.entries_skipped, False),
            *((f"  dropped: {REASONS[name]}", count, False) for name, count in self.dropped.items()),
            ("  held out for validation", self.held_out, False),
            ("  copies by --weight", self.copies, False),
            ("  copies in upper case", self.upper_case_copies, False),
            ("  copies in title case", self.title_case_copies, False),
            ("training pairs kept", self.pairs_kept, True),
            *((f"  {name}, of {read:,} read", kept, True) for name, read, kept in self.origins if self.origins[1:]),
            ("  source tokens", self.src_tokens, True),
            ("  target tokens", self.tgt_tokens, True),
            ("  unknown tokens", self.unknown_tokens, False),
            ("validation pairs", self.valid_pairs, True),
            ("test pairs", self.test_pairs, True),
            ("sub-words in the vocabulary", self.vocab_size, True),
            ("  characters without a sub-word", self.characters_left_out, False),
            ("line breaks in lines, now blanks", self.mapped_characters, False),
        ]
        shown = [(label, number) for label, number, even_zero in rows if number or even_zero]
        width = max(len(label) for label, _ in shown)
        table = "\n".join(f"{label:<{width}}  {number:>13,}" for label, number in shown)
        return f"{self.out} ({self.langs}), {self.seconds:.1f} seconds\n{table}"

    @classmethod
    def from_manifest(cls, out: Path, manifest: Mapping[str, Any]) -> "PrepareResult":
        splits, train = manifest["splits"], manifest["splits"]["train"]
        as_in_manifest = (
            "pairs_read", "dropped", "held_out", "copies", "upper_case_copies", "title_case_copies", "pairs_kept",
            "src_tokens", "tgt_tokens", "unknown_tokens",
        )  # fmt: skip
        return cls(
            out=out,
            langs=f"{manifest['src_lang']}-{manifest['tgt_lang']}",
            **{name: train[name] for name in as_in_manifest},
            origins=tuple((each["name"], each["pairs_read"], each["pairs_kept"]) for each in train["origins"]),
            valid_pairs=splits["valid"]["pairs_kept"] if "valid" in splits else 0,
            test_pairs=splits["test"]["pairs_kept"] if "test" in splits else 0,
            entries_skipped=sum(split["entries_skipped"] for split in splits.values()),
            mapped_characters=sum(split["mapped_characters"] for split in splits.values()),
            vocab_size=manifest["vocab"]["size"],
            characters_left_out=manifest["vocab"]["characters_left_out"],
        )


def run_prepare(options: PrepareOptions) -> PrepareResult:
    """Prepare named corpora, files, or both; an existing folder is never changed."""
    started = time.monotonic()
    plan = make_plan(options)
    if options.out is None:
        logs.notice(f"output: {plan.out} (--out chooses another folder)")
    if (plan.out / MANIFEST).exists():
        result = replace(_check_same(plan), done_before=True)
        remove_leftovers(plan.out)
        logs.notice(f"{plan.out} is up to date: nothing to do")
    else:
        plan.source.fetch()
        with new_folder(plan.out) as folder:
            write_manifest(folder, manifest := prepare_folder(folder, plan))
        result = PrepareResult.from_manifest(plan.out, manifest)
    return replace(result, seconds=time.monotonic() - started)


def _check_same(plan: PreparePlan) -> PrepareResult:
    """Check that an existing folder is what this call would make, and describe it."""
    manifest = PreparedData.load(plan.out).manifest
    new: dict[str, Any] = {"languages": f"{plan.src_lang}-{plan.tgt_lang}", **plan.settings()}
    try:
        old: dict[str, Any] = {"languages": f"{manifest['src_lang']}-{manifest['tgt_lang']}", **manifest["settings"]}
        if not old.get("bpe_dropout", True):  # in data of earlier versions
            del old["bpe_dropout"]
        if new.get("vocab_size") == AUTO:
            new["vocab_size"] = old.get("vocab_size")
        changed = [
            f"{key} {old.get(key, 'none')} instead of {new.get(key, 'none')}"
            for key in dict.fromkeys((*old, *new))
            if old.get(key) != new.get(key)
        ]
        entries = identity_of(manifest["inputs"]), plan.source.identity()
        for split, name in zip(SPLITS, ("training", "validation", "test"), strict=True):
            before, now = ([entry for entry in some if entry["split"] == split] for some in entries)
            changed += [f"different {name} text"] if before != now else []
        if not changed:
            return PrepareResult.from_manifest(plan.out, manifest)
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged_manifest(plan.out, error) from error
    hint = f"give another --out to keep both, or remove {plan.out} to prepare it anew"
    raise DataError(f"{plan.out} was prepared differently: {', '.join(changed)}", hint)


def prepare_folder(folder: Path, plan: PreparePlan) -> dict[str, Any]:
    """Write all files but manifest.json into a new or partly written folder; return the manifest's content."""
    source, config, langs = plan.source, plan.config, (plan.src_lang, plan.tgt_lang)
    depends_on = {"langs": langs, "text": source.identity(), "settings": plan.settings()}
    steps = Steps(folder, {"aiayn_version": __version__, "intermediate_files": 2, **depends_on})
    inputs = source.describe()
    if steps.resumed:
        logs.notice("resuming interrupted work")
    else:
        origins = (*source.train, *source.valid, *source.test)
        check_disk(folder, estimate_disk(origins, processed=config.text.changes_text))
    counts: dict[str, ReadCounts] = {split: ReadCounts() for split in SPLITS}
    scored = _read_scored(plan, counts)
    text = TrainingText(steps, langs, [origin.weight for origin in source.train], config.case_copies, config.seed)
    by_origin = _collect(steps, plan, text, scored)
    counts["train"] = ReadCounts(*map(sum, zip(*map(astuple, by_origin), strict=True)))
    held_out, files = _select(steps, plan, text, scored), names_of(source.train)
    refuse_empty(len(text), files, counts["train"], text.dropped, held_out, trees=config.trees)
    plan = _with_vocab_size(plan, len(text))
    if (vocab := steps.result("vocab")) is None:
        vocab = steps.finish("vocab", _make_vocabs(folder, plan, text), folder.glob("vocab.*"))
    several = _share_of_several(steps, plan, text)
    train, kept = _encode_train(steps, plan, text)
    refuse_empty(train["pairs_kept"], files, counts["train"], text.dropped, held_out, trees=config.trees)
    splits = {"train": train} | {split: _write_scored(folder, split, plan, pairs) for split, pairs in scored.items()}
    for split, description in splits.items():
        read = counts[split]
        description |= {"pairs_read": read.pairs, "mapped_characters": read.mapped, "entries_skipped": read.skipped}
    train |= {"held_out": held_out, "several_sentences": several}
    if held_out:
        splits["valid"]["held_out_of"] = {"split": "train", "seed": config.seed}
    train["dropped"] = all_reasons(sum(text.dropped, Counter[str]()))
    train["origins"] = [
        {
            "pairs_kept": n_kept,
            "name": origin.name,
            "weight": origin.weight,
            "pairs_read": read.pairs,
            "dropped": all_reasons(dropped),
        }
        for origin, read, dropped, n_kept in zip(source.train, by_origin, text.dropped, kept, strict=True)
    ]
    return {
        "aiayn_version": __version__,
        "corpus": plan.corpus,
        "src_lang": plan.src_lang,
        "tgt_lang": plan.tgt_lang,
        "vocab": {**vocab, "sha256": joint_sha256(*load_vocabs(folder))},
        "splits": splits,
        "settings": plan.settings(),
        "inputs": inputs,
    }


def _read_scored(plan: PreparePlan, counts: Mapping[str, ReadCounts]) -> dict[str, Chunk]:
    """Read the validation and test text, if any."""
    read = {split: plan.source.read_scored(split, counts[split]) for split in SPLITS[1:]}
    scored: dict[str, Chunk] = {split: pairs for split, pairs in read.items() if pairs is not None}
    for split, sides in scored.items():
        if any(all(map(is_blank, side)) for side in sides):
            option, what = (f"--{split}-trees", "tree") if plan.config.trees else (f"--{split}", "line with text")
            instead = ": training pairs are then held out" if split == "valid" else ""
            problem = f"{names_of(getattr(plan.source, split))}: no {what}"
            raise DataError(problem, f"give another file, or leave out {option}{instead}")
    return scored


def _collect(steps: Steps, plan: PreparePlan, text: TrainingText, scored: Mapping[str, Chunk]) -> list[ReadCounts]:
    """Read, clean and write down the training text; return the counts of each origin."""
    done = steps.result("text")
    if done is None:
        rules = TextRules(plan.config, plan.src_lang, plan.tgt_lang, ScoredText.of(scored.values()))
        counts = [ReadCounts() for _ in plan.source.train]
        with logs.progress("reading", None, "pairs") as progress:

            def chunks() -> Iterator[tuple[int, Chunk]]:
                for origin, chunk in plan.source.read_train(counts):
                    progress.advance(len(chunk[0]))
                    yield origin, chunk

            text.collect(chunks(), rules, plan.config.text, plan.workers)
        done = steps.finish("text", {"shards": text.n_shards, "counts": list(map(asdict, counts))})
    if text.n_shards < done["shards"]:
        raise damaged(steps.marker(numbered("text", text.n_shards)), "it is missing")
    counts = [ReadCounts(**each) for each in done["counts"]]
    for dropped, each in zip(text.dropped, counts, strict=True):
        dropped["bad_bytes"] = each.bad_bytes
    return counts


def _select(steps: Steps, plan: PreparePlan, text: TrainingText, scored: dict[str, Chunk]) -> int:
    """Hold out validation pairs if none are given, drop repeated pairs; return how many were held out."""
    done = steps.result("selection")
    if done is None:
        held_out: Chunk = [], []
        if "valid" not in scored:
            held_out = text.hold_out(HELD_OUT_PAIRS, HELD_OUT_SHARE, drop_overlap=plan.config.drop_overlap)
            n = len(held_out[0])
            pairs = logs.counted(n, "training pair")
            if n:
                logs.notice(f"no validation text given: {pairs} {'is' if n == 1 else 'are'} held out for validation")
        if plan.config.dedupe:
            text.drop_repeats()
        saved, path = text.save_selection()
        files = _write_text(steps.folder, "valid", plan, held_out) if held_out[0] else []
        done = steps.finish("selection", {**saved, "held_out": len(held_out[0])}, [path, *files])
    else:
        text.restore_selection(done)
    if done["held_out"]:
        src, tgt = (read_file(steps.folder / f"valid.{lang}") for lang in (plan.src_lang, plan.tgt_lang))
        scored["valid"] = src, tgt
    return int(done["held_out"])


def _write_text(folder: Path, split: str, plan: PreparePlan, pairs: Chunk) -> list[Path]:
    paths = [folder / f"{split}.{lang}" for lang in (plan.src_lang, plan.tgt_lang)]
    for path, records in zip(paths, pairs, strict=True):
        with path.open("wb", 1 << 20) as file:
            write_records(file, records)
    return paths


def _with_vocab_size(plan: PreparePlan, n_pairs: int) -> PreparePlan:
    """The plan with the vocabulary size of the recipe that suits so many pairs, unless the user chose one."""
    recipe = choose_recipe(n_pairs, has_gpu=True).name  # the same on every machine
    suitable, size, count = load_recipe(recipe).data.vocab_size, plan.config.vocab_size, logs.counted(n_pairs, "pair")
    if plan.sized_by_text:
        logs.notice(f"vocabulary: up to {suitable:,} sub-words, for {count} (recipe {recipe}); or give --vocab-size N")
        return replace(plan, config=replace(plan.config, vocab_size=suitable), sized_by_text=False)
    if size > 2 * suitable and not plan.vocab and not plan.config.trees:
        logs.notice(
            f"{size:,} sub-words are many for {count}: recipe {recipe} has {suitable:,} (--vocab-size {suitable})"
        )
    return plan


def _make_vocabs(folder: Path, plan: PreparePlan, text: TrainingText) -> dict[str, Any]:
    """Copy the user's vocabulary into the folder, or learn one, or one for each side; describe it."""
    left_out = 0
    if plan.vocab:
        shutil.copyfile(plan.vocab, folder / VOCAB)
        if plan.vocab.name == VOCAB and (tgt_vocab := plan.vocab.with_name(TGT_VOCAB)).exists():
            shutil.copyfile(tgt_vocab, folder / TGT_VOCAB)
    else:
        names = {VOCAB: "source", TGT_VOCAB: "target"} if plan.config.separate_vocabs else {VOCAB: ""}
        counters = [WordCounter() for _ in names]
        with logs.progress("counting words", min(len(text), VOCAB_SAMPLE_PAIRS), "pairs") as progress:
            for piece in text.sample(VOCAB_SAMPLE_PAIRS):
                pairs = piece.load()
                counters[0].add(pairs.src, piece.weight)
                counters[-1].add(pairs.tgt, piece.weight)
                progress.advance(int(piece.taken.sum()))
        for (name, side), words in zip(names.items(), counters, strict=True):
            left_out += learn_vocab(folder / name, side, plan.config, words)
    sizes = [vocab.size for vocab in load_vocabs(folder)]
    by_side = {"src_size": sizes[0], "tgt_size": sizes[1]} if (folder / TGT_VOCAB).exists() else {}
    return {"size": max(sizes), **by_side, "characters_left_out": left_out}


def _share_of_several(steps: Steps, plan: PreparePlan, text: TrainingText) -> float | None:
    """The share of the training pairs whose source has several sentences, from a sample; None for trees."""
    if plan.config.trees:
        return None
    if (done := steps.result("sentences")) is None:
        pieces = [piece for shard in range(text.n_shards) for piece in text.pieces(shard)]
        counts = [
            len(split_sentences(line, plan.src_lang))
            for piece in pieces[:: len(pieces) // _SAMPLED_PIECES + 1]
            for line in piece.load().sample(_SAMPLED_LINES)
        ]
        share = sum(count > 1 for count in counts) / max(len(counts), 1)
        done = steps.finish("sentences", {"several": round(share, 4)})
    return float(done["several"])


def _encode_train(steps: Steps, plan: PreparePlan, text: TrainingText) -> tuple[dict[str, Any], list[int]]:
    """Write the token ids of the training pairs; return the sums over all shards, and the pairs kept by origin."""
    n_origins = len(plan.source.train)
    rules = LengthRules(plan.config.max_length, plan.config.max_ratio)
    todo = [shard for shard in range(text.n_shards) if steps.result(numbered("train", shard)) is None]
    pieces = (piece for shard in todo for piece in text.pieces(shard))
    encoded = encode_pieces(pieces, steps.folder, rules, plan.workers)
    dtype = np.promote_types(*(vocab.dtype for vocab in load_vocabs(steps.folder)))
    with logs.progress("encoding train", len(text), "pairs") as progress:
        for shard, chunks in groupby(encoded, key=lambda pair: pair[0].shard):
            writer = TokenStoreWriter(steps.folder, "train", dtype, shard)
            sums = Counter[str]()
            dropped, kept = [Counter[str]() for _ in range(n_origins)], [0] * n_origins
            for piece, chunk in chunks:
                for _ in range(piece.weight):
                    writer.add(chunk.src, chunk.src_lengths, chunk.tgt, chunk.tgt_lengths)
                kept[piece.origin] += piece.weight * len(chunk.src_lengths)
                dropped[piece.origin].update(too_many_tokens=chunk.too_many_tokens, length_ratio=chunk.length_ratio)
                sums["upper_case_copies"] += piece.weight * chunk.n_upper
                sums["title_case_copies"] += piece.weight * chunk.n_title
                sums["copies"] += (piece.weight - 1) * (len(chunk.src_lengths) - chunk.n_upper - chunk.n_title)
                sums["unknown_tokens"] += piece.weight * chunk.unknown
                progress.advance(int(piece.taken.sum()))
            result = {"totals": {**writer.close(), **sums}, "kept": kept, "dropped": dropped}
            steps.finish(numbered("train", shard), result, writer.paths)
            text.remove(shard)
    totals = Counter(copies=0, upper_case_copies=0, title_case_copies=0)
    all_kept = np.zeros(n_origins, np.int64)
    for shard in range(text.n_shards):
        done = steps.result(numbered("train", shard))
        assert done is not None
        totals.update(done["totals"])
        all_kept += done["kept"]
        for of_origin, here in zip(text.dropped, done["dropped"], strict=True):
            of_origin.update(here)
    return dict(totals), all_kept.tolist()


def _write_scored(folder: Path, split: str, plan: PreparePlan, pairs: Chunk) -> dict[str, Any]:
    """Write the raw text of a scored split, and its token ids; describe it."""
    _write_text(folder, split, plan, pairs)
    process = make_processor(plan.config.text, plan.src_lang, plan.tgt_lang)
    encoded = encode_chunk(load_vocabs(folder), LengthRules(inf, inf), PairsWithCopies(*process(pairs), 0, 0))
    writer = TokenStoreWriter(folder, split, np.promote_types(encoded.src.dtype, encoded.tgt.dtype))
    writer.add(encoded.src, encoded.src_lengths, encoded.tgt, encoded.tgt_lengths)
    return {**writer.close(), "unknown_tokens": encoded.unknown}
