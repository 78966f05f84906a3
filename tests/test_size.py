"""The size of the package's parts: parameters and lines of functions, entries of folders, names of classes."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "aiayn_cli"
MOST_PARAMETERS, MOST_LINES, MOST_ENTRIES = 8, 80, 25
# By module and function, each with its reason; commands list the options that users type.
LONG_FUNCTIONS: dict[str, str] = {}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_functions_are_short_and_take_few_parameters() -> None:
    found = []
    for name, tree in modules():
        if name.endswith("command.py"):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or f"{name}:{node.name}" in LONG_FUNCTIONS:
                continue
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parameters = sum(argument.arg not in ("self", "cls") for argument in arguments)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if parameters > MOST_PARAMETERS or lines > MOST_LINES:
                found.append(f"{name}:{node.name}: {parameters} parameters, {lines} lines")
    assert found == []


def test_no_folder_shows_more_than_a_reader_takes_in() -> None:
    folders = (path for path in PACKAGE.rglob("*") if path.is_dir() and path.name != "__pycache__")
    for folder in (PACKAGE, *folders):
        entries = [path.name for path in folder.iterdir() if path.name != "__pycache__"]
        assert len(entries) <= MOST_ENTRIES, f"{folder.relative_to(PACKAGE.parent)} has {len(entries)} entries"


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for _, tree in modules()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []
