"""Parsing end to end: treebank in, sequences to learn from, trees out, and their score."""

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import Aiayn
from made_pairs import read_pair
from translation_models import translate_options

from aiayn_cli.average.best_average import run_search
from aiayn_cli.average.session import AverageOptions
from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import AiaynError, ConfigError, DataError, UsageError
from aiayn_cli.export.session import run_export
from aiayn_cli.parsing.evalb import run_score_brackets
from aiayn_cli.parsing.tree_text import from_text, words
from aiayn_cli.prepare.pipeline import run_prepare
from aiayn_cli.prepare.plan import PrepareOptions
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text.codec import load_vocabs
from aiayn_cli.train.options import TrainOptions
from aiayn_cli.train.session import run_train
from aiayn_cli.translate.forced_decoding import ForcedDecoder
from aiayn_cli.translate.load_models import load_models
from aiayn_cli.translate.session import run_score_against, run_translate

TOKENS = ("(S", ")S", "(NP", ")NP", "(VP", ")VP", "DT", "JJ", "NN", "VBZ", "-LRB-", ".")
NO_BLEU = ["training.validation_bleu_pairs=0", "training.best_metric=loss", "model.share_embeddings=decoder"]

pytestmark = pytest.mark.usefixtures("no_flush")


def make_trees(count: int, seed: int) -> str:
    chance = random.Random(seed)

    def noun() -> str:
        adjective = f" (JJ {chance.choice(['big', 'red'])})" * chance.randint(0, 2)
        return f"(NP-SBJ (DT {chance.choice(['the', 'a'])}){adjective} (NN {chance.choice(['dog', 'cat', 'tree'])}))"

    def tree() -> str:
        verb = f"(VP (VBZ {chance.choice(['sees', 'has'])}) {noun()})"
        return f"( (S {noun()}\n   {verb} (-LRB- -LRB-) (NP (-NONE- *)) (. .)))"

    return "".join(f"{tree()}\n" for _ in range(count))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    folder = tmp_path_factory.mktemp("trees")
    for split, count in (("train", 150), ("valid", 9), ("test", 7)):
        (folder / f"{split}.mrg").write_text(make_trees(count, seed=count), encoding="utf-8")
    files = {"trees": [folder / "train.mrg"], "valid_trees": folder / "valid.mrg", "test_trees": folder / "test.mrg"}
    run_prepare(PrepareOptions(**files, out=folder / "prepared", settings={"vocab_size": 80}, workers=1))
    return PreparedData.load(folder / "prepared")


def test_every_tree_is_kept_with_its_words_beside_it(prepared: PreparedData) -> None:
    assert (len(prepared.train), prepared.src_lang, prepared.tgt_lang) == (150, "words", "trees")
    assert prepared.text == TextConfig(normaliser=1, trees=True)
    for line, tree in zip(prepared.read_text("test", "src"), prepared.read_text("test", "tgt"), strict=True):
        assert re.fullmatch(r"\(TOP \(S \(NP .*\) \(VP .*\) \(-LRB- -LRB-\) \(\. \.\)\)\)", tree)
        assert " ".join(words(from_text(tree))) == line.replace("(", "-LRB-")
        assert line.endswith(" ( .")


