"""The steps of `prepare`, each with a marker, so that interrupted work goes on where it stopped."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aiayn_cli import __version__, logs
from aiayn_cli.config import DataConfig
from aiayn_cli.corpora.corpus import SPLITS
from aiayn_cli.data.prepared import MANIFEST, PreparedData, damaged_manifest, write_manifest
from aiayn_cli.data.store import TokenStoreWriter
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.drop_rules import (
    REASONS,
    LengthRules,
    ScoredText,
    TextRules,
    all_reasons,
    nothing_to_score,
    refuse_empty,
)
from aiayn_cli.prepare.encoding import EncodedChunk, encode_pieces, encode_scored, make_processor
from aiayn_cli.prepare.pairs import Chunk, ReadCounts, TextSpool
from aiayn_cli.prepare.partial_folder import Steps, new_folder, remove_leftovers
from aiayn_cli.prepare.plan import PrepareOptions as PrepareOptions
from aiayn_cli.prepare.plan import PreparePlan, make_plan
from aiayn_cli.prepare.selection import TrainingText
from aiayn_cli.prepare.sources import check_disk, estimate_disk, identity_of, size_text
from aiayn_cli.prepare.text_shards import Piece
from aiayn_cli.prepare.vocab_training import WordCounter, choose_left_out, train_vocab
from aiayn_cli.text.codec import TGT_VOCAB, VOCAB, joint_sha256, load_vocabs
from aiayn_cli.text.lines import read_file
from aiayn_cli.text.vocab import Vocab

HELD_OUT_PAIRS, HELD_OUT_SHARE = 2_000, 0.05  # validation pairs at most, where the user gives none
VOCAB_SAMPLE_PAIRS = 5_000_000  # training pairs that the vocabulary is learnt from, at most
PAIRS_A_SUBWORD = 3  # with fewer, most sub-words are too rare to be learnt well


@dataclass(frozen=True)
class PrepareResult:
    """What `prepare` did.

    Attributes:
        out: the folder with the prepared data.
        langs: source and target language, such as "en-de".
        pairs_read: training pairs that were read.
        dropped: how many of them were dropped, by rule.
        held_out: how many of them became validation pairs, since none were given.
        copies: pairs added because an origin has a weight above 1.
        upper_case_copies: copies added in upper case.
        title_case_copies: copies added with a capital at the start of each word.
        pairs_kept: training pairs: the rest, and all copies.
        origins: of each origin its name, how many of its training pairs were read and how many are kept, copies
            among them.
        valid_pairs: validation pairs.
        test_pairs: test pairs; 0 without test text.
        src_tokens: sub-word tokens of the kept training pairs' source sides, without end tokens.
        tgt_tokens: the same for the target sides.
        unknown_tokens: how many of both are <unk>.
        entries_skipped: what is no pair in the files of a corpus: lines about talks, units without both languages.
        mapped_characters: characters such as CR or U+2028 inside lines of all files that became blanks.
        vocab_size: sub-words, special tokens included.
        characters_left_out: characters of the training text that are too rare to have a place in the vocabulary.
        done_before: nothing was done, since the folder holds exactly this already.
        seconds: how long it took.
    """

    out: Path
    langs: str
    pairs_read: int
    dropped: dict[str, int]
    held_out: int
    copies: int
    upper_case_copies: int
    title_case_copies: int
    pairs_kept: int
    origins: tuple[tuple[str, int, int], ...]
    valid_pairs: int
    test_pairs: int
    src_tokens: int
    tgt_tokens: int
    unknown_tokens: int
    entries_skipped: int
    mapped_characters: int
    vocab_size: int
    characters_left_out: int
    done_before: bool
    seconds: float

    def __str__(self) -> str:
        rows: list[tuple[str, int | None]] = [("training pairs read", self.pairs_read)]
        rows += [("  entries skipped that are no pair", self.entries_skipped)] if self.entries_skipped else []
        rows += [(f"  dropped: {REASONS[name]}", count) for name, count in self.dropped.items() if count]
        rows += [("  held out for validation", self.held_out)] if self.held_out else []
        rows += [("  copies of pairs with a weight", self.copies)] if self.copies else []
        rows += [("  copies in upper case", self.upper_case_copies)] if self.upper_case_copies else []
        rows += [("  copies in title case", self.title_case_copies)] if self.title_case_copies else []
        rows += [("training pairs kept", self.pairs_kept)]
        rows += [(f"  {name}, of {read:,}", kept) for name, read, kept in self.origins if len(self.origins) > 1]
        rows += [("  source tokens", self.src_tokens), ("  target tokens", self.tgt_tokens)]
        rows += [("  unknown tokens", self.unknown_tokens)] if self.unknown_tokens else []
        rows += [("validation pairs", self.valid_pairs), ("test pairs", self.test_pairs)]
        rows += [("sub-words in the vocabulary", self.vocab_size)]
        rows += [("  characters left out", self.characters_left_out)] if self.characters_left_out else []
        rows += [("characters mapped to a blank", self.mapped_characters)] if self.mapped_characters else []
        width = max(len(label) for label, _ in rows)
        table = "\n".join(f"{label:<{width}}  {count:>13,}" for label, count in rows)
        return f"{self.out} ({self.langs}), {self.seconds:.1f} seconds\n{table}"

    @classmethod
    def from_manifest(
        cls, out: Path, manifest: Mapping[str, Any], *, done_before: bool, seconds: float
    ) -> "PrepareResult":
        splits = manifest["splits"]
        train = splits["train"]
        return cls(
            out=out,
            langs=f"{manifest['src_lang']}-{manifest['tgt_lang']}",
            pairs_read=train["pairs_read"],
            dropped=dict(train["dropped"]),
            held_out=train["held_out"],
            copies=train["copies"],
            upper_case_copies=train["upper_case_copies"],
            title_case_copies=train["title_case_copies"],
            origins=tuple((each["name"], each["pairs_read"], each["pairs_kept"]) for each in train["origins"]),
            pairs_kept=train["pairs_kept"],
            valid_pairs=splits["valid"]["pairs_kept"] if "valid" in splits else 0,
            test_pairs=splits["test"]["pairs_kept"] if "test" in splits else 0,
            src_tokens=train["src_tokens"],
            tgt_tokens=train["tgt_tokens"],
            unknown_tokens=train["unknown_tokens"],
            entries_skipped=sum(split["entries_skipped"] for split in splits.values()),
            mapped_characters=sum(split["mapped_characters"] for split in splits.values()),
            vocab_size=manifest["vocab"]["size"],
            characters_left_out=manifest["vocab"]["characters_left_out"],
            done_before=done_before,
            seconds=seconds,
        )


def run_prepare(options: PrepareOptions) -> PrepareResult:
    """Prepare named corpora, files, or both together.

    Raises:
        AiaynError: what the user can fix; an existing folder is never changed.
    """
    started = time.monotonic()
    plan = make_plan(options)
    if options.out is None:
        logs.notice(f"writing to {plan.out} (--out chooses another folder)")
    if (plan.out / MANIFEST).exists():
        result = _check_same(plan, started)
        remove_leftovers(plan.out)
        logs.notice(f"{plan.out} holds exactly this already; nothing to do")
        return result
    plan.source.fetch()
    with new_folder(plan.out) as folder:
        manifest = prepare_folder(folder, plan)
        write_manifest(folder, manifest)
    return PrepareResult.from_manifest(plan.out, manifest, done_before=False, seconds=time.monotonic() - started)


def _check_same(plan: PreparePlan, started: float) -> PrepareResult:
    """Make sure that an existing folder is what this call would make, and report it."""
    manifest = PreparedData.load(plan.out).manifest
    new: dict[str, Any] = {
        "languages": f"{plan.src_lang}-{plan.tgt_lang}",
        "text": plan.source.identity(),
        **plan.settings(),
    }
    try:
        old: dict[str, Any] = {
            "languages": f"{manifest['src_lang']}-{manifest['tgt_lang']}",
            "text": identity_of(manifest["inputs"]),
            **{key: value for key, value in manifest["settings"].items() if key != "bpe_dropout" or value},
        }  # bpe_dropout: in data of earlier versions
        changed = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
        if not changed:
            seconds = time.monotonic() - started
            return PrepareResult.from_manifest(plan.out, manifest, done_before=True, seconds=seconds)
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged_manifest(plan.out, error) from error
    both = {key for key in changed if key in old and key in new and key != "text"}
    what = ", ".join(f"{key} {old[key]} and not {new[key]}" if key in both else key for key in changed)
    hint = "remove the folder, or give another --out; nothing was changed"
    raise DataError(f"{plan.out} holds data prepared otherwise ({what})", hint)


def prepare_folder(folder: Path, plan: PreparePlan) -> dict[str, Any]:
    """Write all files but manifest.json, and give its content.

    Args:
        folder: where to; may hold what an interrupted call did.
        plan: what is to be done.
    Raises:
        DataError: the text cannot be used, or nothing is left of it.
    """
    langs = plan.src_lang, plan.tgt_lang
    depends_on = {"langs": langs, "text": plan.source.identity(), "settings": plan.settings()}
    steps = Steps(folder, {"aiayn_version": __version__, **depends_on})
    inputs = plan.source.describe()
    if steps.resumed:
        logs.notice("going on where an earlier call stopped")
    else:
        origins = (*plan.source.train, *plan.source.valid, *plan.source.test)
        needed = estimate_disk(origins, processed=plan.config.text.changes_text)
        logs.detail(f"the work takes about {size_text(needed)} of disk, the result among it")
        check_disk(folder, needed)
    counts: dict[str, ReadCounts] = {split: ReadCounts() for split in SPLITS}
    scored = _read_scored(plan, counts)
    weights = [origin.weight for origin in plan.source.train]
    text = TrainingText(steps, langs, weights, plan.config.case_copies, plan.config.seed)
    collected = _collect(steps, plan, text, scored, counts["train"])
    selected = _select(steps, plan, text, scored)
    refuse_empty(len(text), counts["train"], text.dropped, selected["held_out"], trees=plan.config.trees)
    vocab = steps.result("vocab")
    if vocab is None:
        vocab = steps.finish("vocab", _make_vocabs(folder, plan, text), folder.glob("vocab.*"))
    by_origin, train = _encode_train(steps, plan, text)
    refuse_empty(train["pairs_kept"], counts["train"], text.dropped, selected["held_out"], trees=plan.config.trees)
    splits = {"train": train}
    for split, pairs in scored.items():
        splits[split] = _write_scored(folder, split, plan, pairs)
    for split, description in splits.items():
        description |= {"pairs_read": counts[split].pairs, "mapped_characters": counts[split].mapped}
        description |= {"entries_skipped": counts[split].skipped}
    train["held_out"] = selected["held_out"]
    if selected["held_out"]:
        splits["valid"]["held_out_of"] = {"split": "train", "seed": plan.config.seed}
    for origin, kept, read, dropped in zip(plan.source.train, by_origin, collected["read"], text.dropped, strict=True):
        kept |= {"name": origin.name, "weight": origin.weight, "pairs_read": read, "dropped": all_reasons(dropped)}
    train["dropped"] = all_reasons(sum(text.dropped, Counter[str]()))
    train["origins"] = by_origin
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
    """Read the validation and test text that there is."""
    scored: dict[str, Chunk] = {}
    for split in SPLITS[1:]:
        pairs = plan.source.scored(split, counts[split])
        if pairs is not None:
            if not pairs[0]:
                raise nothing_to_score(split, trees=plan.config.trees)
            scored[split] = pairs
    return scored


def _collect(
    steps: Steps, plan: PreparePlan, text: TrainingText, scored: Mapping[str, Chunk], counts: ReadCounts
) -> dict[str, Any]:
    """Read, clean and write down the training text; give the pairs that were read of each origin."""
    done = steps.result("text")
    if done is not None:
        text.take_up_all(done["parts"])
        for name, value in done["counts"].items():
            setattr(counts, name, value)
    else:
        rules = TextRules(plan.config, plan.src_lang, plan.tgt_lang, ScoredText(scored.values()))
        processing = (make_processor, (plan.config.text, plan.src_lang, plan.tgt_lang))
        read, bad_bytes = [0] * len(plan.source.train), [0] * len(plan.source.train)
        chunks = _count_by_origin(plan, counts, read, bad_bytes)
        text.collect(chunks, rules, processing if plan.config.text.changes_text else None, plan.workers)
        content = {"parts": text.n_parts, "counts": asdict(counts), "read": read, "bad_bytes": bad_bytes}
        done = steps.finish("text", content)
    for dropped, n in zip(text.dropped, done["bad_bytes"], strict=True):
        dropped["bad_bytes"] = n
    return done


def _count_by_origin(
    plan: PreparePlan, counts: ReadCounts, read: list[int], bad_bytes: list[int]
) -> Iterator[tuple[int, Chunk]]:
    with logs.progress("reading", None, "pairs") as progress:
        before = 0, 0
        for number, chunk in plan.source.read_train(counts):
            read[number] += counts.pairs - before[0]
            bad_bytes[number] += counts.bad_bytes - before[1]
            progress.advance(counts.pairs - before[0])
            before = counts.pairs, counts.bad_bytes
            yield number, chunk


def _select(steps: Steps, plan: PreparePlan, text: TrainingText, scored: dict[str, Chunk]) -> dict[str, Any]:
    """Take out validation pairs where none are given, and repeated pairs."""
    spool = TextSpool(steps.folder, "valid", plan.src_lang, plan.tgt_lang)
    done = steps.result("selection")
    if done is None:
        held_out: Chunk = [], []
        if "valid" not in scored:
            held_out = text.hold_out(HELD_OUT_PAIRS, HELD_OUT_SHARE, drop_overlap=plan.config.drop_overlap)
            n = len(held_out[0])
            pairs = "1 training pair is" if n == 1 else f"{n:,} training pairs are"
            logs.notice(f"no validation text given: {pairs} held out for it")
        if plan.config.dedupe:
            text.drop_repeats()
        saved, files = text.save_selection()
        if held_out[0]:
            spool.write([held_out])
            files += [spool.src, spool.tgt]
        done = steps.finish("selection", {**saved, "held_out": len(held_out[0])}, files)
    else:
        text.restore_selection(done)
    if done["held_out"]:
        scored["valid"] = read_file(spool.src), read_file(spool.tgt)
    return done


def _make_vocabs(folder: Path, plan: PreparePlan, text: TrainingText) -> dict[str, Any]:
    """Put the vocabulary into the folder, the user's or a new one, or one for each side, and describe it."""
    names = (VOCAB, TGT_VOCAB) if plan.config.separate_vocabs else (VOCAB,)
    left_out = 0
    if plan.vocab:
        shutil.copyfile(plan.vocab, folder / VOCAB)
        if plan.vocab.name == VOCAB and (tgt_vocab := plan.vocab.with_name(TGT_VOCAB)).exists():
            shutil.copyfile(tgt_vocab, folder / TGT_VOCAB)
    else:
        sides = ("source", "target") if plan.config.separate_vocabs else ("",)
        for name, side, words in zip(names, sides, _count_words(plan, text, n_vocabs=len(names)), strict=True):
            left_out += _learn_vocab(folder / name, side, plan.config, words, len(text))
    sizes = [vocab.size for vocab in load_vocabs(folder)]
    by_side = {"src_size": sizes[0], "tgt_size": sizes[1]} if (folder / TGT_VOCAB).exists() else {}
    return {"size": max(sizes), **by_side, "characters_left_out": left_out}


