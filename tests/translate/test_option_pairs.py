"""Options of `aiayn translate`, two at a time: what each of them promises, or one line that refuses the pair."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from translation_models import Translate, make_checkpoint

from aiayn_cli.app import main
from aiayn_cli.recipe_keys import ModelConfig
from aiayn_cli.translate.ctranslate2_engine import load_package
from aiayn_cli.translate.trust import flags

SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=8, d_v=8)
LINES = ["hund", "", "<b>ich</b> 7"]
SMALL = ["--max-extra", "2"]  # quick, as is a beam of 2
FILES = {"prefix": "und\n\n\n", "terms.tsv": "hund\tkatze\n", "targets": "hund\n\nmaus\n"}

# HERE stands for a folder with FILES and with a second model, "other".
OPTIONS = {
    "--alignments": "--alignments",
    "--attention": "--attention HERE/page",
    "--engine": "--engine ctranslate2",
    "--format": "--format jsonl",
    "--glossary": "--glossary HERE/terms.tsv",
    "--int8": "--int8",
    "--json": "--json",
    "--markup": "--markup",
    "--min-length": "--min-length 6",
    "--nbest": "--nbest 2",
    "--output": "--output HERE/out",
    "--prefix": "--prefix HERE/prefix",
    "--quiet": "--quiet",
    "--report": "--report HERE/report",
    "--sample": "--sample",
    "--score-against": "--score-against HERE/targets",
    "--scores": "--scores",
    "-m": "-m HERE/other",
    **{f"--on-suspect {what}": f"--on-suspect {what}" for what in ("retry", "copy", "fail")},
}
BESIDE_SCORE_AGAINST = {"--score-against", "-m", "--output", "--format", "--quiet", "--json"}
REFUSED = [
    *({"--score-against", name} for name in OPTIONS if name not in BESIDE_SCORE_AGAINST),
    *({"--engine", name} for name in ("-m", "--glossary", "--sample")),
    {"--glossary", "--sample"},
]


@pytest.fixture(scope="module", autouse=True)
def _letters_once() -> Iterator[None]:
    """Look through Unicode once, and not for each of the hundreds of command lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flags, "find_letters", cache(flags.find_letters))
        yield


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    for name, content in FILES.items():
        (folder / name).write_text(content)
    for seed, name in enumerate(("model", "other"), start=1):
        make_checkpoint(folder / name, seed, shape=SHAPE)
    return folder


@pytest.fixture(scope="module")
def exported(here: Path) -> Path:
    load_package()
    assert main(["export", str(here / "model"), "--quiet"]) == 0  # --int8 rounds the same weights
    return here


def stdin_of(pair: set[str]) -> bytes:
    """The lines, as JSON with ids where that is read."""
    if "--format" not in pair:
        return "".join(f"{line}\n" for line in LINES).encode()
    records = (json.dumps({"id": number, "text": line}) for number, line in enumerate(LINES, start=1))
    return "".join(f"{record}\n" for record in records).encode()


def check_records(pair: set[str], out: str, n_best: int) -> None:
    """One record, or n_best, for each line, in order, with all that the options promise."""
    *records, end = out.split("\n")
    assert end == ""
    numbers = [number for number in range(1, len(LINES) + 1) for _ in range(n_best)]
    assert len(records) == len(numbers)
    for number, record in zip(numbers, records, strict=True):
        if "--format" in pair:
            found = json.loads(record)
            assert found["id"] == number
            text = found["translation" if "--score-against" in pair else "text"]
            assert ("alignment" in found) == ("--alignments" in pair)
            assert ("tokens" in found) == bool(pair & {"--scores", "--score-against"})
        else:
            assert record.count("\t") == len(pair & {"--scores", "--alignments", "--score-against"})
            fields = record.split("\t")
            if pair & {"--scores", "--score-against"}:
                float(fields[0])
            text = fields[1] if "--scores" in pair else fields[0]
        if "--score-against" not in pair:
            check_text(pair, number, text)


