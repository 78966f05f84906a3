import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Aiayn

from aiayn_cli.score.metrics import bleu
from aiayn_cli.score.session import ScoreOptions, run_score

REFERENCE = [
    "Der Hund läuft über die Straße.",
    "Sie sagte: Halt, und alle hielten an.",
    "",
    "Zwei Männer spielen Fußball.",
]
HYPOTHESES = [
    "Der Hund rennt über die Straße.",
    "Sie sagte: Halt, und alle blieben stehen.",
    "",
    "Männer spielen Fußball.",
]
CHINESE = ["你好，世界。", "我是学生。"]
JAPANESE = ["今日は良い天気です。", "私は学生です。"]
KOREAN = ["안녕하세요 세계", "나는 학생입니다"]
THAI = ["ฉันชอบชาเขียว"]

Write = Callable[[str, list[str]], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write lines to a file of a name; give its path."""

    def write(name: str, lines: list[str]) -> str:
        data = "".join(line + "\n" for line in lines).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(tmp_path / name)

    return write


@pytest.fixture
def files(write: Write) -> list[str]:
    """The words of the command line that name a reference and hypotheses."""
    return [write("ref.de", REFERENCE), "--hyp", write("hyp", HYPOTHESES)]


def test_score_and_signature_go_to_stdout_and_nothing_else(write: Write, aiayn: Aiayn) -> None:
    code, out, err = aiayn("score", write("test.de.gz", REFERENCE), stdin="\n".join(HYPOTHESES).encode())
    assert (code, out) == (0, f"{bleu(HYPOTHESES, [REFERENCE])}\n")
    assert re.fullmatch("next: [^\n]*\n", err)


def test_json_is_one_object_with_all_that_was_found(files: list[str], write: Write, aiayn: Aiayn) -> None:
    other = write("other", REFERENCE)
    found = aiayn("score", other, *files, "--json", "--metric", "bleu").json
    expected = bleu(HYPOTHESES, [REFERENCE, REFERENCE])
    assert found["references"] == [other, files[0]]
    [system] = found["systems"]
    assert (system["hypotheses"], found["lines"]) == (files[2], 4)
    [score] = system["scores"]
    assert (score["metric"], score["score"], score["signature"]) == ("BLEU", expected.score, expected.signature)


def test_carriage_returns_and_tabs_in_the_files_change_nothing(files: list[str], write: Write, aiayn: Aiayn) -> None:
    odd = [line.replace(" ", "\t", 1).replace(" ", " \r", 1) + "\r" for line in HYPOTHESES]
    assert aiayn("score", files[0], "--hyp", write("odd", odd)).out == aiayn("score", *files).out


@pytest.mark.parametrize("option", ["--hyp", "--source"])
def test_a_line_count_mismatch_names_both_files_and_counts(
    option: str, files: list[str], write: Write, aiayn: Aiayn
) -> None:
    short = write("short", HYPOTHESES[:3])
    code, out, err = aiayn("score", *files, option, short)
    assert (code, out) == (1, "")
    assert f"error: {short} has 3 lines, but {files[0]} has 4\nhint: score the same test set" in err


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        ("empty --hyp ref", "empty is empty", "it must have one line for each sentence"),
        ("ref --hyp empty", "empty is empty", "it must have one line for each sentence"),
        (
            "ref",
            "stdin is empty: there are no translations",
            "give them with < FILE or --hyp FILE; files without an option are references",
        ),
        ("ref --hyp ref --source empty", "empty is empty", "it must have one line for each sentence"),
        ("ref --hyp empty --brackets", "empty is empty", "it must have one line for each sentence"),
        ("folder --hyp ref", "folder is a folder, not a file", "name a file in it"),
        ("ref --hyp folder", "folder is a folder, not a file", "name a file in it"),
        ("none --hyp ref", "none does not exist", "check the name and the folder"),
        ("ref --hyp none", "none does not exist", "check the name and the folder"),
        ("ref --hyp ref --by folder", "folder is a folder, not a file", "name a file in it"),
        ("ret", "ret does not exist", "did you mean ref?"),
    ],
)
def test_files_without_text_are_named(
    words: str, problem: str, hint: str, tmp_path: Path, write: Write, aiayn: Aiayn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    write("empty", [])
    write("ref", REFERENCE)
    assert aiayn("score", *words.split()) == (1, "", f"error: {problem}\nhint: {hint}\n")


@pytest.mark.parametrize(
    ("arguments", "tokenizer"),
    [
        (["test.zh"], "zh"),
        (["test.zh.gz"], "zh"),
        (["test.de"], "13a"),
        (["reference"], "13a"),
        (["reference", "-l", "en-zh"], "zh"),
        (["test.zh", "--langs", "en-de"], "13a"),
        (["test.zh", "--tokenize", "char"], "char"),
    ],
)
def test_the_tokeniser_follows_the_language_of_the_pair_or_of_the_file_name(
    write: Write, aiayn: Aiayn, arguments: list[str], tokenizer: str
) -> None:
    reference, hypotheses = write(arguments[0], ["我喜欢喝绿茶。"]), write("hyp", ["我喜欢喝红茶。"])
    code, out, err = aiayn("score", reference, *arguments[1:], "--hyp", hypotheses)
    assert code == 0
    assert f"|tok:{tokenizer}|" in out
    assert ("tokeniser zh, for target language zh" in err) == (tokenizer == "zh")


def test_text_that_looks_wrong_is_scored_with_a_warning_that_names_its_system(
    files: list[str], write: Write, aiayn: Aiayn
) -> None:
    reference, _, good = files
    marked = write("marked", [line.replace("ß", "@@ ß") for line in HYPOTHESES])
    code, out, err = aiayn("score", reference, "--hyp", marked, "--quiet")
    assert (code, out[:7]) == (0, "BLEU = ")
    assert "warning: 50% of the hypotheses contain sub-word marks" in err
    blank = write("blank", [""] * 4)
    err = aiayn("score", *files, "--hyp", blank).err
    assert f"warning: {blank}: every line of the hypotheses is blank" in err
    assert f"{good}:" not in err


# ---- several metrics and systems


def test_each_metric_has_its_line_and_signature(files: list[str], aiayn: Aiayn) -> None:
    lines = aiayn("score", *files, "--metric", "bleu,chrf++,ter", "--confidence").lines
    assert [line.partition(" = ")[0] for line in lines[::2]] == ["BLEU", "chrF2++", "TER"]
    assert all("(μ = " in line for line in lines[::2])
    assert all(line.startswith("nrefs:1|bs:1000|seed:12345|case:") for line in lines[1::2])


def test_systems_are_rows_of_a_table_with_the_tests_against_the_first(
    write: Write, aiayn: Aiayn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    worse = [line.replace("e", "x") for line in HYPOTHESES]
    for name, lines in (("ref", REFERENCE * 20), ("a", HYPOTHESES * 20), ("b", worse * 20)):
        write(name, lines)
    arguments = ["score", "ref", "--hyp", "a", "--hyp", "b"]
    assert aiayn(*arguments).lines[0].split() == ["system", "BLEU"]
    title, first, second, *signatures = aiayn(*arguments, "--compare", "--resamples", "50", "--trials", "60").lines
    assert title.split("  ")[0] == "system"
    assert title.endswith("difference  p bootstrap  p randomisation")
    assert (first.split()[0], first.split()[-1]) == ("a", "baseline")
    assert second.split()[0] == "b"
    assert second.split()[2].startswith("-")
    assert all(p.endswith("*") and float(p[:-1]) < 0.05 for p in second.split()[3:])
    assert "nrefs:1|bs:50|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0" in signatures
    assert "nrefs:1|ar:60|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0" in signatures
    assert (
        "p: probability of a difference at least this large if both systems were equally good; * marks p < 0.05"
        in signatures
    )


def test_the_paper_s_convention_stands_next_to_sacrebleu_s(files: list[str], aiayn: Aiayn) -> None:
    first, signature, second, method, *_ = aiayn("score", *files, "--compound-split").lines
    assert first.startswith("BLEU = ")
    assert "|tok:13a|" in signature
    assert second.startswith("compound-split tokenised BLEU = ")
    assert method.startswith("the paper's convention, not sacreBLEU")


# ---- what is looked at more closely


def test_rows_by_length_and_by_label_are_scores_of_those_lines_alone(
    files: list[str], write: Write, aiayn: Aiayn
) -> None:
    parts = aiayn("score", *files, "--by", write("labels", ["news", "talk", "talk", "news"]), "--json").json["parts"]
    expected = bleu([HYPOTHESES[0], HYPOTHESES[3]], [[REFERENCE[0], REFERENCE[3]]]).score
    assert [(part["part"], part["lines"]) for part in parts] == [("news", 2), ("talk", 2)]
    assert parts[0]["scores"] == [[pytest.approx(expected)]]
    *_, title, row = aiayn("score", *files, "--by", "length").lines
    assert title.split() == ["part", "lines", "BLEU"]
    assert row.split()[:3] == ["0-10", "words", "4"]


def test_the_worst_lines_show_what_differs_in_colour_on_a_terminal_only(write: Write, aiayn: Aiayn) -> None:
    reference, hypotheses = write("ref", REFERENCE[:2]), write("hyp", HYPOTHESES[:2])
    source = write("src", ["The dog runs across the street.", "She said: stop, and all stopped."])
    lines = aiayn("score", reference, "--hyp", hypotheses, "--worst", "1", "--source", source).lines[3:]
    assert lines[0].startswith("line 1: BLEU ")
    assert lines[1:4] == [
        "source       The dog runs across the street.",
        "reference    Der Hund [-läuft-] über die Straße.",
        "hypothesis   Der Hund {+rennt+} über die Straße.",
    ]
    result = run_score(ScoreOptions(references=[Path(reference)], hypotheses=[hypotheses], worst=1))
    assert "\x1b[31mrennt\x1b[0m" in result.text(colour=True)
    assert "\x1b[32mläuft\x1b[0m" in result.text(colour=True)
    assert "\x1b" not in str(result)


def test_sentences_are_json_lines_and_the_score_goes_to_stderr(files: list[str], aiayn: Aiayn) -> None:
    said = aiayn("score", *files, "--sentences", "--metric", "bleu,ter")
    assert said.code == 0
    assert [record["line"] for record in said.records] == [1, 2, 3, 4]
    assert said.records[3]["hypothesis"] == HYPOTHESES[3]
    assert said.records[3]["references"] == [REFERENCE[3]]
    assert said.records[2]["scores"] == {"BLEU": 0.0, "TER": 0.0}
    assert said.records[0]["scores"]["TER"] == pytest.approx(100 / 6)
    assert said.err.startswith("BLEU = ")
    first = aiayn("score", *files, "--hyp", files[0], "--sentences").records[0]
    assert first["hypotheses"] == [HYPOTHESES[0], REFERENCE[0]]
    assert first["scores"]["BLEU"][1] == pytest.approx(100)


# ---- what contradicts itself


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "no reference is named"),
        ("-", "stdin is named more than once"),
        ("{ref} --compare", "--compare needs at least two systems"),
        ("{ref} --hyp {ref} --hyp {ref}", "--hyp {ref} is named twice"),
        ("{ref} {ref} --hyp x", "reference {ref} is named twice"),
        ("{ref} -t wmt14 -l en-de", "-t wmt14 has its own references"),
        ("--echo src", "--echo needs a test set"),
        ("{ref} --hyp {ref} --json --sentences", "--sentences and --json both write to stdout"),
        ("{ref} --hyp a --hyp b --hyp c --html x", "--html shows one or two systems, not 3"),
        ("{ref} --by -", "stdin is named more than once"),
        ("{ref} --hyp {ref} --smooth-value 2", "--smooth-value 2 with --smooth exp"),
        ("{ref} --hyp {ref} --from x", "--from needs -t"),
        ("{ref} --hyp {ref} --html -", "--html - is not a file"),
        ("{ref} --hyp {ref} --html {ref}", "--html {ref} is one of the input files"),
        ("{ref} --hyp {ref} --by {ref}.x --html {ref}.x", "--html {ref}.x is one of the input"),
        ("{ref} --brackets --html x", "--brackets with --html, which is for text"),
        ("{ref} -t wmt14 -l en-de --echo src", "--echo scores no files"),
        ("{ref} --hyp {ref} -l en_de", "--langs is 'en_de', but must be source-target"),
        ("{ref} --hyp {ref} -l en-de-fr", "--langs is 'en-de-fr', but must be source-target"),
    ],
)
def test_what_contradicts_itself_is_wrong_usage(write: Write, aiayn: Aiayn, arguments: str, problem: str) -> None:
    reference = write("ref", REFERENCE)
    write("ref.x", REFERENCE)
    said = aiayn("score", *arguments.format(ref=reference).split())
    assert said.code == 2
    assert f"error: {problem.format(ref=reference)}" in said.err


@pytest.mark.parametrize(
    ("lines", "metric", "sign"),
    [
        (CHINESE, "bleu", "look Chinese, but no target language is given: BLEU's tokeniser 13a would"),
        (JAPANESE, "bleu,ter", "look Japanese, but no target language is given: BLEU's tok"),
        (JAPANESE, "ter", "TER by words would mislead; add -l, such as -l en-ja"),
        (JAPANESE, "chrf", ""),
        (KOREAN, "bleu", "look Korean, but no target language is given"),
        (KOREAN, "ter", ""),
        (["Das heißt 你好.", "Ja.", "Gut."], "bleu", ""),
        (THAI, "bleu", "warning: Thai has no blanks between words"),
    ],
)
def test_a_language_whose_words_13a_does_not_find_is_warned_of(
    write: Write, aiayn: Aiayn, lines: list[str], metric: str, sign: str
) -> None:
    reference = write("test.th" if lines is THAI else "ref", lines)
    code, _, err = aiayn("score", reference, "--hyp", reference, "--metric", metric)
    assert code == 0
    assert sign in err
    assert ("warning" in err) == bool(sign)
    assert "warning" not in aiayn("score", reference, "--hyp", reference, "--tokenize", "char").err


def test_a_suffix_that_is_no_language_of_moses_is_not_claimed_as_one(write: Write) -> None:
    reference = write("ref.txt", REFERENCE)
    options = ScoreOptions(references=[Path(reference)], hypotheses=[reference], compound_split=True)
    split = run_score(options).systems[0].compound_split
    assert split is not None
    assert "Moses tokens (en for txt, sacremoses" in split.method