def _count_words(plan: PreparePlan, text: TrainingText, n_vocabs: int) -> list[WordCounter]:
    """Count the words of all training pairs, or of a sample, for both sides together or for each."""
    counters = [WordCounter() for _ in range(n_vocabs)]
    n_pairs = min(len(text), VOCAB_SAMPLE_PAIRS)
    with logs.progress("counting words", n_pairs, "pairs") as progress:
        for piece in text.sample(VOCAB_SAMPLE_PAIRS):
            pairs = piece.load()
            counters[0].add(pairs.src, piece.weight)
            counters[-1].add(pairs.tgt, piece.weight)
            progress.advance(int(piece.taken.sum()))
    return counters


def _learn_vocab(path: Path, side: str, config: DataConfig, words: WordCounter, n_pairs: int) -> int:
    """Learn a vocabulary from words, say what is special about it, and give how many characters it goes without.

    Args:
        path: of its file.
        side: "source" or "target"; empty for a joint one.
        config: what is wanted.
        words: of the text.
        n_pairs: pairs of the text.
    """
    counts = words.words()
    text = " ".join(filter(None, ("the", side, "text")))
    logs.detail(f"learning sub-words from {len(counts):,} different words; {words.forgotten:,} rare ones left out")
    path.write_bytes(
        train_vocab(
            counts,
            config.vocab_size,
            config.vocab_type,
            byte_fallback=config.byte_fallback,
            mixed_scripts=config.trees and side != "source",
        )
    )
    left_out, share = choose_left_out(counts, config.vocab_size, byte_fallback=config.byte_fallback)
    size = Vocab.load(path).size
    if left_out:
        fate = "are written as bytes" if config.byte_fallback else "become <unk> (see data.byte_fallback)"
        logs.notice(f"{len(left_out):,} rare characters, {100 * share:.2g} % of {text}, have no sub-word: they {fate}")
    if size < config.vocab_size:
        logs.notice(f"{text} has only {size:,} sub-words, so the vocabulary has that many, not {config.vocab_size:,}")
    elif n_pairs < PAIRS_A_SUBWORD * size:
        logs.notice(f"{size:,} sub-words are many for {n_pairs:,} pairs; fewer may do better (--vocab-size)")
    return len(left_out)


