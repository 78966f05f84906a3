"""`aiayn prepare` as typed: options become one call, results go to stdout, the rest to stderr."""

from pathlib import Path

import pytest
from commands import Aiayn
from made_pairs import write_pairs

from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.prepare.command import repeat_option

SENTENCES = [(f"the house number {i} is big", f"das Haus Nummer {i} ist groß") for i in range(60)]


@pytest.fixture(autouse=True)
def here(here: Path) -> Path:
    for name, pairs in (("a", SENTENCES[:30]), ("b", SENTENCES[30:50]), ("v", SENTENCES[50:57]), ("t", SENTENCES[57:])):
        write_pairs(Path(), name, pairs)
    return here


def test_files_of_all_kinds_on_one_command_line(aiayn: Aiayn) -> None:
    line = (
        "prepare --train a.en a.de --train b.en b.de --valid v.en v.de --test t.en t.de --langs en-de --out out "
        "--vocab-size 60 --max-length 40 --max-ratio 3 --no-dedupe --on-bad-bytes drop --workers 1 --seed 5 "
        "--set data.max_words=30 data.drop_identical=false --set data.drop_no_letters=false "
        "--set data.drop_wrong_script=false --set data.drop_overlap=false --set data.drift_alarm=false "
        "--set data.case_copies=0 --set data.normalise_punctuation=true --set data.moses_tokenise=true "
        "--set data.vocab_type=unigram --set data.separate_vocabs=true"
    )
    code, out, err = aiayn(*line.split())
    assert code == 0
    assert out.startswith("out (en-de), ")
    assert "training pairs kept" in out
    assert err == (
        "the source text has only 32 sub-words, so the vocabulary has that many, not 60\n"
        "the target text has only 34 sub-words, so the vocabulary has that many, not 60\n"
        "recipe: mini (50 pairs: mini is for up to 15,000)\n"
        "next: aiayn train --data out\n"
    )
    data = PreparedData.load(Path("out"))
    assert data.manifest["settings"] == {
        "vocab_size": 60, "max_length": 40, "max_ratio": 3.0, "max_words": 30, "dedupe": False,
        "normaliser": 1,
        "drop_identical": False, "drop_no_letters": False, "drop_wrong_script": False, "drop_overlap": False,
        "drift_alarm": False, "case_copies": 0.0, "normalise_punctuation": True, "moses_tokenise": True,
        "vocab_type": "unigram", "separate_vocabs": True, "byte_fallback": False,
        "on_bad_bytes": "drop", "seed": 5,
    }  # fmt: skip
    assert data.valid is not None
    assert data.test is not None
    assert (len(data.train), len(data.valid), len(data.test)) == (50, 7, 3)


def test_bytes_stand_for_characters_that_training_never_saw(aiayn: Aiayn) -> None:
    Path("v.de").write_text("漢字\n" * 7, "utf-8")
    line = "prepare --train a.en a.de --valid v.en v.de --langs en-de --vocab-size 330 --set data.case_copies=0.4"
    for name, option, unknown in (("plain", "", 7), ("bytes", "--set data.byte_fallback=true", 0)):
        out = aiayn(*line.split(), "--out", name, *option.split()).out
        assert PreparedData.load(Path(name)).manifest["splits"]["valid"]["unknown_tokens"] == unknown
    assert "\n  copies in upper case" in out
    assert "\n  copies in title case" in out


def test_json_is_one_object_on_stdout(aiayn: Aiayn) -> None:
    line = "prepare --train a.en a.de b.en b.de --langs en-de --vocab-size 60 --json --quiet"
    said = aiayn(*line.split())
    result = said.json
    assert (result["out"], result["pairs_read"], result["held_out"]) == ("prepared/en-de", 50, 2)
    assert (said.code, said.err) == (0, "")


