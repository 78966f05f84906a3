"""`score --brackets` beside EVALB itself, and what a tree costs that needs no parser.

python tests/benchmarks/brackets.py --sample evalb-sample      sample.gld, sample.tst, sample.rsl and *.prm of EVALB
python tests/benchmarks/brackets.py --evalb ./evalb            random trees, compared sentence by sentence
python tests/benchmarks/brackets.py --trees train.trees test.trees      baselines
"""

import argparse
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from aiayn_cli.parsing.evalb import BracketRules, BracketScore, SentenceScore, read_rules, score_brackets, summarise
from aiayn_cli.parsing.tree_text import Close, Event, Leaf, Open, Tree, read_trees, reduce_tree, to_text
from aiayn_cli.text.lines import read_file

EVALB_COLUMNS = (1, 2, 5, 6, 7, 8, 9, 10)  # length, status, matched, gold, test, crossing, words, tags
STOP = Leaf(".", ".")


def compare_sample(folder: Path) -> bool:
    """Compare with what EVALB's authors ship, and say how the other parameter file does."""
    same = True
    gold, test = read_file(folder / "sample.gld"), read_file(folder / "sample.tst")
    for path in sorted(folder.glob("*.prm")):
        rules = read_rules(read_file(path), str(path))
        scores = score_brackets(gold, test, rules)
        everything = summarise(scores)
        short = summarise([score for score in scores if score.length <= rules.cutoff])
        print(f"{path.name}: R {everything.recall:.2f} P {everything.precision:.2f} F {everything.f1:.2f}", end="; ")
        print(f"at most {rules.cutoff} words R {short.recall:.2f} P {short.precision:.2f} F {short.f1:.2f}")
        if path.stem == "sample":
            lines = read_file(folder / "sample.rsl")
            summaries = [figures(lines, "-- All --"), figures(lines, "-- len<=40 --")]
            same = all(map(agrees, rows(lines, len(gold)), scores))
            same &= all(
                dict(written(s)).items() >= found.items()
                for s, found in zip((everything, short), summaries, strict=True)
            )
            print(f"  {len(gold)} lines and both summaries equal sample.rsl: {same}")
    return same


def compare_random(program: Path, count: int = 3_000, seeds: int = 4) -> bool:
    """Compare with the compiled program on random pairs of trees, some of them faulty."""
    different = 0
    parameters = "DELETE_LABEL TOP\nDELETE_LABEL -NONE-\nDELETE_LABEL ,\nDELETE_LABEL ''\nDELETE_LABEL .\n"
    parameters += "DELETE_LABEL_FOR_LENGTH -NONE-\nQUOTE_LABEL ''\nQUOTE_LABEL POS\nEQ_LABEL ADVP PRT\nEQ_WORD a b\n"
    rules = read_rules(parameters.split("\n"), "random.prm")
    for seed in range(seeds):
        chance = random.Random(seed)
        pairs = [random_pair(chance) for _ in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("prm", "gold", "test")]
            contents = (parameters, *("".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1)))
            for path, content in zip(paths, contents, strict=True):
                path.write_text(content)
            arguments = [str(program.resolve()), "-p", *map(str, paths[:1]), "-e", "1000000", *map(str, paths[1:])]
            lines = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split("\n")
        scores = score_brackets([gold for gold, _ in pairs], [test for _, test in pairs], rules)
        for row, score in zip(rows(lines, count), scores, strict=True):
            different += not agrees(row, score)
        summary = figures(lines, "-- All --")
        different += summary != {name: value for name, value in written(summarise(scores)) if name in summary}
    print(f"{seeds * count:,} random sentences and {seeds} summaries beside {program}: {different} different")
    return not different


def show_baselines(train: Path, test: Path) -> None:
    """Print how trees do that no parser is needed for."""
    rules = BracketRules()
    gold = [reduce_tree(tree, functions=False) for tree in read_trees(read_file(test), str(test))]
    counts = Counter(len([1 for event in tree if isinstance(event, Leaf)]) for tree in gold)
    print(f"{test}: {len(gold):,} trees, {sum(n * times for n, times in counts.items()):,} words, with their own tags")
    inner = inner_label(train)
    started = time.perf_counter()
    for name, make in (
        ("flat (one S)", flat),
        (f"right-branching (S, then {inner})", lambda t: branch_right(t, inner)),
    ):
        scores = score_brackets([to_text(tree) for tree in gold], [to_text(make(tree)) for tree in gold], rules)
        unlabelled = score_brackets(
            [to_text(tree) for tree in gold], [to_text(make(tree)) for tree in gold], BracketRules(labelled=False)
        )
        s, u = summarise(scores), summarise(unlabelled)
        print(f"  {name:<36} R {s.recall:5.2f}  P {s.precision:5.2f}  F1 {s.f1:5.2f}   unlabelled F1 {u.f1:5.2f}")
    print(f"  {4 * len(gold) / (time.perf_counter() - started):,.0f} sentences scored a second")