def _encode_train(steps: Steps, plan: PreparePlan, text: TrainingText) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the token ids of the training pairs, a shard for each part; describe each origin, and all together."""
    rules = LengthRules(plan.config.max_length, plan.config.max_ratio)
    dtype = np.promote_types(*(vocab.dtype for vocab in load_vocabs(steps.folder)))
    todo = [part for part in range(text.n_parts) if steps.result(_shard_name(part)) is None]
    pieces = (piece for part in todo for piece in text.pieces(part))
    encoded = encode_pieces(pieces, steps.folder, rules, plan.workers)
    with logs.progress("encoding train", len(text), "pairs") as progress:
        for part in range(text.n_parts):
            if part in todo:
                writer = TokenStoreWriter(steps.folder, "train", dtype, shard_pairs=1 << 62, first_shard=part)
                shard = _Shard(len(plan.source.train))
                for _ in text.pieces(part):
                    piece, chunk = next(encoded)
                    for _ in range(piece.weight):
                        writer.add(chunk.src, chunk.src_lengths, chunk.tgt, chunk.tgt_lengths)
                    shard.add(piece, chunk)
                    progress.advance(int(piece.taken.sum()))
                writer.close()
                steps.finish(_shard_name(part), shard.describe(writer), writer.paths)
            text.remove(part)
    return _sum_up(steps, text)


def _sum_up(steps: Steps, text: TrainingText) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    origins: list[Counter[str]] = [Counter() for _ in text.dropped]
    train: Counter[str] = Counter()
    for part in range(text.n_parts):
        shard = steps.result(_shard_name(part))
        assert shard is not None
        for total, of_origin in zip(origins, shard.pop("origins"), strict=True):
            total.update(of_origin)
        for dropped, of_origin in zip(text.dropped, shard.pop("dropped"), strict=True):
            dropped.update(of_origin)
        train.update(shard)
    added = dict.fromkeys(("copies", "upper_case_copies", "title_case_copies"), 0)
    return [{"pairs_kept": 0, **of_origin} for of_origin in origins], {**added, **train}


class _Shard:
    """What is counted while a shard is written."""

    def __init__(self, n_origins: int) -> None:
        self._totals: Counter[str] = Counter()
        self._dropped: list[Counter[str]] = [Counter() for _ in range(n_origins)]
        self._origins: list[Counter[str]] = [Counter() for _ in range(n_origins)]

    def add(self, piece: Piece, chunk: EncodedChunk) -> None:
        self._dropped[piece.origin]["too_many_tokens"] += chunk.too_many_tokens
        self._dropped[piece.origin]["length_ratio"] += chunk.length_ratio
        self._origins[piece.origin]["pairs_kept"] += piece.weight * chunk.n_pairs
        self._totals["upper_case_copies"] += piece.weight * chunk.n_upper
        self._totals["title_case_copies"] += piece.weight * chunk.n_title
        self._totals["copies"] += (piece.weight - 1) * (chunk.n_pairs - chunk.n_upper - chunk.n_title)
        self._totals["unknown_tokens"] += piece.weight * chunk.unknown

    def describe(self, writer: TokenStoreWriter) -> dict[str, Any]:
        tokens = {f"{side}_tokens": n for side, n in writer.n_tokens.items()}
        return {
            "pairs_kept": writer.n_pairs,
            **tokens,
            **self._totals,
            "dropped": self._dropped,
            "origins": self._origins,
        }


def _shard_name(part: int) -> str:
    return f"train-{part:05d}"


def _write_scored(folder: Path, split: str, plan: PreparePlan, pairs: Chunk) -> dict[str, Any]:
    """Write the raw text of a split that is scored, and its token ids, and describe it."""
    TextSpool(folder, split, plan.src_lang, plan.tgt_lang).write([pairs])
    encoded = encode_scored(folder, make_processor(plan.config.text, plan.src_lang, plan.tgt_lang)(pairs))
    writer = TokenStoreWriter(folder, split, np.promote_types(encoded.src.dtype, encoded.tgt.dtype))
    writer.add(encoded.src, encoded.src_lengths, encoded.tgt, encoded.tgt_lengths)
    writer.close()
    tokens = {f"{side}_tokens": n for side, n in writer.n_tokens.items()}
    return {"pairs_kept": writer.n_pairs, **tokens, "unknown_tokens": encoded.unknown}