def test_a_vocabulary_and_a_recipe_can_be_named(aiayn: Aiayn) -> None:
    recipe = "--recipe mine.yaml"
    Path("mine.yaml").write_text("data:\n  corpus: mine\n  vocab_size: 50\n")
    files = "--train a.en a.de --valid v.en v.de --langs en-de"
    assert aiayn(*f"prepare {files} {recipe}".split()).code == 0
    assert aiayn(*f"prepare {files} --vocab prepared/mine --out second".split()).code == 0
    data = PreparedData.load(Path("second"))
    assert data.vocab_size == 50
    assert data.vocab_path.read_bytes() == Path("prepared/mine/vocab.model").read_bytes()


def test_the_list_names_each_corpus_with_its_languages(aiayn: Aiayn) -> None:
    code, out, err = aiayn("prepare", "--list")
    assert out.startswith("corpus          langs        pairs  download  licence\n")
    assert "\nwmt14-en-de     en-de    4,520,620   1.70 GB  research use; see statmt.org\n" in out
    assert "\n  --like fairseq: with News Commentary v12; every 100th training pair is for validation\n" in out
    assert (code, err) == (0, "")
    corpora = aiayn("prepare", "--list", "--json").json["corpora"]
    assert [corpus["name"] for corpus in corpora][:2] == ["demo", "wmt14-en-de"]
    assert corpora[1]["pairs"] == {"number": 4_520_620, "approximate": False}


A = "--train a.en a.de --langs en-de"
WHOLE = "but must be a name and a whole number from 1 to 9999"


