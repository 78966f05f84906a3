"""The manuals' own commands run, word for word, after one small training; and manuals name options that exist.

Blocks marked `sh` are run.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_text import blocks, run_line, write_own_text
from sacrebleu.dataset import DATASETS

from aiayn_cli.app import main
from aiayn_cli.corpora.named_corpora import find_corpus

CHECKOUT = Path(__file__).parent.parent
MANUALS = sorted((CHECKOUT / "aiayn_cli").glob("*/README.md"))
PAGES = [*MANUALS, *(CHECKOUT / folder / "README.md" for folder in ("", "recipes", "tests/benchmarks"))]
VERBS = ("prepare", "train", "average", "translate", "score", "export")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with train.en and the like, and what the manuals start from: prepared/mine, runs/mine, hypotheses."""
    folder = tmp_path_factory.mktemp("work")
    write_own_text(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in (
            "aiayn prepare --train train.en train.de --valid valid.en valid.de --test test.en test.de --langs en-de "
            "--vocab-size 300 --out prepared/mine",
            "aiayn train --recipe tiny --data prepared/mine --out runs/mine",
            "aiayn average runs/mine",
        ):
            run_line(line, patch)
        for name in ("test.hyp", "last.hyp"):
            (folder / name).write_bytes((folder / "test.de").read_bytes())
        yield folder


@pytest.mark.parametrize("manual", MANUALS, ids=lambda manual: manual.parent.name)
def test_every_command_of_a_manual_runs(manual: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    for block in blocks(manual):
        for line in block.strip().split("\n"):
            run_line(line, monkeypatch)
    for block in blocks(manual, "python"):
        exec(block, {})


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_manual_with_examples(verb: str) -> None:
    manual = CHECKOUT / "aiayn_cli" / verb / "README.md"
    assert manual in MANUALS
    assert f"aiayn {verb}" in manual.read_text(encoding="utf-8")


@pytest.mark.parametrize("manual", MANUALS, ids=lambda manual: manual.parent.name)
def test_every_option_and_setting_that_a_manual_names_exists(manual: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        main([verb, "--help"])
    known = set(re.findall(r"--[a-z0-9][a-z0-9-]*", capsys.readouterr().out)) | {"--help", "--version"}
    known |= {"--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint"}  # torchrun's
    text = manual.read_text(encoding="utf-8")
    assert set(re.findall(r"(?<![\w-])--[a-z0-9][a-z0-9-]*", text)) <= known
    base = (CHECKOUT / "recipes" / "base.yaml").read_text(encoding="utf-8")
    for section, key in re.findall(r"\b(data|model|training|decoding)\.([a-z_0-9]+)", text):
        assert re.search(rf"^{section}:\n(?:  .*\n)*?  {key}:", base, flags=re.MULTILINE), f"{section}.{key}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_pages_link_to_what_exists_and_have_short_paragraphs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link
    prose = re.sub(r"^```.*?^```$|^    .*$|^\|.*$", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=\* )", prose):
        assert len(paragraph.split()) <= 80, paragraph


def test_the_commands_for_named_corpora_name_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (CHECKOUT / "aiayn_cli" / "prepare" / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    aiayn (prepare (?!demo).*?)(?:  #.*)?$", page, flags=re.MULTILINE)
    asked: list[Any] = []
    monkeypatch.setattr("aiayn_cli.prepare.pipeline.run_prepare", lambda options, *_: asked.append(options) or 1 / 0)
    for command in commands:
        with pytest.raises(ZeroDivisionError):
            main(command.split())
    for options in asked:
        for name in options.corpus.split("+"):
            assert find_corpus(name, options.langs, options.like).train
    assert len(asked) == len(commands) == 5


def test_the_commands_for_test_sets_name_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (CHECKOUT / "aiayn_cli" / "score" / "README.md").read_text(encoding="utf-8")
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr("aiayn_cli.score.session.load_set", lambda name, langs, _: asked.append((name, langs)) or 1 / 0)
    for command in re.findall(r"aiayn (score -t [^<|\n]*)", page):
        with pytest.raises(ZeroDivisionError):
            main(command.split())
    assert asked == [("wmt14/full", "en-de")] * 2
    assert all(langs in DATASETS[name].langpairs for name, langs in asked)