@pytest.fixture(scope="module")
def parser(prepared: PreparedData, small_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("parser") / "run"
    settings = [*NO_BLEU, "training.max_updates=40", "decoding.max_extra=30", "training.save_every_steps=40"]
    run_train(TrainOptions(recipe=str(small_recipe), overrides=settings, data=prepared.folder, out=run, device="cpu"))
    return run


def test_each_bracket_and_each_tag_is_one_token(prepared: PreparedData) -> None:
    _, vocab = load_vocabs(prepared.folder)
    pieces = vocab.pieces(read_pair(prepared.train, 0)[1].tolist())
    assert pieces[0] == "▁(S"
    assert pieces[-1] == "▁)S"
    assert set(pieces) <= {"▁" + token for token in TOKENS}


def test_a_parser_learns_and_writes_trees_over_the_words_it_was_given(
    prepared: PreparedData, parser: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = load_checkpoint(find_model(parser))
    assert checkpoint.text.trees
    assert checkpoint.max_length == 1_000  # what trees are prepared with where no recipe says otherwise
    lines = [*prepared.read_text("test", "src"), "", "A (word ) never seen"]
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    result = run_translate(
        translate_options([parser], source=str(tmp_path / "in"), path=tmp_path / "out", device="cpu")
    )
    trees = (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1]
    assert trees[-2] == ""
    assert words(from_text(trees[-1])) == ["A", "-LRB-word", "-RRB-", "never", "seen"]
    for line, tree in zip(lines[:-2], trees, strict=False):
        assert " ".join(words(from_text(tree))) == line.replace("(", "-LRB-")
    assert result.repaired_lines == 0
    assert "repaired" not in capfd.readouterr().err + result.summary()
    free = run_translate(
        translate_options([parser], source=str(tmp_path / "in"), path=tmp_path / "free", device="cpu", tree_rules=False)
    )
    assert free.repaired_lines > 0  # a parser that has hardly learnt anything
    assert "the tree was repaired" in capfd.readouterr().err
    assert f"{free.repaired_lines:,} repaired" in free.summary()

    scored = tmp_path / "scored"
    scored.write_text("".join(tree + "\n" for tree in trees[:-2]), encoding="utf-8")
    score = run_score_brackets([prepared.folder / "test.trees"], hypotheses=str(scored))
    assert (score.all.sentences, score.all.skipped) == (7, 0)  # a word tagged as a comma makes an error sentence


def test_the_search_of_a_run_is_free_where_its_recipe_or_the_command_says_so(
    parser: Path, tmp_path: Path, aiayn: Aiayn
) -> None:
    (tmp_path / "in").write_text("the dog sees a cat .\na tree\n", encoding="utf-8")
    free = tmp_path / "free"
    shutil.copytree(find_model(parser), free)
    content = json.loads((free / "model.json").read_text(encoding="utf-8"))
    content["decoding"]["tree_rules"] = False
    (free / "model.json").write_text(json.dumps(content), encoding="utf-8")

    def translate(*options: str) -> str:
        said = aiayn("translate", "-i", tmp_path / "in", "--device", "cpu", "--precision", "fp32", *options)
        assert said.code == 0
        return said.out

    with_rules, without = translate("-m", str(parser)), translate("-m", str(parser), "--no-tree-rules")
    assert with_rules != without
    assert translate("-m", str(free)) == without
    assert translate("-m", str(free), "--tree-rules") == with_rules


def test_another_engine_or_a_vocabulary_over_blanks_searches_freely_and_says_so(
    parser: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="--engine ctranslate2 does not support --tree-rules"):
        run_translate(translate_options([parser], engine="ctranslate2", tree_rules=True))
    path = tmp_path / "model"
    shutil.copytree(find_model(parser), path)
    free = "trees are not enforced in the search, but repaired after it: "
    run_export(path)
    _, report = parse(path, ["the dog sees a cat ."] * 2, tmp_path, engine="ctranslate2")
    assert free + "--engine ctranslate2 does not support --tree-rules" in capfd.readouterr().err
    assert "tree_repaired" in report[0]["flags"]
    monkeypatch.setattr("aiayn_cli.text.codec.Codec.tgt_written", lambda self: None)
    parse(path, ["the dog sees a cat ."], tmp_path)
    assert free + "the vocabulary has sub-words that contain blanks" in capfd.readouterr().err
    parse(path, ["the dog sees a cat ."], tmp_path, tree_rules=False)
    assert free not in capfd.readouterr().err  # nothing else was asked for


def parse(parser: Path, lines: list[str], folder: Path, **options: object) -> tuple[list[str], list[dict[str, Any]]]:
    """The trees of some lines, and the report on them."""
    (folder / "in").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    files = {"source": str(folder / "in"), "path": folder / "out", "report": folder / "report"}
    run_translate(translate_options([parser], device="cpu", precision="fp32", **files, **options))  # type: ignore[arg-type]
    trees, report = ((folder / name).read_text(encoding="utf-8").split("\n")[:-1] for name in ("out", "report"))
    return trees, [json.loads(record) for record in report]


def test_a_sentence_of_any_length_that_fits_is_parsed_whole(
    parser: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    long = "the big dog sees a cat . " * 45
    [tree], [record] = parse(parser, [long], tmp_path, max_length=9)
    assert record["parts"] == 1
    assert words(from_text(tree)) == long.split()
    assert "tree_repaired" in record["flags"]
    capfd.readouterr()
    monkeypatch.setattr("aiayn_cli.translate.line_translator.LONGEST_PASS", 20)
    trees, records = parse(parser, ["a dog sees", long], tmp_path, n_best=2, on_suspect="retry")
    assert "tried" not in records[1]  # since no other search reads more
    assert "line 2 has" in (said := capfd.readouterr().err)
    assert "sub-words, more than 20: it is skipped, since trees cannot be split" in said
    assert "line 2: the tree was repaired: word left out (315)" in said
    assert records[1]["flags"] == ["too_long"]
    assert records[1]["score"] is None
    assert trees[2] == trees[3]
    leaves = [f"(. {word})" if word == "." else f"(XX {word})" for word in long.split()]
    assert trees[2] == f"(TOP {' '.join(leaves)})"


def test_what_goes_with_text_alone_is_refused_or_left_out(parser: Path, tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("a\tb\n", encoding="utf-8")
    for options in ({"alignments": True}, {"glossary": tmp_path / "terms"}, {"on_suspect": "copy"}):
        with pytest.raises(AiaynError, match=r"is for translations, but .* writes trees"):
            parse(parser, ["a dog"], tmp_path, **options)
    lines = ["A (word ) never seen", "the dog sees a cat ."]
    trees, records = parse(parser, lines, tmp_path, max_length=2, on_suspect="retry")
    assert [record["tried"] for record in records] == [["larger_beam"]] * 2  # brackets do come again
    assert all(tree.startswith("(TOP ") for tree in trees)
    trees, records = parse(parser, lines, tmp_path, max_length=2, on_suspect="empty")
    assert trees == ["", ""]
    assert [record["replaced_by"] for record in records] == ["empty", "empty"]
    with pytest.raises(UsageError, match=r"--min-length 300 does not work with .*, which writes trees"):
        parse(parser, lines, tmp_path, min_length=300)
    free = {"tree_rules": False, "max_length": 40}
    ratios = [parse(parser, lines[1:], tmp_path, **free, min_length=n)[1][0]["length_ratio"] for n in (0, 40)]
    assert ratios[0] < ratios[1]
    with pytest.raises(UsageError, match="--search compares by BLEU"):
        run_search([parser], AverageOptions(search=True))


def score_trees(parser: Path, folder: Path, lines: str, trees: str) -> Any:
    (folder / "in").write_text(lines, encoding="utf-8")
    (folder / "trees").write_text(trees, encoding="utf-8")
    options = translate_options([parser], source=str(folder / "in"), device="cpu", precision="fp32", keep=True)
    return run_score_against(folder / "trees", options)


def test_given_trees_are_scored_as_the_sequences_that_the_model_learns(
    parser: Path, prepared: PreparedData, tmp_path: Path
) -> None:
    sources, trees = ((prepared.folder / f"test.{kind}").read_text(encoding="utf-8") for kind in ("words", "trees"))
    result = score_trees(parser, tmp_path, sources, trees)
    assert prepared.test is not None
    pairs = [tuple(side.tolist() for side in read_pair(prepared.test, i)) for i in range(7)]
    loaded = load_models(translate_options([parser], device="cpu", precision="fp32"))
    expected = ForcedDecoder(loaded.translator).force(pairs)
    assert result.scores is not None
    assert [score for score, _ in result.scores] == pytest.approx(
        [sum(each.token_log_probs) for each in expected], abs=1e-3
    )


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ("(NP (DT a) (JJ big) (NN dog))", "the tree has 3 words, but its line has 2"),
        ("(NP (NN dog) (-NONE- *))", "the tree has 1 word, but its line has 2"),
        ("(NP (-NONE- *))", "the tree has 0 words, but its line has 2"),
        ("(NP (DT a) (NN cat))", "word 2 of the tree is cat, but its line has dog"),
        ("Der Hund", "Der has 'Der' where a bracket should open"),
    ],
)
def test_a_tree_over_other_words_than_its_line_has_no_score(
    parser: Path, tmp_path: Path, tree: str, problem: str
) -> None:
    trees = f"(NP (DT a) (NN dog) (-NONE- *))\n(NP (NN x))\n{tree}\n"
    with pytest.raises(DataError, match=f"trees:3: {problem}"):  # a blank line is no error: its pair has no score
        score_trees(parser, tmp_path, "a dog\n\na dog\n", trees)


def test_a_sign_that_no_vocabulary_has_is_no_other_word(parser: Path, tmp_path: Path) -> None:
    trees = "(NP (DT a) (NN dog) (-LRB- -LRB-))\n(NP (DT a) (NN _dog) (-LRB- -LRB-))\n"
    result = score_trees(parser, tmp_path, "a dog (\na \u2581dog (\n", trees)
    assert (result.lines, result.unscored_lines) == (2, 0)  # U+2581


def test_a_validation_by_bleu_is_refused(prepared: PreparedData, small_recipe: Path, tmp_path: Path) -> None:
    settings = ["model.share_embeddings=decoder"]
    with pytest.raises(ConfigError, match=r"validation_bleu_pairs is 4, but .* holds trees") as caught:
        run_train(
            TrainOptions(recipe=str(small_recipe), overrides=settings, data=prepared.folder, out=tmp_path / "run")
        )
    assert "best_metric=loss" in caught.value.hint
    assert not (tmp_path / "run").exists()


def test_the_same_call_again_changes_nothing_and_other_options_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mrg"
    path.write_text(make_trees(100, seed=3), encoding="utf-8")

    def again(**settings: object) -> bool:
        call = {"vocab_size": 60, **settings}
        return run_prepare(PrepareOptions(trees=[path], out=tmp_path / "out", settings=call, workers=1)).done_before

    assert not again()
    assert again()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["splits"]["train"]["held_out"] == manifest["splits"]["valid"]["pairs_kept"] > 0
    with pytest.raises(AiaynError, match=r"tree_functions False instead of True"):
        again(tree_functions=True)


def test_the_command_takes_several_treebanks_and_weighs_them(
    tmp_path: Path, aiayn: Aiayn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("a.mrg", 60), ("b.mrg", 40), ("v.mrg", 5)):
        Path(name).write_text(make_trees(count, seed=count), encoding="utf-8")
    line = "prepare --trees a.mrg b.mrg --weight b.mrg=3 --valid-trees v.mrg --vocab-size 60 --json"
    line += " --set data.tree_words=true"
    result = aiayn(*line.split(" "), "--workers", "1").json
    assert (result["out"], result["langs"]) == ("prepared/trees", "words-trees")
    assert (result["pairs_read"], result["pairs_kept"], result["copies"], result["valid_pairs"]) == (100, 180, 80, 5)
    assert PreparedData.load(Path("prepared/trees")).text == TextConfig(normaliser=1, trees=True, tree_words=True)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"valid_trees": Path("a")}, "--valid-trees needs --trees"),
        ({"recipe": "parsing-small"}, "a recipe for trees needs --trees"),
        ({"corpus": "demo", "settings": {"tree_words": True}}, "data.tree_words needs --trees"),
        ({"trees": [Path("a")], "corpus": "demo"}, "--trees and demo contradict each other"),
        ({"trees": [Path("a")], "settings": {"case_copies": 0.1}}, "data.case_copies is 0.1, but --trees is true"),
        ({"trees": [Path("a")], "settings": {"on_bad_bytes": "drop"}}, "--on-bad-bytes is drop, but --trees is true"),
        (
            {"trees": [Path("a")], "settings": {"moses_tokenise": True}},
            "data.moses_tokenise is true, but so is --trees",
        ),
        ({"trees": [Path("a")], "tsv": [Path("b")]}, "--trees and --tsv contradict each other"),
    ],
)
def test_trees_go_with_nothing_else(files: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        run_prepare(PrepareOptions(**files))  # type: ignore[arg-type]


def test_the_command_scores_brackets(tmp_path: Path, aiayn: Aiayn) -> None:
    (tmp_path / "gold").write_text("(ROOT (S (NP (NN a)) (VP (VB b))))\n(TOP (S (NN a)))\n", encoding="utf-8")
    (tmp_path / "test").write_text("(TOP (S (VP (NN a)) (VP (VB b))))\n(TOP (S (NN c)))\n", encoding="utf-8")
    (tmp_path / "rules").write_text("LABELED 0\nCUTOFF_LEN 1\n", encoding="utf-8")

    files = ["score", tmp_path / "gold", "--hyp", tmp_path / "test"]
    code, out, err = aiayn(*files, "--brackets")
    assert code == 0
    assert out.startswith("F1 = 66.67\n")
    assert re.search(r"Number of Error sentence +1 +1\n", out)
    assert "EVALB|labels:yes|parameters:COLLINS+ROOT+S1" in out
    assert "line 2 is not scored: its words differ" in err
    _, out, _ = aiayn(*files, "--brackets", "--parameters", tmp_path / "rules")
    assert out.startswith("F1 = 100.00\n")  # 4 brackets with ROOT, labels do not count
    assert aiayn(*files, "--brackets", "--json").json["all"]["recall"] == pytest.approx(200 / 3)
    code, _, err = aiayn(*files, "--parameters", tmp_path / "rules")
    assert code == 2
    assert "--parameters needs --brackets" in err