@pytest.mark.parametrize(
    ("line", "code", "problem"),
    [
        ("", 2, "nothing to prepare"),
        ("dmeo", 1, "unknown corpus 'dmeo'"),
        ("--train a.en --langs en-de", 2, "--train needs files in pairs, but has 1: a.en"),
        ("--train a.en a.de b.en --langs en-de", 2, "--train needs files in pairs, but has 3: a.en, a.de, b.en"),
        ("--train a.en a.de", 2, "--train needs --langs"),
        (f"{A} --weight a.en=0", 2, f"--weight is 'a.en=0', {WHOLE}"),
        (f"{A} --weight 3", 2, f"--weight is '3', {WHOLE}"),
        (f"{A} --weight b.en=3", 2, "--weight b.en=3: no corpus, part or file b.en"),
        ("--train a.en v.de --langs en-de", 1, "a.en has 30 lines, but v.de has 7"),
        ("--train a.en none.de --langs en-de", 1, "none.de does not exist"),
        (f"{A} --max-length 0", 2, "--max-length is 0, but must be at least 1"),
        (f"{A} --vocab-size 99 --set data.byte_fallback=true", 2, "--vocab-size is 99, but must be at least 300"),
        (f"{A} --vocab a.en --set data.vocab_type=bpe", 2, "--vocab and data.vocab_type contradict each other"),
        ("demo --bpe-dropout 0.1", 2, "no such option: --bpe-dropout"),
        ("a.en a.de", 2, "unexpected argument: a.de"),
        ("a.en", 2, "a.en is a file, but the name of a corpus belongs here"),
        (f"{A} --vocab-size 10", 1, "10 sub-words are too few for the text: 55 % of its characters would be unknown"),
        ("demo --set data.corpus=mine", 2, "--set data.corpus=mine: the corpus is an argument"),
        ("demo --case-copies=0.1", 2, "no such option: --case-copies"),
        ("demo --set model.d_model=8", 1, "--set model.d_model=8: model.d_model is not a setting of data"),
        ("demo --set data.max_word=8", 1, "--set data.max_word=8: unknown setting data.max_word"),
        ("demo --vocab-size 2147483648", 2, "--vocab-size is 2147483648, but must be at most 1000000"),
        ("demo --max-ratio inf", 2, "--max-ratio is inf, but must be a number"),
        ("demo --max-ratio 1e999", 2, "--max-ratio is inf, but must be a number"),
        ("demo --max-ratio nan", 2, "--max-ratio is nan, but must be at least 1.0"),
        (f"{A} --out .", 1, ". exists and is not an empty folder"),
        (f"demo --weight demo={'9' * 5_000}", 2, f"--weight is 'demo={'9' * 5_000}', {WHOLE}"),
        ("demo --set data.case_copies=1.5", 2, "data.case_copies is 1.5, but must be in [0, 1)"),
        ("--train a.en a.de --valid v.en v.de --valid a.en a.de --langs en-de", 2, "--valid is given more than once"),
        ("--train a.en a.de --test v.en v.de --test=a.en a.de --langs en-de", 2, "--test is given more than once"),
        ("demo --seed 99999999999999999999", 2, "--seed is 99999999999999999999, but must be from 0 to 4294967295"),
        ("demo --quiet --verbose", 2, "--quiet and --verbose contradict each other"),
    ],
)
def test_mistakes_are_answered_with_a_problem_and_a_hint(
    here: Path, aiayn: Aiayn, line: str, code: int, problem: str
) -> None:
    before = sorted(here.iterdir())
    said = aiayn("prepare", *line.split())
    error, hint = said.err.splitlines()[-2:]
    assert (said.code, said.out) == (code, "")
    assert error == f"error: {problem}"
    assert hint.startswith("hint: ")
    assert [path for path in sorted(here.iterdir()) if path.name != "prepared"] == before


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("--train a b", "--train a --train b"),
        ("--train a b --train c d --seed 3", "--train a --train b --train c --train d --seed 3"),
        ("--train a b c d", "--train a --train b --train c --train d"),
        ("--valid v w --train a b", "--valid v w --train a --train b"),
        ("--train a - -q x", "--train a --train - -q x"),
        ("--train=a b --train=c=d e", "--train a --train b --train c=d --train e"),
        ("demo", "demo"),
        ("--train", "--train"),
        ("--set a.b=3 a.c=no demo --workers 1", "--set a.b=3 --set a.c=no demo --workers 1"),  # a corpus is no setting
        ("", ""),
    ],
)
def test_an_option_is_put_before_each_of_its_values(typed: str, read: str) -> None:
    assert repeat_option(typed.split(), "--set" if "--set" in typed else "--train") == read.split()


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("--max-words", "max_words=VALUE"),
        ("--keep-no-letters", "drop_no_letters=false"),
        ("--no-drift-alarm", "drift_alarm=false"),
        ("--moses-tokenise", "moses_tokenise=true"),
        ("--joint-vocab", "separate_vocabs=false"),
    ],
)
def test_an_option_of_earlier_versions_names_its_setting(aiayn: Aiayn, option: str, setting: str) -> None:
    expected = f"error: no such option: {option}\nhint: write --set data.{setting}\n"
    assert aiayn("prepare", "demo", option) == (2, "", expected)


@pytest.mark.parametrize(
    ("langs", "said"),
    [
        ("english-de", ["english is not a known language code, so its script is not checked; did you mean en?"]),
        ("xx-qq", ["xx is not a known language code", "qq is not a known language code"]),
        ("eng-deu_Latn", []),
        ("en-zh_Hans", []),
    ],
)
def test_an_unknown_language_code_is_mentioned_with_the_nearest(aiayn: Aiayn, langs: str, said: list[str]) -> None:
    line = f"prepare --train a.en a.de --langs {langs} --vocab-size 60 --set data.drop_wrong_script=false"
    code, _, err = aiayn(*line.split())
    lines = [line for line in err.split("\n") if "known language" in line]
    assert (code, len(lines)) == (0, len(said))
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True))


def test_files_named_after_the_other_language_are_mentioned(aiayn: Aiayn) -> None:
    _, _, err = aiayn("prepare", "--train", "a.en", "a.de", "--langs", "de-en", "--vocab-size", "60")
    assert "warning: a.en is given as de, a.de as en; did you mean --langs en-de?" in err
