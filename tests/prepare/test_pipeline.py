"""prepare turns text into training-ready data: nothing shifts, everything is counted, nothing existing is harmed."""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_pairs import Pair, decoded, make_pairs, read_pair, write_pairs

from aiayn_cli import processes as parallel
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import AiaynError, DataError, UsageError
from aiayn_cli.prepare import formats, partial_folder, pipeline, selection, sources, vocab_training
from aiayn_cli.prepare.pipeline import PrepareResult, run_prepare
from aiayn_cli.prepare.plan import PrepareOptions
from aiayn_cli.recipe_keys import DataConfig, TextConfig
from aiayn_cli.text.codec import joint_sha256, load_vocabs
from aiayn_cli.text.vocab import Vocab

TRAIN, VALID, TEST = make_pairs(300, 1), make_pairs(20, 2), make_pairs(30, 3)


def prepare(here: Path, pairs: Sequence[Pair] = TRAIN, **options: Any) -> PrepareResult:
    """Prepare some pairs with validation and test text, a small vocabulary, and the options of run_prepare."""
    settings = {"max_ratio": 9.0, "case_copies": 0.0} | ({} if "vocab" in options else {"vocab_size": 90})
    settings |= options.pop("settings", {})
    defaults: dict[str, Any] = {
        "train": [write_pairs(here, "train", pairs)],
        "valid": write_pairs(here, "v", VALID),
        "test": write_pairs(here, "t", TEST),
        "langs": "en-de",
        "out": here / "out",
    }
    return run_prepare(PrepareOptions(settings=settings, **(defaults | options)))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_pair_comes_out_in_order_in_each_split(here: Path) -> None:
    result = prepare(here)
    data = PreparedData.load(here / "out")
    assert decoded(data, "train") == TRAIN
    assert decoded(data, "valid") == VALID
    assert decoded(data, "test") == TEST
    assert list(zip(data.read_text("valid", "src"), data.read_text("valid", "tgt"), strict=True)) == VALID
    assert list(zip(data.read_text("test", "src"), data.read_text("test", "tgt"), strict=True)) == TEST
    assert (result.pairs_read, result.pairs_kept, result.valid_pairs, result.test_pairs) == (300, 300, 20, 30)
    assert result.src_tokens == data.train.lengths(range(len(data.train)), "src").sum()
    assert result.tgt_tokens == data.train.lengths(range(len(data.train)), "tgt").sum()
    assert (data.src_lang, data.tgt_lang, data.vocab_size) == ("en", "de", 90)
    assert not result.done_before


ODD = [
    ("", "nothing"),
    ("nothing", " \u3000"),
    TRAIN[7],
    (VALID[3][0], "said otherwise"),
    ("said otherwise", f" {TEST[4][1]} "),
    ("a " * 60, "b " * 60),
    ("a b c", "d " * 30),
    ("a " * 99, "b " * 99),
    ("same", "same "),
    ("1 + 2", "3"),
    ("по-русски", "auf Russisch"),
]


def test_each_rule_has_its_count_in_result_and_manifest(here: Path) -> None:
    train = [*TRAIN[:150], *ODD, *TRAIN[150:], TRAIN[7]]
    result = prepare(here, train, settings={"max_length": 50, "max_ratio": 2.0, "max_words": 90})
    expected = {
        "bad_bytes": 0, "blank": 2, "too_many_words": 1, "identical": 1, "no_letters": 1, "wrong_script": 1,
        "overlap": 2, "repeated": 2, "too_many_tokens": 1, "length_ratio": 1,
    }  # fmt: skip
    assert result.dropped == expected
    assert (result.pairs_read, result.pairs_kept) == (312, 300)
    data = PreparedData.load(here / "out")
    assert decoded(data, "train") == TRAIN
    assert data.manifest["splits"]["train"]["dropped"] == expected
    assert data.manifest["splits"]["train"]["pairs_read"] == 312
    off = ("dedupe", "drop_identical", "drop_no_letters", "drop_wrong_script", "drop_overlap")
    settings = {"max_ratio": 99.0, "max_length": 1_000, "max_words": 0} | dict.fromkeys(off, False)
    result = prepare(here, train, settings=settings, out=here / "all")
    assert (sum(result.dropped.values()), result.dropped["blank"], result.pairs_kept) == (2, 2, 310)


