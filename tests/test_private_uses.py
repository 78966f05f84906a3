"""Each use of a private part of a library is listed with its reason; pyproject.toml bounds the versions that fit."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
PACKAGE = CHECKOUT / "aiayn_cli"
# By module and name: the library, and why there is no public way.
USES = {
    ("corpora/test_sets.py", "_get_langpair_allowed_refs"): ("sacrebleu", "the references of a test set by language"),
    ("corpora/test_sets.py", "_get_tarball_filename"): ("sacrebleu", "where sacreBLEU looks for a download of its own"),
    ("corpora/test_sets.py", "_unwrap_wmt21_or_later"): ("sacrebleu", "several references of one WMT file"),
    ("model/cpu/fused_feed_forward.py", "_is_mkldnn_bf16_supported"): ("torch", "whether the next takes bf16"),
    ("model/cpu/fused_feed_forward.py", "_linear_pointwise"): ("torch", "a product with bias and ReLU in one pass"),
    ("model/cpu/packed_attention.py", "_softmax_backward_data"): ("torch", "softmax's gradient in a function of ours"),
    ("score/comet.py", "_aggregate_and_compute"): ("sacrebleu", "what its significance tests call"),
    ("score/comet.py", "_compute_score_from_stats"): ("sacrebleu", "what its significance tests call"),
    ("score/metrics.py", "_aggregate_and_compute"): ("sacrebleu", "a score from the counts of some lines"),
    ("score/metrics.py", "_extract_corpus_statistics"): ("sacrebleu", "counts of each line, for resampling"),
}


def _own_names(trees: dict[str, ast.Module]) -> set[str]:
    """Names with an underscore that the package gives itself: methods, fields, what self, cls and ctx are given."""
    names = set()
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            names.add(node.attr)
    return names


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls", "ctx")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _used(tree: ast.Module, own: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_exit = isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("os", "_exit")  # documented
            if _is_private(node.attr) and node.attr not in own and not is_exit:
                yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            imported = [part for alias in node.names for part in f"{module}.{alias.name}".split(".")]
            if not module.startswith("aiayn_cli"):
                yield from (part for part in imported if _is_private(part))


def test_private_parts_of_libraries_are_used_only_where_listed() -> None:
    trees = {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
    }
    own = _own_names(trees) - {use for _, use in USES}  # a method that takes the place of a private one is a use too
    found = {(name, use) for name, tree in trees.items() for use in _used(tree, own)}
    assert sorted(found) == sorted(USES)


def test_the_versions_of_the_libraries_are_bounded() -> None:
    dependencies = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounded = {line.split(">=")[0] for line in dependencies if "<" in line}
    assert {library for library, _ in USES.values()} <= bounded
