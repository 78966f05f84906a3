"""The README's own commands run, word for word, at reduced size; and it names what is there.

Blocks marked `sh` are run. A block marked `bash` installs (a fresh machine does that in `.ci/run`, through make).
"""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.dataset import DATASETS

from aiayn_cli.app import main
from aiayn_cli.corpora.named_corpora import find_corpus

CHECKOUT = Path(__file__).parent.parent
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")

# What is added to each command so that it ends in seconds: a network of a few thousand weights, a dozen updates.
SMALLER = {
    "train": [
        *("--device", "cpu", "--set", "model.n_encoder_layers=1", "--set", "model.n_decoder_layers=1"),
        *("--set", "model.d_model=16", "--set", "model.d_ff=24", "--set", "model.n_heads=2"),
        *("--set", "model.d_k=5", "--set", "model.d_v=7", "--set", "training.batch_tokens=300"),
        *("--set", "training.max_updates=12", "--set", "training.save_every_steps=2"),
        *("--set", "training.validate_every_saves=3", "--set", "training.validation_bleu_pairs=3"),
    ],
    "translate": ["--device", "cpu", "--beam", "1", "--max-extra", "1"],
}
PAIRS = [
    (f"{who} {sees} the {thing} number {n}.", f"{wer} {sieht} {was} Nummer {n}.")
    for who, wer in (("Anna", "Anna"), ("the girl", "das Mädchen"), ("my friend", "mein Freund"))
    for sees, sieht in (("sees", "sieht"), ("hears", "hört"), ("finds", "findet"))
    for thing, was in (("house", "das Haus"), ("train", "den Zug"), ("clock", "die Uhr"))
    for n in range(1, 15)
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


class Run:
    """Runs a block's commands in a folder with train.en, train.de and so on, each with what SMALLER adds to it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work, self._monkeypatch = folder, monkeypatch
        monkeypatch.chdir(folder)
        for split, pairs in (("train", PAIRS[:-17]), ("valid", PAIRS[-17:-6]), ("test", PAIRS[-6:])):
            for language, texts in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
                (folder / f"{split}.{language}").write_text("".join(f"{text}\n" for text in texts))

    def __call__(self, script: str) -> str:
        """Run a command on each line, where < and > name files; returns what went to no file."""
        for line in filter(None, script.split("\n")):
            program, *words = shlex.split(line)
            assert program == "aiayn"
            words += SMALLER.get(words[0], [])
            names = {"<": os.devnull, ">": "shown"}
            for sign in names.keys() & set(words):
                at = words.index(sign)
                names[sign] = words[at + 1]
                del words[at : at + 2]
            files = Path(names["<"]).open(), Path(names[">"]).open("a")  # noqa: SIM115
            with files[0] as stdin, files[1] as stdout, self._monkeypatch.context() as patch:
                patch.setattr("sys.stdin", stdin)
                patch.setattr("sys.stdout", stdout)
                assert main(words) == 0, line
        return (self.work / "shown").read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def test_the_demo_s_commands_run_from_corpus_to_score(run: Run) -> None:
    demo = next(block for block in blocks("sh") if "prepare demo" in block)
    assert [line.split()[1] for line in demo.split("\n") if line] == [
        "prepare",
        "train",
        "average",
        "translate",
        "score",
    ]
    out = run(demo)
    assert re.search(r"BLEU.* = [0-9.]+", out)
    assert "|tok:13a|" in out
    assert lines_of(run.work / "test.hyp") == lines_of(run.work / "prepared/demo/test.en") > 100


def test_the_commands_for_own_text_run_and_keep_every_line(run: Run) -> None:
    own = next(block for block in blocks("sh") if "--train train.en train.de" in block)
    out = run(own)
    assert re.search(r"BLEU.* = [0-9.]+", out)
    assert lines_of(run.work / "test.hyp") == 6
    # Its run is what the commands for averages and scores start from.
    out = run(next(block for block in blocks("sh") if "--search" in block))
    assert lines_of(run.work / "best.hyp") == lines_of(run.work / "last.hyp") == 6
    for words in (
        "validation pairs",
        "difference  p bootstrap",
        "compound-split tokenised BLEU",
        "0-10 words",
        "line ",
    ):
        assert words in out
    assert (run.work / "compare.html").read_text(encoding="utf-8").count("<article ") == 6


def test_the_commands_for_named_corpora_name_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    section = README.partition("## Corpora that have a name")[2].partition("\n## ")[0]
    commands = re.findall(r"^    aiayn (prepare .*?)(?:  #.*)?$", section, flags=re.MULTILINE)
    asked: list[Any] = []

    class Asked(Exception):
        pass

    def run_prepare(options: Any, *_: Any) -> None:
        asked.append(options)
        raise Asked

    monkeypatch.setattr("aiayn_cli.prepare.pipeline.run_prepare", run_prepare)
    for command in commands:
        with pytest.raises(Asked):
            main(command.split())
    for options in asked:
        for name in options.corpus.split("+"):
            assert find_corpus(name, options.langs, options.like).train
    assert len(asked) == 5


def test_the_commands_for_test_sets_name_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    section = README.partition("## Averages and scores")[2].partition("\n## ")[0]
    commands = re.findall(r"aiayn (score -t [^<|\n]*)", section)
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr("aiayn_cli.score.session.load_set", lambda name, langs, _: asked.append((name, langs)) or 1 / 0)
    for command in commands:
        with pytest.raises(ZeroDivisionError):
            main(command.split())
    assert asked == [("wmt14/full", "en-de")] * 2
    assert all(langs in DATASETS[name].langpairs for name, langs in asked)


def test_no_other_command_of_the_readme_goes_without_a_test() -> None:
    for block in blocks("sh"):
        assert any(words in block for words in ("prepare demo", "--train train.en train.de", "--search")), block
    assert not re.findall(r"^```(?!sh$|bash$)\w+$", README, flags=re.MULTILINE)


def test_the_demo_of_the_readme_is_what_make_demo_runs() -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\ndemo:")[2].partition("\n\n")[0]
    of_make = [line.split("aiayn ")[1] for line in recipe.split("\n") if "/aiayn " in line]
    demo = next(block for block in blocks("sh") if "prepare demo" in block)
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