def test_validation_and_test_text_is_kept_whole_whatever_the_rules(here: Path) -> None:
    odd = [("", "blank source"), ("a " * 500, "b"), ("same", "same"), ("same", "same")]
    result = prepare(here, valid=write_pairs(here, "odd", odd))
    data = PreparedData.load(here / "out")
    assert list(zip(data.read_text("valid", "src"), data.read_text("valid", "tgt"), strict=True)) == odd
    assert data.valid is not None
    assert (len(data.valid), result.valid_pairs) == (4, 4)
    assert data.valid.lengths(range(len(data.valid)), "src")[0] == 0


def test_bad_bytes_stop_by_default_and_leave_nothing(here: Path) -> None:
    files = write_pairs(here, "bad", TRAIN)
    files[1].write_bytes(files[1].read_bytes().replace(b" t41x1", b" t41x1\xff"))
    with pytest.raises(DataError, match=r"bad\.de:42: byte .* of the line \(0xFF\) is not UTF-8"):
        prepare(here, train=[files])
    assert not (here / "out").exists()
    assert not list(here.glob("*.partial"))


def test_without_validation_text_some_pairs_are_held_out_and_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = prepare(here, valid=None)
    assert "no validation text given: 15 training pairs are held out for validation" in capsys.readouterr().err
    data = PreparedData.load(here / "out")
    held_out = decoded(data, "valid")
    assert (len(held_out), result.held_out, result.valid_pairs, result.pairs_kept) == (15, 15, 15, 285)
    assert sorted([*held_out, *decoded(data, "train")]) == sorted(TRAIN)
    assert data.manifest["splits"]["valid"]["held_out_of"] == {"split": "train", "seed": 1}


def test_the_vocabulary_knows_nothing_of_held_out_text_and_of_one_pair_none_is_held_out(here: Path) -> None:
    prepare(here, valid=write_pairs(here, "odd", [("漢字", "a")]), test=None)
    data = PreparedData.load(here / "out")
    assert Vocab.load(data.vocab_path).decode(Vocab.load(data.vocab_path).encode(["漢字"])) == ["\u2047"]
    assert data.manifest["splits"]["valid"]["unknown_tokens"] == 1
    result = prepare(here, TRAIN[:1], valid=None, settings={"vocab_size": 40}, out=here / "one")
    assert (result.pairs_kept, result.valid_pairs) == (1, 0)
    assert PreparedData.load(here / "one").valid is None


def test_the_manifest_chains_inputs_vocabulary_and_outputs(here: Path) -> None:
    prepare(here)
    manifest = json.loads((here / "out" / "manifest.json").read_bytes())
    for entry in manifest["inputs"]:
        content = Path(entry["path"]).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert [(entry["split"], entry["side"]) for entry in manifest["inputs"]] == [
        (split, side) for split in ("train", "valid", "test") for side in ("src", "tgt")
    ]
    assert manifest["vocab"]["sha256"] == manifest["files"]["vocab.model"]["sha256"]
    settings = {"vocab_size": 90, "max_ratio": 9.0, "case_copies": 0.0}
    expected = asdict(replace(DataConfig(), **settings))  # type: ignore[arg-type]
    of_trees_only = {"trees", "tree_tags", "tree_words", "tree_functions"}
    assert manifest["settings"] == {k: v for k, v in expected.items() if k != "corpus" and k not in of_trees_only}


