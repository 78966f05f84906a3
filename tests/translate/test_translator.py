"""Translator, the Python side of `aiayn translate`: the command's own outputs, silent, safe between threads."""

import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from commands import Aiayn

import aiayn_cli
from aiayn_cli import Translator
from aiayn_cli.errors import AiaynError, CheckpointError, UsageError

LINES = ["der hund läuft", "", "die katze schläft im haus", "das haus"]


@pytest.fixture
def translator(model: Path) -> Translator:
    return Translator.load(model, precision="fp32", device="cpu")


def test_the_command_and_python_write_the_same_and_line_ends_inside_a_line_are_blanks(
    translator: Translator, model: Path, aiayn: Aiayn
) -> None:
    command = ["translate", "-m", model, "--precision", "fp32", "--device", "cpu", "-q"]
    assert translator.translate(LINES) == aiayn(*command, stdin="".join(f"{line}\n" for line in LINES).encode()).lines
    assert translator.translate(["der hund\nläuft"]) == translator.translate(["der hund läuft"])


def test_nothing_is_said(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Translator.load(model, device="cpu") as translator:
        translator.translate([*LINES, "der " * 400])
        translator.score(LINES, LINES)
    assert capfd.readouterr() == ("", "")


def test_the_best_outputs_come_with_scores_flags_and_alignments(model: Path) -> None:
    translator = Translator.load(str(model), beam=3, nbest=2, alignments=True, device="cpu", precision="fp32")
    blank, outputs = translator.translate_n_best(["", LINES[0]])
    assert [output.text for output in blank] == ["", ""]
    assert math.isnan(blank[0].score)
    assert len(outputs) == 2
    assert outputs[0].score >= outputs[1].score
    assert all(output.log_prob <= output.score <= 0 for output in outputs)
    assert all(source < 3 for source, _ in outputs[0].alignment or ())
    assert len(translator.translate_n_best([LINES[0]], nbest=3)[0]) == 3
    with pytest.raises(UsageError, match=r"^nbest=4 is more") as caught:
        translator.translate_n_best([LINES[0]], nbest=4)
    assert caught.value.hint == "add beam=4"


def test_a_translation_s_score_is_its_own_log_prob(translator: Translator) -> None:
    [[best]] = translator.translate_n_best([LINES[0]])
    [given, blank] = translator.score([LINES[0], ""], [best.text, ""])
    if translator.loaded.codec.encode_tgt([best.text])[0] == list(best_tokens(translator, LINES[0])):
        assert given == pytest.approx(best.log_prob, abs=1e-4)
    assert blank != blank  # NaN
    with pytest.raises(ValueError, match="zip"):
        translator.score(["a", "b"], ["c"])


def best_tokens(translator: Translator, line: str) -> tuple[int, ...]:
    return translator.lines.translate_n_best([line], None)[0][0].parts[0].tgt


def test_threads_wait_for_each_other(translator: Translator) -> None:
    expected, found = translator.translate(LINES), [[""]] * 4

    def work(number: int) -> None:
        found[number] = translator.translate(LINES)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_what_is_wrong_is_an_exception(translator: Translator, model: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="list of lines"):
        translator.translate("der hund")
    with pytest.raises(ValueError, match="line 2 holds half of a surrogate pair"):
        translator.translate(["hund", "\ud800"])
    with pytest.raises(AiaynError, match="nowhere"):
        Translator.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError):
        Translator.load(tmp_path)
    for wrong in ({"beem": 4}, {"nbest": 0}, {"beam": "4"}, {"on_suspect": "fail"}, {"precision": "fp16"}, {"int8": 1}):
        with pytest.raises((TypeError, UsageError), match=next(iter(wrong))):
            Translator.load(model, **wrong)  # type: ignore[arg-type]
    assert translator.translate(line for line in LINES) == translator.translate(LINES)
    with pytest.raises(TypeError, match="line 2 is of type NoneType"):
        translator.translate(["hund", None])  # type: ignore[list-item]
    assert in_a_fork(translator) == "a forked process cannot use the translator of its parent"
    translator.close()
    translator.close()
    with pytest.raises(ValueError, match="closed"):
        translator.translate(LINES)
    assert "Translator" in aiayn_cli.__all__
    with pytest.raises(AttributeError, match="Nothing"):
        _ = aiayn_cli.Nothing


def in_a_fork(translator: Translator) -> str:
    """The error for who forks while another thread translates."""
    ours, theirs = os.pipe()
    with translator._lock:
        if (child := os.fork()) == 0:
            try:
                with translator:  # its end closes nothing
                    translator.translate(LINES)
            except BaseException as error:
                os.write(theirs, str(error).encode())
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours) as said:
        return said.read()


@pytest.mark.parametrize(
    ("options", "problem", "hint"),
    [
        ({"temperature": 0.5}, "temperature=0.5 needs sample=True", "add sample=True, or drop temperature"),
        ({"sample": True, "beam": 2}, "beam=2 has no effect with sample=True", "drop one of them; nbest is the number"),
        ({"sample": True, "nbest": 1_001}, "nbest=1001 is more than 1,000", "with another seed"),
        ({"min_length": 1_000}, "min_length=1000 is more than the 999 tokens", "give a smaller number"),
        ({"tree_rules": False}, "tree_rules=False is for parsers", "drop it"),
        ({"beam": 1_001}, "beam is 1001, but must be at most 1000", ""),
        ({"engine": "ctranslate2", "precision": "bf16"}, 'engine="ctranslate2" does not support precision="bf16"', ""),
        ({"engine": "ctranslate2", "int8": True}, "d_k is 6 and d_v 10", 'translate with engine="torch" instead'),
    ],
)
def test_errors_name_the_keywords(model: Path, options: dict[str, Any], problem: str, hint: str) -> None:
    with pytest.raises(AiaynError) as caught:
        Translator.load(model, **options)
    assert problem in str(caught.value)
    assert hint in caught.value.hint