def check_text(pair: set[str], number: int, text: str) -> None:
    if "--on-suspect copy" in pair:
        assert text == LINES[number - 1]  # such a model writes nothing that does not look wrong
    elif number == 2:
        assert text == ""
    elif number == 3 and "--markup" in pair:
        assert (text.count("<b>"), text.count("</b>")) == (1, 1)
    elif number == 1 and "--prefix" in pair:
        assert text.startswith("und")
    elif number == 1 and "--glossary" in pair:
        assert "katze" in text


def check_object(pair: set[str], out: str, n_best: int) -> None:
    """--json: one object; what else would be on stdout is part of it."""
    result = json.loads(out)
    assert out.count("\n") == 1
    assert result["lines"] == len(LINES)
    if "--format" in pair and "--output" not in pair:  # what would be written without --json, where it would be
        scored = result["scores"] if "--score-against" in pair else []
        kept = scored or [each for line in result["translations"] for each in line]
        check_records(pair, "".join(json.dumps(each) + "\n" for each in kept), n_best)
        return
    if "--score-against" in pair:
        assert [len(scores) for scores in result["scores"]] == [2, 2, 2]
        return
    if "--output" in pair:
        assert result["translations"] is None
        return
    assert [len(outputs) for outputs in result["translations"]] == [n_best] * len(LINES)
    for number, outputs in enumerate(result["translations"], start=1):
        for output in outputs:
            check_text(pair, number, output["text"])
            assert (output["alignment"] is not None) == ("--alignments" in pair)


@pytest.mark.parametrize("first", OPTIONS)
def test_every_pair_of_options_keeps_its_promises_or_is_refused_in_one_line(
    first: str, here: Path, request: pytest.FixtureRequest, translate: Translate
) -> None:
    for pair in ({first, second} for second in list(OPTIONS)[list(OPTIONS).index(first) :]):
        if len([name for name in pair if name.startswith("--on-suspect")]) > 1:
            continue
        if "--engine" in pair:
            request.getfixturevalue("exported")
        for name in ("page", "report", "out"):
            (here / name).unlink(missing_ok=True)
        command = ["-m", f"{here}/model"]
        command += [] if "--score-against" in pair else SMALL
        command += [] if pair & {"--score-against", "--sample"} else ["--beam", "2"]
        command += [word.replace("HERE", str(here)) for name in sorted(pair) for word in OPTIONS[name].split(" ")]
        code, out, err = translate(*command, lines=stdin_of(pair))
        print(pair)  # shown where the next lines fail
        errors = [line for line in err.split("\n") if line.startswith("error: ")]
        n_best = 2 if "--nbest" in pair else 1
        if pair in REFUSED:
            assert (code in (1, 2), len(errors), out) == (True, 1, ""), err
            assert not any((here / name).exists() for name in ("page", "report", "out"))
        elif "--on-suspect fail" in pair:
            assert (code, len(errors)) == (1, 1), err
            assert errors[0].startswith("error: stdin:1: the translation is suspect: ")
            if "--json" in pair:
                result = json.loads(out)
                assert (result["lines"], result["translations"]) == (0, None if "--output" in pair else [])
                assert f"error: {result['stopped']}" == errors[0]
            else:
                assert out == ""
        else:
            assert (code, errors) == (0, []), err
            if "--output" in pair:
                check_records(pair, (here / "out").read_text(encoding="utf-8"), n_best)
            if "--json" in pair:
                check_object(pair, out, n_best)
            elif "--output" in pair:
                assert out == ""
            else:
                check_records(pair, out, n_best)
            if "--report" in pair:
                report = (here / "report").read_text(encoding="utf-8").split("\n")[:-1]
                assert [json.loads(line)["line"] for line in report] == [1, 2, 3]
            if "--attention" in pair and "--on-suspect copy" not in pair:  # what replaced a translation has none
                assert (here / "page").stat().st_size > 1_000
            if "--quiet" in pair:
                assert err == "" or "--score-against" in pair  # which warns of the blank line


def test_a_shortest_length_lengthens_what_the_source_allows(here: Path, translate: Translate) -> None:
    options = ["-m", here / "model", "--max-extra", "1", "--min-length", "9", "--format", "jsonl", "--scores"]
    [record] = translate(*options, lines=b'{"text": "hund"}\n').records
    assert len(record["tokens"]) == 10  # with the end token; such a model ends where it must
