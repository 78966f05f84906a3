"""What `prepare` says where no pair is left of the text that it was given."""

from collections import Counter
from collections.abc import Mapping, Sequence

from aiayn_cli.errors import DataError
from aiayn_cli.prepare.clean import REASONS
from aiayn_cli.prepare.pairs import ReadCounts


def refuse_nothing(
    n_pairs: int, counts: ReadCounts, dropped: Sequence[Mapping[str, int]], held_out: int, *, trees: bool
) -> None:
    """Stop where there is nothing to train on.

    Args:
        n_pairs: training pairs that are left.
        counts: what was read.
        dropped: of each origin, by reason.
        held_out: pairs taken for validation.
        trees: whether the pairs are words and trees.
    Raises:
        DataError: no pair is left, with all reasons.
    """
    if n_pairs:
        return
    if not counts.pairs:
        if trees:
            without = f": {counts.skipped:,} have no word" if counts.skipped else ""
            raise DataError(f"the training text holds no tree{without}", "give files with bracketed trees")
        raise DataError("the training text holds no pair", "give files with a sentence a line")
    totals = all_reasons(sum(map(Counter, dropped), Counter[str]()))
    reasons = [f"{count:,} {REASONS[reason]}" for reason, count in totals.items() if count]
    hint = "look into the files; `aiayn prepare --help` shows which rules can be turned off"
    if held_out:
        reasons.append(f"{held_out:,} held out for validation")
        hint = f"give more training text, or validation {'trees with --valid-trees' if trees else 'text with --valid'}"
    raise DataError(f"no training pair is left of {counts.pairs:,} ({', '.join(reasons)})", hint)


def nothing_to_score(split: str, *, trees: bool) -> DataError:
    """What to say of a validation or test file without a pair."""
    if trees:
        return DataError(f"the {split} file holds no tree", f"leave out --{split}-trees, or give another file")
    return DataError(f"the {split} files hold no pair", f"leave out --{split}, or give other files")


def all_reasons(dropped: Mapping[str, int]) -> dict[str, int]:
    """The number of pairs for each reason to drop one, in the order of the rules."""
    return {reason: dropped.get(reason, 0) for reason in REASONS}
