"""The shape of the package, read from its syntax trees: layers, imports, and the one reader of lines."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "aiayn_cli"

# A module imports from rows below its own and from its own group; names in one inner list are siblings that never
# import each other, but for MAY_IMPORT_WITHIN_ROW. A group is a folder, or modules that belong together.
ROWS: list[list[str]] = [
    ["__main__"],
    ["app"],
    ["prepare", "train", "average", "translate", "score", "export"],
    ["model", "parsing", "corpora", "data", "checkpoint", "pages"],
    ["text", "recipe", "device"],
    ["recipe_keys", "errors", "logs", "files", "processes", "special_tokens"],
]
COMMANDS = ROWS[2]
GROUP_OF_MODULE = {
    "command_line": "logs",
}  # modules whose group does not have their own name
MAY_IMPORT_WITHIN_ROW = {
    ("train", "translate"), ("train", "score"), ("average", "translate"), ("average", "score"), ("export", "translate"),
    *((group, "errors") for group in ("recipe_keys", "logs", "files", "processes")), ("processes", "files"),
}  # fmt: skip
LIGHT = {"__main__", "app", "recipe_keys", "errors", "special_tokens", "logs"}  # what --help loads, or may load
LIGHT_THIRD_PARTY = {"typer"}
# By module and what it imports, with reason there.
FUNCTION_LEVEL_ELSEWHERE = {
    ("", "aiayn_cli"), ("__main__", "aiayn_cli"), ("logs", "rich"), ("app", "importlib"), ("pages.page", "jinja2"),
    ("translate.input", "readline"), ("text.languages", "langcodes"),
}  # fmt: skip
ALTERNATIVES = {"train": 5, "average": 3}  # with options that make something else of a command
READS_LINES = "text/lines.py"


@dataclass(frozen=True)
class Import:
    importer: str  # dotted, without the package's name: "data.text"; "" is the package itself
    target: str  # dotted, whole
    function: str  # where it stands: "" at the top of the module
    place: str  # file:line

    @property
    def inside(self) -> str | None:
        """The imported module without the package's name; None for other packages."""
        package, _, rest = self.target.partition(".")
        return rest if package == "aiayn_cli" else None


def modules(root: Path) -> dict[str, Path]:
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


@cache
def imports(root: Path) -> list[Import]:
    known = modules(root)
    found = []
    for name, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, function in _nodes_with_function(tree, ""):
            place = f"{path.relative_to(root)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                found += [Import(name, alias.name, function, place) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{place}: write imports in full, from aiayn_cli"
                for alias in node.names:
                    target = f"{node.module}.{alias.name}"
                    is_module = target.removeprefix("aiayn_cli.") in known
                    found.append(Import(name, target if is_module else str(node.module), function, place))
    return found


