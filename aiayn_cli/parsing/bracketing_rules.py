"""EVALB's parameters: which labels and words do not count, and which are the same."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiayn_cli.errors import DataError, did_you_mean

_SWITCHES = ("DEBUG", "MAX_ERROR")  # of EVALB's own output, without a meaning here
_KEYWORDS = (
    "LABELED", "CUTOFF_LEN", "DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL", "EQ_LABEL", "EQ_WORD",
)  # fmt: skip


@dataclass(frozen=True)
class BracketRules:
    """What EVALB's parameter file says. Defaults: its COLLINS.prm, and the names that treebanks give the outermost
    bracket.

    Attributes:
        labelled: whether labels must agree.
        cutoff: words of the longest sentence in the second table.
        deleted: labels that do not count; of a word: it is taken out with its bracket.
        deleted_for_length: tags of words that the length does not count.
        quote_labels: tags of which one may stand for another in a quotation mark.
        equal_labels, equal_words: pairs that are the same.
    """

    labelled: bool = True
    cutoff: int = 40
    deleted: tuple[str, ...] = ("TOP", "ROOT", "S1", "-NONE-", ",", ":", "``", "''", ".")
    deleted_for_length: tuple[str, ...] = ("-NONE-",)
    quote_labels: tuple[str, ...] = ()
    equal_labels: frozenset[frozenset[str]] = field(default_factory=lambda: frozenset({frozenset({"ADVP", "PRT"})}))
    equal_words: frozenset[frozenset[str]] = frozenset()

    def same_label(self, first: str, second: str) -> bool:
        """Whether two labels are the same."""
        return first == second or frozenset((first, second)) in self.equal_labels

    def same_word(self, first: str, second: str) -> bool:
        """Whether two words are the same."""
        return first == second or frozenset((first, second)) in self.equal_words


def read_rules(records: Iterable[str], name: str) -> BracketRules:
    """Read a parameter file of EVALB.

    Args:
        records: its lines.
        name: for messages.
    Raises:
        DataError: a line that is no parameter, with its number.
    """
    values: dict[str, list[list[str]]] = {keyword: [] for keyword in (*_KEYWORDS, *_SWITCHES)}
    for number, record in enumerate(records, start=1):
        if record.startswith("#") or not record.strip():
            continue
        keyword, *given = record.split()
        if keyword not in values:
            raise DataError(f"{name}:{number}: unknown parameter {keyword}", did_you_mean(keyword, _KEYWORDS))
        if len(given) != (2 if keyword.startswith("EQ_") else 1):
            what = "two values" if keyword.startswith("EQ_") else "one value"
            raise DataError(f"{name}:{number}: {keyword} has {len(given)}", f"give {what}")
        if keyword in ("LABELED", "CUTOFF_LEN") and not given[0].isdecimal():
            raise DataError(f"{name}:{number}: {keyword} is {given[0]}", "write a whole number")
        values[keyword].append(given)

    def names(keyword: str) -> tuple[str, ...]:
        return tuple(given[0] for given in values[keyword])

    return BracketRules(
        labelled=int((*("1",), *names("LABELED"))[-1]) != 0,
        cutoff=int((*("40",), *names("CUTOFF_LEN"))[-1]),
        deleted=names("DELETE_LABEL"),
        deleted_for_length=names("DELETE_LABEL_FOR_LENGTH"),
        quote_labels=names("QUOTE_LABEL"),
        equal_labels=frozenset(map(frozenset, values["EQ_LABEL"])),
        equal_words=frozenset(map(frozenset, values["EQ_WORD"])),
    )
