import gzip
import io
import json
import re
from pathlib import Path

import pytest

from aiayn_cli.app import main
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


def written(path: Path, lines: list[str]) -> str:
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The words of the command line that name a reference and hypotheses."""
    return [written(tmp_path / "ref.de", REFERENCE), "--hyp", written(tmp_path / "hyp", HYPOTHESES)]


def test_score_and_signature_go_to_stdout_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = written(tmp_path / "test.de.gz", REFERENCE)
    stdin = io.TextIOWrapper(io.BytesIO("\n".join(HYPOTHESES).encode()), encoding="ascii")
    monkeypatch.setattr("sys.stdin", stdin)
    assert main(["score", reference]) == 0
    out, err = capsys.readouterr()
    assert out == f"{bleu(HYPOTHESES, [REFERENCE])}\n"
    assert re.fullmatch("next: [^\n]*\n", err)


def test_json_is_one_object_with_all_that_was_found(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, _, hypotheses = files
    other = written(tmp_path / "other", REFERENCE)
    assert main(["score", other, *files, "--json", "--metric", "bleu"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = bleu(HYPOTHESES, [REFERENCE, REFERENCE])
    assert found["references"] == [other, reference]
    [system] = found["systems"]
    assert (system["hypotheses"], found["lines"]) == (hypotheses, 4)
    [score] = system["scores"]
    assert (score["metric"], score["score"], score["signature"]) == ("BLEU", expected.score, expected.signature)


def test_carriage_returns_and_tabs_in_the_files_change_nothing(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *files]) == 0
    expected = capsys.readouterr().out
    odd = [line.replace(" ", "\t", 1).replace(" ", " \r", 1) + "\r" for line in HYPOTHESES]
    assert main(["score", files[0], "--hyp", written(tmp_path / "odd", odd)]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("option", ["--hyp", "--source"])
def test_a_line_count_mismatch_names_both_files_and_counts(
    option: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = written(tmp_path / "short", HYPOTHESES[:3])
    assert main(["score", *files, option, short]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: {short} has 3 lines, but {files[0]} has 4\nhint: score the same test set" in err


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["empty", "--hyp", "ref"], "empty is empty", "it must have one line for each sentence"),
        (["ref", "--hyp", "empty"], "empty is empty", "it must have one line for each sentence"),
        (["ref", "--hyp", "ref", "--source", "empty"], "empty is empty", "it must have one line for each sentence"),
        (["ref", "--hyp", "empty", "--brackets"], "empty is empty", "it must have one line for each sentence"),
        (["folder", "--hyp", "ref"], "folder is a folder, not a file", "name a file in it"),
        (["ref", "--hyp", "folder"], "folder is a folder, not a file", "name a file in it"),
        (["none", "--hyp", "ref"], "none does not exist", "check the name and the folder"),
        (["ref", "--hyp", "none"], "none does not exist", "check the name and the folder"),
        (["ref", "--hyp", "ref", "--by", "folder"], "folder is a folder, not a file", "name a file in it"),
    ],
)
def test_files_without_text_are_named(
    words: list[str], problem: str, hint: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    written(tmp_path / "empty", [])
    written(tmp_path / "ref", REFERENCE)
    assert main(["score", *words]) == 1
    assert capsys.readouterr() == ("", f"error: {problem}\nhint: {hint}\n")


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], tokenizer: str
) -> None:
    reference = written(tmp_path / arguments[0], ["我喜欢喝绿茶。"])
    hypotheses = written(tmp_path / "hyp", ["我喜欢喝红茶。"])
    assert main(["score", reference, *arguments[1:], "--hyp", hypotheses]) == 0
    out, err = capsys.readouterr()
    assert f"|tok:{tokenizer}|" in out
    assert ("tokeniser zh, for target language zh" in err) == (tokenizer == "zh")


@pytest.mark.parametrize("langs", ["de", "en-", "en_de", "e-d", "en-de-fr"])
def test_what_is_not_a_language_pair_is_refused(
    files: list[str], capsys: pytest.CaptureFixture[str], langs: str
) -> None:
    assert main(["score", *files, "-l", langs]) == 2
    assert f"--langs is '{langs}', but must be source-target" in capsys.readouterr().err


def test_text_that_looks_wrong_is_scored_with_a_warning_that_names_its_system(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, _, good = files
    marked = written(tmp_path / "marked", [line.replace("ß", "@@ ß") for line in HYPOTHESES])
    assert main(["score", reference, "--hyp", marked, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("BLEU = ")
    assert "warning: 50% of the hypotheses contain sub-word marks" in err
    blank = written(tmp_path / "blank", [""] * 4)
    assert main(["score", *files, "--hyp", blank]) == 0
    err = capsys.readouterr().err
    assert f"warning: {blank}: blank where a reference is not: 3 lines of 4" in err
    assert f"{good}:" not in err


def test_a_missing_reference_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "test.de", REFERENCE)
    assert main(["score", str(tmp_path / "test.en")]) == 1
    err = capsys.readouterr().err
    assert "test.en does not exist" in err
    assert "did you mean" in err


# ---- several metrics and systems


def test_each_metric_has_its_line_and_signature(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", *files, "--metric", "bleu,chrf++,ter", "--confidence"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert [line.partition(" = ")[0] for line in lines[::2]] == ["BLEU", "chrF2++", "TER", ""]
    assert all("(μ = " in line for line in lines[:-1:2])
    assert all(line.startswith("nrefs:1|bs:1000|seed:12345|case:") for line in lines[1::2])


def test_systems_are_rows_of_a_table_with_the_tests_against_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    worse = [line.replace("e", "x") for line in HYPOTHESES]
    for name, lines in (("ref", REFERENCE * 20), ("a", HYPOTHESES * 20), ("b", worse * 20)):
        written(tmp_path / name, lines)
    arguments = ["score", "ref", "--hyp", "a", "--hyp", "b"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.split("\n")[0].split() == ["system", "BLEU"]
    assert main([*arguments, "--compare", "--resamples", "50", "--trials", "60"]) == 0
    title, first, second, *signatures = capsys.readouterr().out.split("\n")
    assert title.split("  ")[0] == "system"
    assert title.endswith("difference  p bootstrap  p randomisation")
    assert first.split()[0] == "a"
    assert first.split()[-1] == "baseline"
    assert second.split()[0] == "b"
    assert second.split()[2].startswith("-")
    assert all(p.endswith("*") and float(p[:-1]) < 0.05 for p in second.split()[3:])
    assert "nrefs:1|bs:50|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0" in signatures
    assert "nrefs:1|ar:60|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0" in signatures
    assert (
        "p: probability of a difference at least this large if both systems were equally good; * marks p < 0.05"
        in signatures
    )


def test_the_paper_s_convention_stands_next_to_sacrebleu_s(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *files, "--compound-split"]) == 0
    first, signature, second, method, *_ = capsys.readouterr().out.split("\n")
    assert first.startswith("BLEU = ")
    assert "|tok:13a|" in signature
    assert second.startswith("compound-split tokenised BLEU = ")
    assert method.startswith("the paper's convention, not sacreBLEU")


# ---- what is looked at more closely


def test_rows_by_length_and_by_label_are_scores_of_those_lines_alone(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = written(tmp_path / "labels", ["news", "talk", "talk", "news"])
    assert main(["score", *files, "--by", labels, "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    expected = bleu([HYPOTHESES[0], HYPOTHESES[3]], [[REFERENCE[0], REFERENCE[3]]]).score
    assert [(part["part"], part["lines"]) for part in parts] == [("news", 2), ("talk", 2)]
    assert parts[0]["scores"] == [[pytest.approx(expected)]]
    assert main(["score", *files, "--by", "length"]) == 0
    *_, title, row, _ = capsys.readouterr().out.split("\n")
    assert title.split() == ["part", "lines", "BLEU"]
    assert row.split()[:3] == ["0-10", "words", "4"]


def test_the_worst_lines_show_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [written(tmp_path / "ref", REFERENCE[:2]), "--hyp", written(tmp_path / "hyp", HYPOTHESES[:2])]
    source = written(tmp_path / "src", ["The dog runs across the street.", "She said: stop, and all stopped."])
    assert main(["score", *files, "--worst", "1", "--source", source]) == 0
    lines = capsys.readouterr().out.split("\n")[3:]
    assert lines[0].startswith("line 1: BLEU ")
    assert lines[1:4] == [
        "source       The dog runs across the street.",
        "reference    Der Hund [-läuft-] über die Straße.",
        "hypothesis   Der Hund {+rennt+} über die Straße.",
    ]


def test_differences_are_coloured_on_a_terminal_only(tmp_path: Path) -> None:
    reference, hypotheses = (
        written(tmp_path / "ref", ["Der Hund läuft."]),
        written(tmp_path / "hyp", ["Der Hund rennt."]),
    )
    result = run_score(ScoreOptions(references=[Path(reference)], hypotheses=[hypotheses], worst=1))
    assert "\x1b[31mrennt\x1b[0m" in result.text(colour=True)
    assert "\x1b[32mläuft\x1b[0m" in result.text(colour=True)
    assert "\x1b" not in str(result)


def test_sentences_are_json_lines_and_the_score_goes_to_stderr(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *files, "--sentences", "--metric", "bleu,ter"]) == 0
    out, err = capsys.readouterr()
    records = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [record["line"] for record in records] == [1, 2, 3, 4]
    assert records[3]["hypothesis"] == HYPOTHESES[3]
    assert records[3]["references"] == [REFERENCE[3]]
    assert records[2]["scores"] == {"BLEU": 0.0, "TER": 0.0}
    assert records[0]["scores"]["TER"] == pytest.approx(100 / 6)
    assert err.startswith("BLEU = ")
    assert main(["score", *files, "--hyp", files[0], "--sentences"]) == 0
    first = json.loads(capsys.readouterr().out.split("\n")[0])
    assert first["hypotheses"] == [HYPOTHESES[0], REFERENCE[0]]
    assert first["scores"]["BLEU"][1] == pytest.approx(100)


# ---- what contradicts itself


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "no reference is named"),
        (["-"], "stdin is named more than once"),
        (["{ref}", "--compare"], "--compare needs at least two systems"),
        (["{ref}", "--hyp", "{ref}", "--hyp", "{ref}"], "--hyp {ref} is named twice"),
        (["{ref}", "{ref}", "--hyp", "x"], "reference {ref} is named twice"),
        (["{ref}", "-t", "wmt14", "-l", "en-de"], "-t wmt14 has its own references"),
        (["--echo", "src"], "--echo without a test set"),
        (["{ref}", "--hyp", "{ref}", "--json", "--sentences"], "--sentences and --json both write to stdout"),
        (["{ref}", "--hyp", "a", "--hyp", "b", "--hyp", "c", "--html", "x"], "--html shows one or two systems, not 3"),
        (["{ref}", "--by", "-"], "stdin is named more than once"),
        (["{ref}", "--hyp", "{ref}", "--smooth-value", "2"], "--smooth-value 2 with --smooth exp"),
        (["{ref}", "--hyp", "{ref}", "--from", "x"], "--from x without -t"),
        (["{ref}", "--hyp", "{ref}", "--html", "-"], "--html - is not a file"),
        (["{ref}", "--hyp", "{ref}", "--html", "{ref}"], "--html {ref} is one of the input files"),
        (["{ref}", "--hyp", "{ref}", "--by", "{ref}.x", "--html", "{ref}.x"], "--html {ref}.x is one of the input"),
        (["{ref}", "--brackets", "--html", "x"], "--brackets with --html, which is for text"),
        (["{ref}", "-t", "wmt14", "-l", "en-de", "--echo", "src"], "--echo scores no files"),
    ],
)
def test_what_contradicts_itself_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    reference = written(tmp_path / "ref", REFERENCE)
    written(tmp_path / "ref.x", REFERENCE)
    assert main(["score", *(argument.format(ref=reference) for argument in arguments)]) == 2
    assert f"error: {problem.format(ref=reference)}" in capsys.readouterr().err


def test_a_language_whose_words_13a_does_not_find_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = written(tmp_path / "test.th", ["ฉันชอบชาเขียว"])
    assert main(["score", reference, "--hyp", reference]) == 0
    assert "warning: Thai has no blanks between words" in capsys.readouterr().err
    assert main(["score", reference, "--hyp", reference, "--tokenize", "char"]) == 0
    assert "warning" not in capsys.readouterr().err


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
    ],
)
def test_a_language_that_the_script_tells_but_nobody_named_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str], metric: str, sign: str
) -> None:
    reference = written(tmp_path / "ref", lines)
    assert main(["score", reference, "--hyp", reference, "--metric", metric]) == 0
    err = capsys.readouterr().err
    assert sign in err
    assert ("warning" in err) == bool(sign)
    assert main(["score", reference, "--hyp", reference, "--tokenize", "char"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_suffix_that_is_no_language_of_moses_is_not_claimed_as_one(tmp_path: Path) -> None:
    reference = written(tmp_path / "ref.txt", REFERENCE)
    options = ScoreOptions(references=[Path(reference)], hypotheses=[reference], compound_split=True)
    split = run_score(options).systems[0].compound_split
    assert split is not None
    assert "Moses tokens (en for txt, sacremoses" in split.method