def test_the_same_call_gives_the_same_bytes_for_any_number_of_processes(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ITEMS_WORTH_A_PROCESS", 3)
    monkeypatch.setattr(selection, "SHARD_CHUNKS", 2)
    monkeypatch.setattr(formats, "CHUNK_PAIRS", 40)
    found = []
    for name, workers in (("one", 1), ("again", 1), ("two", 2)):
        prepare(here, out=here / name, workers=workers)
        found.append(contents(here / name))
    assert found[0] == found[1] == found[2]


def test_running_it_again_does_nothing_and_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = prepare(here)
    before = {path: path.stat().st_mtime_ns for path in (here / "out").iterdir()}
    capsys.readouterr()
    again = prepare(here)
    assert capsys.readouterr().err == f"{here / 'out'} is up to date: nothing to do\n"
    assert {path: path.stat().st_mtime_ns for path in (here / "out").iterdir()} == before
    assert again.done_before
    assert again.pairs_kept == first.pairs_kept


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"settings": {"vocab_size": 80}}, "vocab_size 90 instead of 80"),
        ({"settings": {"max_ratio": 3.0, "seed": 5}}, "max_ratio 9.0 instead of 3.0, seed 1 instead of 5"),
        ({"langs": "en-nl"}, "languages en-de instead of en-nl"),
        ({"pairs": TRAIN[:-1]}, "different training text"),
        ({"valid": None}, "different validation text"),
    ],
    ids=["vocab_size", "two settings", "languages", "training text", "validation text"],
)
def test_other_data_is_never_overwritten(here: Path, options: dict[str, Any], difference: str) -> None:
    prepare(here)
    before = contents(here / "out")
    with pytest.raises(DataError) as caught:
        prepare(here, **options)
    assert caught.value.problem == f"{here / 'out'} was prepared differently: {difference}"
    assert caught.value.hint == f"give another --out to keep both, or remove {here / 'out'} to prepare it anew"
    assert contents(here / "out") == before


def killed(here: Path, owner: Any, moment: str, when: int, **options: Any) -> bool:
    """Prepare in a fork that kills itself at the n-th call of a function; whether it came to that."""
    child = os.fork()
    if child == 0:
        real, calls = getattr(owner, moment), count(1)

        def watched(*arguments: Any) -> Any:
            if next(calls) == when:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments)

        setattr(owner, moment, watched)
        try:
            prepare(here, workers=1, settings={"case_copies": 0.2}, **options)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "CHUNK_PAIRS", 20)
    monkeypatch.setattr(selection, "SHARD_CHUNKS", 4)


def test_killed_at_any_moment_the_same_call_finishes_with_the_same_bytes(here: Path, small_parts: None) -> None:
    prepare(here, out=here / "undisturbed", settings={"case_copies": 0.2}, valid=None)
    # Each call writes two markers more than the one before: of the plan, 4 shards of text, the end of reading, the
    # selection, the vocabulary and 4 shards of token ids.
    kills = 0
    while killed(here, partial_folder, "write_whole", 3, valid=None):
        kills += 1
        assert not (here / "out").exists()
    assert kills >= 5
    assert contents(here / "out") == contents(here / "undisturbed")


@pytest.mark.parametrize(
    ("owner", "moment"), [(pipeline, "write_manifest"), (Path, "rename"), (partial_folder, "remove_leftovers")]
)
def test_killed_at_the_end_too(
    here: Path, small_parts: None, owner: object, moment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"case_copies": 0.2}
    prepare(here, out=here / "undisturbed", settings=settings)
    assert killed(here, owner, moment, 1)
    assert (here / "out").exists() == (moment == "remove_leftovers")
    again = prepare(here, settings=settings)
    assert again.done_before == (moment == "remove_leftovers")
    assert ("resuming interrupted work" in capsys.readouterr().err) == (moment != "remove_leftovers")
    assert contents(here / "out") == contents(here / "undisturbed")
    assert not (here / "out.partial").exists()


def test_what_is_done_is_not_done_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"case_copies": 0.2}
    prepare(here, out=here / "undisturbed", settings=settings)
    monkeypatch.setattr(vocab_training, "train_vocab", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare(here, settings=settings)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sources.PairSource, "read_train", None)
    result = prepare(here, settings=settings)
    assert contents(here / "out") == contents(here / "undisturbed")
    assert result.pairs_read == 300