def inner_label(train: Path) -> str:
    """The commonest label of constituents that reach from inside a sentence to its end (a full stop aside)."""
    found: Counter[str] = Counter()
    for tree in read_trees(read_file(train), str(train)):
        events = list(reduce_tree(tree, functions=False))[1:-1]
        while events and (isinstance(events[-1], Close) or (isinstance(events[-1], Leaf) and events[-1].tag in ".:")):
            events.pop()
        open_labels: list[tuple[str, int]] = []
        seen = 0
        for event in events:
            match event:
                case Open(label):
                    open_labels.append((label, seen))
                case Leaf():
                    seen += 1
                case Close():
                    open_labels.pop()
        found.update(label for label, start in open_labels if start)
    return found.most_common(1)[0][0]


def flat(tree: Tree) -> Tree:
    """All words in one S."""
    return (Open("TOP"), Open("S"), *(event for event in tree if isinstance(event, Leaf)), Close(), Close())


def branch_right(tree: Tree, inner: str) -> Tree:
    """Each word beside what follows it; a full stop stays outside."""
    leaves = [event for event in tree if isinstance(event, Leaf)]
    last = [leaves.pop()] if len(leaves) > 1 and leaves[-1].tag == STOP.tag else []
    events: list[Event] = [Open("TOP"), Open("S")]
    for i, leaf in enumerate(leaves):
        if 0 < i < len(leaves) - 1:
            events.append(Open(inner))
        events.append(leaf)
    events += [Close()] * max(len(leaves) - 2, 0)
    return (*events, *last, Close(), Close())


def random_pair(chance: random.Random) -> tuple[str, str]:
    """A tree and another one over nearly the same words."""
    tags = ("NN", "VB", ",", ".", "''", "POS", "-NONE-", "DT", "NN-X")
    leaves = [(chance.choice(tags), chance.choice("abc'\"/")) for _ in range(chance.randint(1, 9))]
    others = [
        (chance.choice(tags) if chance.random() < 0.1 else tag, "c" if chance.random() < 0.03 else word)
        for tag, word in leaves
    ]
    test = random_tree(chance, others)
    fault = chance.random()
    if fault < 0.03 and test.endswith("))"):
        test = test[:-1]
    elif fault < 0.06:
        test = test + ")"
    elif fault < 0.08:
        test = ""
    elif fault < 0.11:
        test = " ".join(random_tree(chance, others[i : i + 2]) for i in range(0, len(others), 2))
    return random_tree(chance, leaves), test


def random_tree(chance: random.Random, leaves: Sequence[tuple[str, str]], depth: int = 0) -> str:
    """A tree over words with tags."""
    if len(leaves) == 1 and (depth > 4 or chance.random() < 0.6):
        return f"({leaves[0][0]} {leaves[0][1]})"
    n = chance.randint(1, min(3, len(leaves)))
    cuts = sorted(chance.sample(range(1, len(leaves)), n - 1)) if n > 1 else []
    parts = [leaves[start:end] for start, end in zip([0, *cuts], [*cuts, len(leaves)], strict=True)]
    label = chance.choice(("S", "NP", "VP", "NP-SBJ", "ADVP", "PRT", "TOP", "NP=2", "-NONE-", "X-", "PP|A"))
    return f"({label} {' '.join(random_tree(chance, part, depth + 1) for part in parts)})"


def rows(lines: Sequence[str], count: int) -> list[list[int]]:
    """Read the table of sentences that EVALB prints."""
    start = next(number for number, line in enumerate(lines) if line.startswith("===")) + 1
    return [[int(line.split()[column]) for column in EVALB_COLUMNS] for line in lines[start : start + count]]


def agrees(row: list[int], score: SentenceScore) -> bool:
    """Whether EVALB's line says the same; of a sentence that it does not count it may print more than zeros."""
    found = [
        score.length, score.status, score.matched, score.gold, score.test, score.crossing, score.words, score.tags,
    ]  # fmt: skip
    return row[:2] == found[:2] if score.status else row == found


def figures(lines: Sequence[str], head: str) -> dict[str, str]:
    """Read a summary that EVALB prints; older versions have no F."""
    start = lines.index(head) + 1
    pairs = (line.split("=") for line in lines[start : start + 12] if "=" in line)
    return {pair[0].strip(): pair[1].strip() for pair in pairs if not pair[1].startswith("=")}


def written(summary: BracketScore) -> list[tuple[str, str]]:
    """Write ours as EVALB writes its own."""
    return [(name, f"{value}" if isinstance(value, int) else f"{value:.2f}") for name, value in summary.rows()]


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=Path, metavar="DIR")
    parser.add_argument("--evalb", type=Path, metavar="PROGRAM")
    parser.add_argument("--trees", type=Path, nargs=2, metavar=("TRAIN", "TEST"))
    options = parser.parse_args()
    if not (options.sample or options.evalb or options.trees):
        parser.print_help()
    same = True
    if options.sample:
        same &= compare_sample(options.sample)
    if options.evalb:
        same &= compare_random(options.evalb)
    if options.trees:
        show_baselines(*options.trees)
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
