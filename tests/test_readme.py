"""The README's own commands run, word for word, at reduced size; and it names what is there.

Blocks marked `sh` are run. A block marked `bash` installs (a fresh machine does that in `.ci/run`, through make).
"""

import re
from pathlib import Path

import pytest
from own_text import blocks, run_line, write_own_text

CHECKOUT = Path(__file__).parent.parent
PAGE = CHECKOUT / "README.md"
README = PAGE.read_text(encoding="utf-8")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with train.en, train.de and so on."""
    write_own_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(block: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return "".join(run_line(line, monkeypatch) for line in block.split("\n"))


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def test_the_demo_s_commands_run_from_corpus_to_score(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = next(block for block in blocks(PAGE) if "prepare demo" in block)
    verbs = [line.split()[1] for line in demo.split("\n") if line]
    assert verbs == ["prepare", "train", "average", "translate", "score"]
    out = run(demo, monkeypatch)
    assert re.search(r"BLEU.* = [0-9.]+", out)
    assert "|tok:13a|" in out
    assert lines_of(work / "test.hyp") == lines_of(work / "prepared/demo/test.en") > 100


def test_the_commands_for_own_text_run_and_keep_every_line(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run(next(block for block in blocks(PAGE) if "--train train.en train.de" in block), monkeypatch)
    assert re.search(r"BLEU.* = [0-9.]+", out)
    assert lines_of(work / "test.hyp") == 6
    # Its model is what the lines of Python translate with.
    exec(blocks(PAGE, "python")[0], {})


def test_no_other_command_of_the_readme_goes_without_a_test() -> None:
    assert len(blocks(PAGE)) == 2
    assert not re.findall(r"^```(?!sh$|bash$|python$)\w+$", README, flags=re.MULTILINE)


def test_the_demo_of_the_readme_is_what_make_demo_runs() -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\ndemo:")[2].partition("\n\n")[0]
    of_make = [line.split("aiayn ")[1] for line in recipe.split("\n") if "/aiayn " in line]
    demo = next(block for block in blocks(PAGE) if "prepare demo" in block)
    of_readme = [line.removeprefix("aiayn ") for line in demo.split("\n") if line]
    assert [line.replace("runs/demo.hyp", "test.hyp") for line in of_make] == of_readme


def test_the_tree_names_every_module_and_folder() -> None:
    tree = README.partition("## The code")[2]
    for path in (CHECKOUT / "aiayn_cli").iterdir():
        if path.name.startswith("__") or (path.is_dir() and not list(path.glob("*.py"))):
            continue
        assert f"{path.name}{'/' if path.is_dir() else ''}" in tree, f"the README's tree lacks {path.name}"


def test_the_table_of_recipes_names_each_recipe() -> None:
    for path in (CHECKOUT / "recipes").glob("*.yaml"):
        assert f"`{path.stem}`" in README, f"the README does not name the recipe {path.stem}"
