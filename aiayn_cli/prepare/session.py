"""prepare: text of two languages in, training-ready data out."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.data.prepared import MANIFEST, PreparedData, damaged_manifest, write_manifest
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.clean import REASONS
from aiayn_cli.prepare.options import PrepareOptions
from aiayn_cli.prepare.partial_folder import new_folder, remove_leftovers
from aiayn_cli.prepare.plan import PreparePlan, make_plan
from aiayn_cli.prepare.sources import identity_of
from aiayn_cli.prepare.steps import prepare_folder


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