def interrupt(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_after_other_settings_text_or_languages_it_starts_over(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pairs, langs, vocab_size in ((TRAIN, "en-de", 80), (TRAIN[:250], "en-de", 90), (TRAIN, "en-nl", 90)):
        with monkeypatch.context() as patch:
            patch.setattr(vocab_training, "train_vocab", interrupt)
            with pytest.raises(KeyboardInterrupt):
                prepare(here, pairs, langs=langs, settings={"vocab_size": vocab_size})
    prepare(here)
    prepare(here, out=here / "undisturbed")
    assert contents(here / "out") == contents(here / "undisturbed")


def test_the_sides_can_have_vocabularies_of_their_own(here: Path) -> None:
    pairs = [(src, tgt.translate(str.maketrans("abcdefghij", "klmnopqrst"))) for src, tgt in TRAIN]
    settings = {"separate_vocabs": True, "vocab_size": 60}
    result = prepare(here, pairs, valid=write_pairs(here, "v2", pairs[:5]), settings=settings | {"drop_overlap": False})
    data = PreparedData.load(here / "out")
    src, tgt = load_vocabs(here / "out")
    assert data.separate_vocabs
    assert (src.size, tgt.size, data.vocab_size, result.vocab_size) == (60, 60, 60, 60)
    assert data.vocab_sha256 == data.codec().sha256 == joint_sha256(src, tgt)
    for store, expected in ((data.train, pairs), (data.valid, pairs[:5])):
        assert store is not None
        ids = [read_pair(store, i) for i in range(len(store))]
        assert src.decode([pair[0].tolist() for pair in ids]) == [pair[0] for pair in expected]
        assert tgt.decode([pair[1].tolist() for pair in ids]) == [pair[1] for pair in expected]
    assert result.unknown_tokens == 0
    assert not {"k", "l", "m"} & set("".join(src.pieces(range(4, 60))))
    prepare(here, pairs, vocab=here / "out", out=here / "again", valid=write_pairs(here, "v2", pairs[:5]))
    assert PreparedData.load(here / "again").vocab_sha256 == data.vocab_sha256


def test_text_can_be_processed_as_the_moses_scripts_do(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "ITEMS_WORTH_A_PROCESS", 3)
    monkeypatch.setattr(formats, "CHUNK_PAIRS", 40)
    pairs = [(f"\u201c{src}\u201d, {src}", f"{tgt}.") for src, tgt in TRAIN]
    settings = {"normalise_punctuation": True, "moses_tokenise": True, "max_ratio": 50.0}
    for out, workers in (("one", 1), ("two", 2)):
        prepare(here, pairs, valid=None, test=write_pairs(here, "t7", pairs[:7]), settings=settings, out=here / out,
                workers=workers)  # fmt: skip
    assert contents(here / "one") == contents(here / "two")
    data = PreparedData.load(here / "one")
    assert data.text == TextConfig(normaliser=1, normalise_punctuation=True, moses_tokenise=True)
    held_out = list(zip(data.read_text("valid", "src"), data.read_text("valid", "tgt"), strict=True))
    assert set(held_out) <= set(pairs)  # scored text stays raw
    assert data.read_text("test", "src") == [src for src, _ in pairs[:7]]
    processed = [(f'" {src} , " {src}', f"{tgt} .") for src, tgt in TRAIN]
    assert decoded(data, "test") == processed[:7]
    assert sorted(decoded(data, "train") + decoded(data, "valid")) == sorted(processed[7:])


def test_a_vocabulary_can_be_used_again(here: Path) -> None:
    prepare(here, out=here / "first")
    other = make_pairs(50, 7)
    for n, vocab in enumerate((here / "first", here / "first" / "vocab.model")):
        prepare(here, other, out=here / f"second{n}", vocab=vocab)
        data = PreparedData.load(here / f"second{n}")
        assert data.vocab_path.read_bytes() == (here / "first" / "vocab.model").read_bytes()
        assert data.manifest["settings"]["vocab_sha256"] == data.vocab_sha256
    result = prepare(here, [*TRAIN, ("漢字 abc", "bcd 漢 c")], out=here / "third", vocab=here / "first")
    assert result.unknown_tokens == 2


def test_a_vocabulary_too_large_for_the_text_is_reported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = prepare(here, out=here / "50000", settings={"vocab_size": 50_000}).vocab_size
    wanted = f"the text has only {size:,} sub-words, so the vocabulary has that many, not 50,000"
    assert wanted in capsys.readouterr().err
    prepare(here, out=here / "4001", settings={"vocab_size": 4_001})
    assert "4,001 sub-words are many for 300 pairs: recipe mini has 2,000" in capsys.readouterr().err
    prepare(here, out=here / "100", settings={"vocab_size": 100})
    assert "many for" not in capsys.readouterr().err


def test_own_text_gets_the_vocabulary_of_the_recipe_that_suits_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # the second call finds what the first one made
        prepare(here, out=here / "auto", vocab=None)
        assert PreparedData.load(here / "auto").manifest["settings"]["vocab_size"] == 2_000
    assert "vocabulary: up to 2,000 sub-words, for 300 pairs (recipe mini)" in capsys.readouterr().err


NONE_LEFT = "FILE: no training pair is left of"


@pytest.mark.parametrize(
    ("pairs", "settings", "problem"),
    [
        ([], {}, "no text in FILE"),
        ([("", "a"), ("b", " ")], {}, f"{NONE_LEFT} 2 (2 blank side)"),
        ([VALID[0], (" ", "a")], {}, f"{NONE_LEFT} 2 (1 blank side, 1 overlap with validation or test text)"),
        (TRAIN[:9], {"max_length": 2}, f"{NONE_LEFT} 9 (9 too long (tokens))"),
    ],
)
def test_an_empty_training_set_says_what_took_its_pairs(
    here: Path, pairs: list[Pair], settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DataError) as caught:
        prepare(here, pairs, settings=settings)
    assert caught.value.problem == problem.replace("FILE", str(here / "train.en"))
    of_rules = "check the files; prepare's manual says how to turn rules off, such as --set data.drop_identical=false"
    only_blank = not any(src.strip() and tgt.strip() for src, tgt in pairs)
    assert caught.value.hint == ("give files with a sentence per line" if only_blank else of_rules)
    assert not (here / "out").exists()


def test_too_little_disk_is_said_before_anything_is_done(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.shutil, "disk_usage", lambda _: SimpleNamespace(free=9))
    with pytest.raises(DataError, match=r"has 0\.0 MB free, but preparing takes about 0\.0 MB") as caught:
        prepare(here)
    assert caught.value.hint == "free some space, or put --out on another disk"
    assert not list(here.glob("out*"))


@pytest.mark.parametrize("pairs", [[], [("", ""), (" ", "")], [("a", ""), ("b", " ")]], ids=["empty", "blank", "half"])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_validation_or_test_files_without_text_are_refused(here: Path, split: str, pairs: list[Pair]) -> None:
    with pytest.raises(DataError, match=r"empty\.en: no line with text") as caught:
        prepare(here, TRAIN, **{split: write_pairs(here, "empty", pairs)})
    assert caught.value.hint.startswith(f"give another file, or leave out --{split}")


def test_the_demo_needs_nothing_but_its_name(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from aiayn_cli.prepare import plan

    seeds = []

    def generate(seed: int) -> dict[str, Sequence[Pair]]:
        seeds.append(seed)
        return {"train": make_pairs(6_100, 5), "valid": VALID, "test": TEST}

    monkeypatch.setattr(plan, "generate", generate)
    result = run_prepare(PrepareOptions(corpus="demo", settings={"seed": 4}))
    assert "output: prepared/demo" in capsys.readouterr().err
    assert (result.out, result.vocab_size, result.langs) == (Path("prepared/demo"), 2_800, "en-de")
    assert (result.pairs_read, result.valid_pairs, result.test_pairs) == (6_100, 20, 30)
    data = PreparedData.load(result.out)
    assert decoded(data, "valid") == VALID
    assert data.manifest["corpus"] == "demo"
    assert run_prepare(PrepareOptions(corpus="demo", settings={"seed": 4})).done_before
    with pytest.raises(DataError, match="seed 4 instead of 5"):
        run_prepare(PrepareOptions(corpus="demo", settings={"seed": 5}))
    assert seeds == [4, 4, 5]


def test_a_recipe_gives_what_the_user_does_not_but_files_for_a_corpus_without_a_name(here: Path) -> None:
    recipe = here / "mine.yaml"
    recipe.write_text("data:\n  corpus: my-corpus\n  vocab_size: 66\n  max_length: 11\n  seed: 6\n")
    result = prepare(here, recipe=str(recipe), out=None, settings={"seed": 8, "vocab_size": 77})
    settings = PreparedData.load(Path("prepared/my-corpus")).manifest["settings"]
    assert result.out == Path("prepared/my-corpus")
    assert (settings["vocab_size"], settings["max_length"], settings["seed"]) == (77, 11, 8)
    recipe = here / "mine.yaml"
    recipe.write_text("data:\n  corpus: my-corpus\n")
    with pytest.raises(DataError, match="unknown corpus 'my-corpus'") as caught:
        run_prepare(PrepareOptions(recipe=str(recipe)))
    assert caught.value.hint.endswith(" (for your own files: --train SRC TGT)")


def test_without_recipe_the_defaults_and_the_languages_name_the_result(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"train": [write_pairs(here, "train", TRAIN)], "valid": write_pairs(here, "v", VALID)}
    result = run_prepare(PrepareOptions(**files, langs="en-de"))
    assert result.out == Path("prepared/en-de")
    assert "output: prepared/en-de (--out chooses another folder)" in capsys.readouterr().err
    assert PreparedData.load(result.out).manifest["settings"]["max_length"] == DataConfig().max_length


FILES = (Path("a.en"), Path("a.de"))
OWN = {"train": [FILES], "langs": "en-de"}


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"corpus": "demo", "langs": "de-en"}, UsageError, "--langs is de-en, but demo is en-de"),
        ({"corpus": "demo+multi30k-en-fr"}, UsageError, "demo is en-de, but multi30k-en-fr is en-fr"),
        ({"corpus": "demo", "like": "paper"}, UsageError, "demo has no variant --like paper"),
        ({"corpus": "multi30k-en-de", "tmx": [Path("a.tmx")]}, DataError, "a.tmx does not exist"),
        ({"tsv": [Path("a.tsv")], "langs": "en-de"}, DataError, "a.tsv does not exist"),
        ({"tsv": [Path("a.tsv")]}, UsageError, "--tsv needs --langs"),
        ({**OWN, "like": "paper"}, UsageError, "--like needs a corpus"),
        ({**OWN, "from_folder": Path("x")}, UsageError, "--from needs a corpus"),
        ({"corpus": "multi30k-en-de", "from_folder": Path("x")}, DataError, "--from x: there is no such folder"),
        (
            {**OWN, "tsv_columns": (0, 1)},
            UsageError,
            "--tsv-columns is 0 1, but must be two different columns from 1 on",
        ),
        ({"valid": FILES, "langs": "en-de"}, UsageError, "--valid needs --train"),
        ({"train": [FILES], "langs": "en"}, UsageError, "--langs is 'en', but must be source-target"),
        ({**OWN, "workers": 0}, UsageError, "--workers is 0, but must be at least 1"),
        (
            {"corpus": "demo", "vocab": Path("v"), "settings": {"vocab_size": 99}},
            UsageError,
            "--vocab and --vocab-size contradict each other",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_go_together_is_refused_before_anything_is_done(
    here: Path, options: dict[str, Any], error: type[AiaynError], problem: str
) -> None:
    with pytest.raises(error) as caught:
        run_prepare(PrepareOptions(**options))
    assert caught.value.problem == problem
    assert caught.value.hint
    assert list(here.iterdir()) == []


def test_the_result_prints_itself_as_a_table(here: Path) -> None:
    text = str(prepare(here, [*TRAIN, TRAIN[3], ("", "x"), ("", "y")]))
    lines = [line.rsplit(maxsplit=1) for line in text.splitlines()]
    assert text.startswith(f"{here / 'out'} (en-de), ")
    table = {label.strip(): number for label, number in lines[1:]}
    assert table["training pairs read"] == "303"
    assert table["dropped: repeated pair"] == "1"
    assert table["dropped: blank side"] == "2"
    assert "dropped: too long" not in table
    assert table["training pairs kept"] == "300"
    assert table["sub-words in the vocabulary"] == "90"
    assert len({len(line) for line in text.splitlines()[1:]}) == 1


def test_a_file_that_is_given_twice_is_counted_twice(here: Path) -> None:
    files = write_pairs(here, "train", TRAIN)
    result = prepare(here, train=[files, files], settings={"dedupe": False})
    assert result.origins == ((str(files[0]), 300, 300),) * 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such file names")
def test_file_names_that_are_not_utf_8_are_named_by_their_bytes(here: Path) -> None:
    names = [os.fsdecode(b"tr\xff.en"), "tr.de"]
    for name, path in zip(names, write_pairs(here, "train", TRAIN), strict=True):
        path.rename(here / name)
    result = prepare(here, train=[(Path(names[0]), Path(names[1]))], weights={names[0]: 2})
    assert result.origins == (("tr\\xff.en", 300, 600),)
    assert PreparedData.load(here / "out").manifest["inputs"][0]["path"] == "tr\\xff.en"


@pytest.mark.parametrize(
    ("name", "content"),
    [("hashes-00000.npy", None), ("text-00000.src", b"\xff\n" * 300), ("selection.json", b'{"dropped": 3}')],
)
def test_what_is_damaged_on_the_way_is_named_and_the_next_call_starts_over(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_make_vocabs", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(here, settings={"case_copies": 0.5})
    path = here / "out.partial" / ".steps" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path} is damaged: ") as caught:
        prepare(here, settings={"case_copies": 0.5})
    assert caught.value.hint == "run the same command again to start over"
    assert prepare(here, settings={"case_copies": 0.5}).pairs_read == 300


@pytest.mark.parametrize("change", [{"inputs": [3]}, {"splits": {"train": {"pairs_kept": 300}}}])
def test_a_damaged_manifest_is_named_when_the_same_is_asked_for_again(here: Path, change: dict[str, Any]) -> None:
    prepare(here)
    path = here / "out" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change), encoding="utf-8")
    with pytest.raises(DataError, match=r"manifest\.json is damaged: "):
        prepare(here)


def test_too_little_text_for_a_held_out_part_says_how_to_give_one(here: Path) -> None:
    with pytest.raises(DataError) as caught:
        prepare(here, [("a", "b"), ("a", "c")], valid=None, test=None)
    assert caught.value.problem == (
        f"{here / 'train.en'}: no training pair is left of 2 "
        "(1 overlap with validation or test text, 1 held out for validation)"
    )
    assert caught.value.hint == "give more training text, or validation text with --valid"


def test_data_of_an_earlier_version_is_the_same_data_unless_its_words_were_split_at_random(here: Path) -> None:
    prepare(here)
    path = here / "out" / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["settings"]["bpe_dropout"] = 0.0
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert prepare(here).done_before
    manifest["settings"]["bpe_dropout"] = 0.1
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DataError, match=r"prepared differently: bpe_dropout 0\.1 instead of none"):
        prepare(here)