def _nodes_with_function(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        yield child, function
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _nodes_with_function(child, getattr(child, "name", "lambda") if is_function else function)


def group(module: str) -> str:
    first = module.split(".")[0]
    return GROUP_OF_MODULE.get(first, first)


def row(module: str) -> int:
    return next((number for number, names in enumerate(ROWS) if group(module) in names), -1)


def wrong_directions(root: Path) -> list[str]:
    faults = [f"{path}: {name} is in no row" for name, path in modules(root).items() if name and row(name) < 0]
    for found in imports(root):
        if not found.inside or group(found.importer) == group(found.inside):
            continue
        importer, target = group(found.importer), group(found.inside)
        if row(found.importer) >= row(found.inside) and (importer, target) not in MAY_IMPORT_WITHIN_ROW:
            faults.append(f"{found.place}: {importer} imports {found.inside}")
    return faults


def cycles(root: Path) -> list[str]:
    graph: dict[str, set[str]] = {name: set() for name in modules(root)}
    for found in imports(root):
        is_lazy = found.importer == ""  # what `from aiayn_cli import NAME` loads on demand
        if found.inside in graph and found.inside != found.importer and not is_lazy:
            graph[found.importer].add(found.inside)
    finished: set[str] = set()
    faults: list[str] = []

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            faults.append(" -> ".join([*path[path.index(name) :], name]))
        elif name not in finished:
            for target in sorted(graph[name]):
                visit(target, [*path, name])
            finished.add(name)

    for name in graph:
        visit(name, [])
    return faults


def is_command(module: str) -> bool:
    return module.split(".")[-1] == "command"


def wrong_function_level_imports(root: Path) -> list[str]:
    faults = []
    for found in imports(root):
        if not found.function or (found.importer, found.target.split(".")[0]) in FUNCTION_LEVEL_ELSEWHERE:
            continue
        if not is_command(found.importer):
            faults.append(f"{found.place}: {found.function} imports {found.target}; only commands may")
        elif not found.target.startswith(f"aiayn_cli.{group(found.importer)}."):
            faults.append(f"{found.place}: {found.function} imports {found.target}, which is not in its folder")
    return faults


def heavy_imports_at_start(root: Path) -> list[str]:
    faults = []
    for found in imports(root):
        top = found.target.split(".")[0]
        is_light = found.inside is not None or top in sys.stdlib_module_names or top in LIGHT_THIRD_PARTY
        if (group(found.importer) in LIGHT or is_command(found.importer)) and not found.function and not is_light:
            faults.append(f"{found.place}: {found.target}")
    return faults


def other_readers_of_lines(root: Path) -> list[str]:
    faults = []
    for path in modules(root).values():
        where = str(path.relative_to(root))
        if where == READS_LINES:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        files = _names_of_files(tree)
        for node in ast.walk(tree):
            place = f"{where}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Attribute) and node.attr in ("splitlines", "readline", "readlines"):
                faults.append(f"{place}: .{node.attr}")
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                faults += [f"{place}: codecs" for name in names if name == "codecs"]
            if isinstance(node, ast.For | ast.comprehension) and _is_file(node.iter, files):
                faults.append(f"{where}:{node.iter.lineno}: for line in {ast.unparse(node.iter)}")
    return faults


def _names_of_files(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and _is_file(node.context_expr, set()) and node.optional_vars is not None:
            names.add(ast.unparse(node.optional_vars))
        if isinstance(node, ast.Assign) and _is_file(node.value, set()):
            names.update(ast.unparse(target) for target in node.targets)
    return names


def _is_file(node: ast.expr, files: set[str]) -> bool:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "enumerate" and node.args:
        return _is_file(node.args[0], files)
    text = ast.unparse(node)
    if isinstance(node, ast.Call):
        function = ast.unparse(node.func)
        return function.split(".")[-1] in ("open", "fdopen", "TextIOWrapper", "open_text_bytes")
    return text in files or text in ("sys.stdin", "sys.stdin.buffer")


CHECKS = [
    wrong_directions,
    cycles,
    wrong_function_level_imports,
    heavy_imports_at_start,
    other_readers_of_lines,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_keeps_its_shape(check: object) -> None:
    assert callable(check)
    assert check(PACKAGE) == []


def test_init_files_are_empty_but_for_the_package_s() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent != PACKAGE:
            assert path.read_text(encoding="utf-8") == "", f"{path} is not empty"
    assert len((PACKAGE / "__init__.py").read_text(encoding="utf-8").split("\n")) < 25


def test_each_command_has_a_folder_and_loads_one_module_of_it() -> None:
    commands = {name.split(".")[0] for name in modules(PACKAGE) if is_command(name)}
    assert commands == set(COMMANDS)
    function_level = [found for found in imports(PACKAGE) if found.function]
    for name in commands:
        loaded = {found.target for found in function_level if found.importer == f"{name}.command"}
        assert len(loaded) <= ALTERNATIVES.get(name, 1), loaded


# ---- the checks themselves find what they are for


@pytest.mark.parametrize(
    ("check", "files", "fault"),
    [
        (wrong_directions, {"data/a.py": "from aiayn_cli.model import b", "model/b.py": ""}, "data imports model.b"),
        (wrong_directions, {"errors.py": "import aiayn_cli.logs", "logs.py": ""}, "errors imports logs"),
        (wrong_directions, {"helpers.py": ""}, "helpers is in no row"),
        (cycles, {"data/a.py": "import aiayn_cli.data.b", "data/b.py": "def f():\n  from aiayn_cli.data.a import x"},
         "data.a -> data.b"),
        (wrong_function_level_imports, {"model/a.py": "class A:\n  def f(self):\n    import math"}, "f imports math"),
        (wrong_function_level_imports, {"train/command.py": "def a():\n  import torch"}, "a imports torch"),
        (heavy_imports_at_start, {"recipe_keys.py": "if 1:\n  from yaml import load"}, "recipe_keys.py:2: yaml"),
        (other_readers_of_lines, {"score/a.py": "x.decode().splitlines()"}, ".splitlines"),
        (other_readers_of_lines, {"score/a.py": "from codecs import open"}, "codecs"),
        (other_readers_of_lines, {"score/a.py": "for i, l in enumerate(sys.stdin.buffer): pass"}, "in enumerate"),
    ],
)  # fmt: skip
def test_a_fault_is_found(tmp_path: Path, check: object, files: dict[str, str], fault: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert callable(check)
    assert any(fault in found for found in check(tmp_path)), check(tmp_path)
