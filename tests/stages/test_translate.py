import bz2
import gzip
import io
import json
import lzma
import math
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aiayn_cli.app import main
from aiayn_cli.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from aiayn_cli.config import DecodingConfig, ModelConfig, TextConfig
from aiayn_cli.data.codec import Codec
from aiayn_cli.data.vocab import Vocab
from aiayn_cli.data.vocab_training import train_vocab
from aiayn_cli.decoding.markup import find_markup
from aiayn_cli.decoding.translation import Translation
from aiayn_cli.decoding.translator import Translator
from aiayn_cli.device import Device
from aiayn_cli.model.build import build_model
from aiayn_cli.stages.translate import run_translate

LINES = ["der hund läuft", "", "die katze springt und läuft", " \u3000", "hund", "eine maus sieht die katze"]
DECODING = DecodingConfig(beam_size=3, alpha=0.7, max_extra=5, batch_tokens=60)


def make_checkpoint(
    path: Path, seed: int, corpus: str = "der die eine hund katze maus läuft springt sieht und"
) -> Path:
    vocab_file = path.parent / f"{path.name}.vocab"
    vocab_file.write_bytes(train_vocab(Counter(corpus.split(" ")) + Counter("abcdefghijklmnopqrstuvwxyz"), 60))
    vocab = Vocab.load(vocab_file)
    shape = ModelConfig(n_encoder_layers=1, n_decoder_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=6, d_v=10)
    torch.manual_seed(seed)
    model = build_model(shape, vocab.size)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embedding" not in name:
                weight.mul_(3)  # fresh weights hardly look at the source
    checkpoint = Checkpoint(
        path=path, step=1200 + seed, model=shape, decoding=DECODING, vocab_size=vocab.size, vocab_sha256=vocab.sha256,
        data_sha256="d", src_lang="de", tgt_lang="en", run_id="r",
    )  # fmt: skip
    save_checkpoint(checkpoint, dict(model.named_parameters()), vocab_file)
    return path


def translations(
    paths: list[Path], lines: list[str], decoding: DecodingConfig = DECODING, n_best: int = 1
) -> list[list[Translation]]:
    """What the Translator itself says."""
    models = []
    for checkpoint in map(load_checkpoint, paths):
        models.append(build_model(checkpoint.model, checkpoint.vocab_size).eval())
        checkpoint.load_into(models[-1])
    vocab = Codec.load(paths[0], TextConfig(), "de", "en")
    cpu = Device(torch.device("cpu"), torch.float32, 1, "")
    return Translator(models, vocab, cpu, decoding, n_best=n_best).translate_n_best(lines)


def best(outputs: list[list[Translation]]) -> str:
    return "".join(each[0].text + "\n" for each in outputs)


def feed_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "one", seed=1)


def test_stdin_is_translated_to_stdout_line_by_line_and_all_else_goes_to_stderr(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, "\r\n".join(LINES).encode())
    assert main(["translate", "--model", str(model), "--precision", "fp32"]) == 0
    out, err = capsys.readouterr()
    assert out == best(translations([model], LINES))
    assert out.count("\n") == 6
    assert len(set(out.split("\n"))) > 3
    assert f"model: {model}, de-en, step 1,201" in err
    assert "device: CPU" in err
    assert "translated 6 lines in " in err
    assert ", 2 blank" in err


def test_quiet_says_nothing_on_stderr(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("hund\n")
    assert main(["translate", "-m", str(model), "-i", str(tmp_path / "in"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_without_a_model_the_newest_run_is_taken_and_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = tmp_path / "runs" / "first" / "checkpoints"
    checkpoints.mkdir(parents=True)
    make_checkpoint(checkpoints / "step-00001207", seed=7)
    feed_stdin(monkeypatch, b"hund\n")
    assert main(["translate"]) == 0
    assert "model: runs/first/checkpoints/step-00001207, de-en, step 1,207" in capsys.readouterr().err


def test_a_file_is_written_under_its_name_only_when_all_is_done(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in.gz", tmp_path / "out"
    source.write_bytes(gzip.compress("\n".join(LINES).encode()))
    output.write_text("old")
    arguments = ["translate", "-m", str(model), "-o", str(output), "--precision", "fp32"]
    assert main([*arguments, "-i", str(source)]) == 0
    assert output.read_text(encoding="utf-8") == best(translations([model], LINES))
    assert capsys.readouterr().out == ""
    output.write_text("old")
    source.write_bytes(source.read_bytes()[:-9])  # cut short
    assert main([*arguments, "-i", str(source)]) == 1
    assert output.read_text() == "old"
    assert "cannot be read after record" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.gz", "out", "out.unfinished"]


def test_a_minus_is_stdout_and_a_pipe_with_a_name_is_written_and_not_replaced(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["translate", "-m", str(model), "--precision", "fp32", "-o"]
    feed_stdin(monkeypatch, b"hund\n")
    assert main([*arguments, "-"]) == 0
    expected = best(translations([model], ["hund"]))
    assert capsys.readouterr().out == expected
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    feed_stdin(monkeypatch, b"hund\n")
    assert main([*arguments, "pipe"]) == 0
    assert os.read(reader, 1 << 16).decode() == expected
    os.close(reader)
    assert Path("pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_options_override_the_models_own_settings(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, "\n".join(LINES).encode())
    options = ["--beam", "5", "--alpha", "2", "--max-extra", "2", "--batch-tokens", "11", "--nbest", "4", "--scores"]
    assert main(["translate", "-m", str(model), "--precision", "fp32", *options]) == 0
    decoding = replace(DECODING, beam_size=5, alpha=2.0, max_extra=2, batch_tokens=11)
    expected = [each for line in translations([model], LINES, decoding, n_best=4) for each in line]
    found = [line.split("\t") for line in capsys.readouterr().out.split("\n")[:-1]]
    assert len(found) == 24
    assert [text for _, text in found] == [each.text for each in expected]
    assert [float(score) for score, _ in found] == pytest.approx([each.score for each in expected], abs=1e-3)


def test_two_models_are_an_ensemble(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second = make_checkpoint(tmp_path / "two", seed=2)
    feed_stdin(monkeypatch, "\n".join(LINES).encode())
    assert main(["translate", "-m", str(model), "-m", str(second), "--precision", "fp32"]) == 0
    assert capsys.readouterr().out == best(translations([model, second], LINES))


def test_models_with_different_vocabularies_are_no_ensemble(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_checkpoint(tmp_path / "other", seed=2, corpus="le la une chien chat souris court saute voit et")
    (tmp_path / "in").write_text("hund\n")
    assert main(["translate", "-m", str(model), "-m", str(other), "-i", str(tmp_path / "in")]) == 1
    assert f"{model} and {other} have different vocabularies" in capsys.readouterr().err


def test_models_of_different_languages_are_no_ensemble(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(model, tmp_path / "back")
    known = json.loads((other / "model.json").read_text())
    (other / "model.json").write_text(json.dumps({**known, "src_lang": "en", "tgt_lang": "de"}))
    assert main(["translate", "-m", str(model), "-m", str(other)]) == 1
    assert "have different languages" in capsys.readouterr().err


def test_a_vocabulary_that_is_not_the_models_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = make_checkpoint(tmp_path / "changed", seed=1)
    other = make_checkpoint(tmp_path / "other", seed=1, corpus="le la une chien chat souris court saute voit et")
    (changed / "vocab.model").write_bytes((other / "vocab.model").read_bytes())
    (tmp_path / "in").write_text("hund\n")
    assert main(["translate", "-m", str(changed), "-i", str(tmp_path / "in")]) == 1
    assert "is not the vocabulary that the model was trained with" in capsys.readouterr().err


def test_bytes_that_are_no_text_keep_their_line(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [b"hund", b"l\xe4uft", b"katze", b"a\0b", *[b"\xff"] * 5, b"maus"]
    feed_stdin(monkeypatch, b"\n".join(lines) + b"\n")
    assert main(["translate", "-m", str(model), "--precision", "fp32", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out == best(translations([model], ["hund", "", "katze", "", *[""] * 5, "maus"]))
    assert "warning: stdin:2: not UTF-8, or holds NUL: left blank" in err
    assert err.count("left blank") == 5
    assert "7 lines of stdin in all could not be read" in err


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\nhund\n\n", "hund\x0bhund\u2028hund\x85\rhund".encode()])
def test_a_record_ends_at_lf_and_nowhere_else(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    feed_stdin(monkeypatch, data)
    assert main(["translate", "-m", str(model)]) == 0
    records = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    assert capsys.readouterr().out.count("\n") == records


def test_json_holds_the_translations_or_counts_what_a_file_holds(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("\n".join(LINES), encoding="utf-8")
    arguments = ["translate", "-m", str(model), "-i", str(source), "--json", "--nbest", "2", "--precision", "fp32"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["lines"], found["blank_lines"], found["unreadable_lines"], found["split_lines"]) == (6, 2, 0, 0)
    expected = [[each.text for each in line] for line in translations([model], LINES, n_best=2)]
    assert [[each["text"] for each in line] for line in found["translations"]] == expected
    assert main([*arguments, "-o", str(output)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["translations"] is None
    assert found["lines_per_second"] > 0
    assert output.read_text(encoding="utf-8").count("\n") == 12


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--nbest", "4"], 2, "--nbest 4 is more than the beam of 3 holds"),
        (["--beam", "0"], 2, "beam"),
        (["--top-k", "3"], 2, "--top-k 3 is about sampling"),
        (["--sample", "--temperature", "0"], 2, "--temperature 0.0 must be above 0"),
        (["--sample", "--temperature", "nan"], 2, "--temperature nan must be above 0"),
        (["--sample", "--top-p", "1.5"], 2, "--top-p 1.5 must be above 0 and at most 1"),
        (["--prefix", "missing"], 1, "missing does not exist"),
        (["--format", "xml"], 2, "xml"),
        (["--sample", "--temperature", "inf"], 2, "--temperature inf must be above 0 and finite"),
        (["--alpha", "-1"], 2, "alpha"),
        (["--alpha", "500"], 1, "alpha is 500.0, but must be at most 10"),
        (["--report", "r.jsonl.gz"], 2, "r.jsonl.gz would hold plain text"),
        (["-o", "out", "--report", "../" + "{here}/out"], 2, "out cannot hold two outputs"),
        (["--report", "x", "--attention", "./x"], 2, "x cannot hold two outputs"),
        (["--score-against", "x", "--nbest", "2"], 2, "--nbest is about translating"),
        (["--score-against", "x", "--report", "y"], 2, "--report is about translating"),
        (["--score-against", "x", "--int8"], 2, "--int8 is about translating"),
        (["-o", "out.gz"], 2, "out.gz would hold plain text"),
        (["-o", "nowhere/out"], 1, "cannot write nowhere/out"),
        (["-o", "."], 1, "cannot write .: it is a folder"),
        (["-i", "missing"], 1, "missing does not exist"),
        (["-m", "missing"], 1, "missing"),
        (["--device", "tpu"], 1, "tpu"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    options: list[str], code: int, problem: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    feed_stdin(monkeypatch, b"hund\n")
    options = [option.replace("{here}", tmp_path.name) for option in options]
    assert main(["translate", "-m", str(model), *options]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert problem in err


def test_a_buffer_full_of_lines_is_not_the_end(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiayn_cli.stages.translate_input._LINES_TOGETHER", 7)
    lines = [f"{word} hund" for word in "abcdefghijklmnopqrstuvwxyz"] * 2
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
    result = run_translate([model], source=str(tmp_path / "in"), output=tmp_path / "out", precision="fp32")
    assert result.lines == 52
    assert (tmp_path / "out").read_text(encoding="utf-8") == best(translations([model], lines))


def run(
    model: Path, options: list[str], data: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What `aiayn translate` writes."""
    feed_stdin(monkeypatch, data)
    assert main(["translate", "-m", str(model), "--precision", "fp32", *options]) == 0
    return capsys.readouterr().out


def test_json_lines_keep_their_fields_and_give_one_object_for_each_output(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [{"id": f"x{i}", "text": line, "page": [i]} for i, line in enumerate(LINES)]
    data = "".join(json.dumps(record) + "\n" for record in records).encode() + b"\n"
    out = run(model, ["--format", "jsonl", "--nbest", "2", "--scores", "--alignments"], data, monkeypatch, capsys)
    lines = out.split("\n")
    assert len(lines) == 2 * len(LINES) + 2 + 1  # a blank record gives blank ones
    found = [json.loads(line) for line in lines[: 2 * len(LINES)]]
    expected = translations([model], LINES, n_best=2)
    for i, line in enumerate(LINES):
        for rank, output in enumerate(expected[i]):
            record = found[2 * i + rank]
            assert (record["id"], record["page"], record["rank"]) == (f"x{i}", [i], rank + 1)
            assert record["text"] == output.text
            assert record["score"] == pytest.approx(output.score, abs=1e-3)
            assert sum(log_prob for _, log_prob in record["tokens"]) == pytest.approx(output.log_prob, abs=1e-2)
            assert [j for _, j in record["alignment"]] == list(range(len(output.text.split())))
            assert all(0 <= i < len(line.split()) for i, _ in record["alignment"])


def test_lines_of_text_become_json_where_only_the_output_is(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--format", "jsonl", "--input-format", "text"]
    out = run(model, options, "\n".join(LINES).encode(), monkeypatch, capsys)
    found = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [record["line"] for record in found] == [1, 2, 3, 4, 5, 6]
    assert "".join(record["text"] + "\n" for record in found) == best(translations([model], LINES))


def test_alignments_stand_behind_the_text(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(model, ["--scores", "--alignments"], "\n".join(LINES).encode(), monkeypatch, capsys)
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert "".join(text + "\n" for _, text, _ in rows) == best(translations([model], LINES))
    for line, (_, text, pairs) in zip(LINES, rows, strict=True):
        links = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        assert [j for _, j in links] == list(range(len(text.split())))
        assert all(i < len(line.split()) for i, _ in links)


def test_a_prefix_for_each_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prefixes").write_text("eine maus\n\nund\n\n\n\n")
    out = run(model, ["--prefix", str(tmp_path / "prefixes")], "\n".join(LINES).encode(), monkeypatch, capsys)
    found, free = out.split("\n"), best(translations([model], LINES)).split("\n")
    assert found[0].startswith("eine maus")
    assert found[2].startswith("und")
    assert [found[i] for i in (1, 3, 4, 5)] == [free[i] for i in (1, 3, 4, 5)]


def test_samples_are_repeated_by_their_seed(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(*options: str, lines: list[str] = LINES) -> list[str]:
        options = ("--sample", "--nbest", "5", *options)
        return run(model, list(options), "\n".join(lines).encode(), monkeypatch, capsys).split("\n")[:-1]

    first = draw("--seed", "3")
    assert len(first) == 5 * len(LINES)
    assert draw("--seed", "3", "--batch-tokens", "1") == first
    assert draw("--seed", "4") != first
    assert draw("--seed", "3", lines=[LINES[4]]) == first[20:25]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_stdin_is_unpacked(
    compress: Callable[[bytes], bytes], model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, [], compress("\n".join(LINES).encode()), monkeypatch, capsys) == best(
        translations([model], LINES)
    )


def test_utf_16_is_refused_and_not_left_blank(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, "der hund\n".encode("utf-16"))
    assert main(["translate", "-m", str(model)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "stdin looks like UTF-16" in err


def test_a_report_and_a_summary_tell_which_lines_not_to_trust(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, "\n".join(LINES).encode())
    arguments = ["translate", "-m", str(model), "--precision", "fp32", "--report", str(tmp_path / "report"), "--json"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    records = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [record["line"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert [record["source"] for record in records] == [line.strip(" \u3000") for line in LINES]
    expected = translations([model], LINES)
    assert [record["translation"] for record in records] == [each[0].text for each in expected]
    suspect = sum(bool(record["flags"]) for record in records)
    assert suspect > 0, "a model with random weights says nothing sensible"
    assert f"{suspect} of 6 lines look wrong: " in err
    result = json.loads(out)
    assert result["suspect_lines"] == suspect
    assert sum(result["flags"].values()) == sum(len(record["flags"]) for record in records)


@pytest.mark.parametrize("on_suspect", ["retry", "empty", "copy"])
def test_suspect_lines_are_dealt_with_and_every_line_keeps_its_place(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], on_suspect: str
) -> None:
    options = ["--report", str(tmp_path / "report"), "--on-suspect", on_suspect, "--nbest", "2", "--alignments"]
    out = run(model, options, "\n".join(LINES).encode(), monkeypatch, capsys).split("\n")[:-1]
    records = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert len(out) == 2 * len(LINES) == 2 * len(records)
    assert any(record["flags"] or record.get("helped") for record in records)
    for record, text in zip(records, out[::2], strict=True):
        assert text.split("\t")[0] == record["translation"]
        if record["flags"] and on_suspect != "retry":
            assert record["replaced_by"] == on_suspect
            assert text == ("\t" if on_suspect == "empty" else f"{record['source']}\t")


def test_on_suspect_fail_stops_there_and_keeps_what_was_before(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, "\n\n\nder hund 1999 läuft\nhund\n".encode())
    options = ["--on-suspect", "fail", "--report", str(tmp_path / "report")]
    assert main(["translate", "-m", str(model), "--precision", "fp32", *options]) == 1
    out, err = capsys.readouterr()
    assert out == "\n\n\n"
    assert "stdin:4: the translation is suspect: " in err
    assert "number lost (a number of the source is missing)" in err
    assert "--on-suspect retry" in err
    assert (tmp_path / "report.unfinished").read_text().count("\n") == 3


def test_a_page_draws_where_the_model_looked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    out = run(model, ["--attention", str(page)], "\n".join(LINES).encode(), monkeypatch, capsys)
    [data] = re.findall('<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    examples = json.loads(data)
    assert [each["label"] for each in examples] == ["line 1", "line 3", "line 5", "line 6"]
    assert [each["output"] for each in examples] == [text for text in out.split("\n") if text]
    for each in examples:
        assert "".join(each["cross"]["to"]).replace("\u2581", " ").strip() == f"{each['source']}</s>"
        assert "".join(each["cross"]["from"]).replace("\u2581", " ").strip() == f"{each['output']}</s>"
        assert (each["cross"]["layers"], each["encoder"]["layers"], each["decoder"]["heads"]) == (2, 1, 2)


def test_a_page_that_cannot_be_written_is_said_before_any_work(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, b"hund\n")
    assert main(["translate", "-m", str(model), "--attention", str(tmp_path / "nowhere" / "page.html")]) == 1
    out, err = capsys.readouterr()
    assert (out, "cannot write" in err) == ("", True)


def test_a_glossary_is_obeyed_and_its_misses_are_reported(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "terms.tsv").write_text("hund\tkatze\nmaus\t\u4e2d\n", encoding="utf-8")
    options = ["--glossary", str(tmp_path / "terms.tsv"), "--report", str(tmp_path / "report")]
    out = run(model, options, "\n".join(LINES).encode(), monkeypatch, capsys).split("\n")
    records = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert "katze" in out[0]
    assert "katze" in out[4]
    for i in (1, 2, 3):
        assert out[i] == best(translations([model], LINES)).split("\n")[i]
    assert [("glossary_missed" in record["flags"], record.get("missing_terms")) for record in records] == [
        (False, None)
    ] * 5 + [(True, ["maus = \u4e2d"])]
    feed_stdin(monkeypatch, b"hund\n")
    assert main(["translate", "-m", str(model), "--sample", *options]) == 2
    assert "--glossary needs a search" in capsys.readouterr().err


def test_markup_comes_through_in_every_mode_and_is_flagged_where_it_does_not(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["der <b>hund</b> und %s", "", "die {name} <br/>", "hund"]
    data = "\n".join(lines).encode()
    options = ["--markup", "--on-suspect", "retry", "--nbest", "2", "--report", str(tmp_path / "report")]
    out = run(model, options, data, monkeypatch, capsys).split("\n")[:-1]
    for line, *outputs in zip(lines, out[::2], out[1::2], strict=True):
        assert [find_markup(output) for output in outputs] == [find_markup(line)] * 2
    assert "markup_lost" not in (tmp_path / "report").read_text(encoding="utf-8")
    monkeypatch.setattr("aiayn_cli.decoding.markup_translator.put_back", lambda plain, items, output, links: output)
    run(model, options, data, monkeypatch, capsys)
    records = [json.loads(line) for line in (tmp_path / "report").read_text(encoding="utf-8").split("\n")[:-1]]
    assert ["markup_lost" in record["flags"] for record in records] == [True, False, True, False]


# ---- --score-against


def score_against(
    model: Path, folder: Path, targets: str, options: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], sources: str = "\n".join(LINES),
) -> tuple[str, str]:  # fmt: skip
    """stdout and stderr of scoring pairs."""
    (folder / "targets").write_text(targets, encoding="utf-8")
    feed_stdin(monkeypatch, sources.encode())
    arguments = ["translate", "-m", str(model), "--precision", "fp32", "--score-against", str(folder / "targets")]
    assert main([*arguments, *options]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_translation_scores_what_the_search_said_of_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A text can be split in other ways than the search did, so that the ids are compared first.
    expected = translations([model], LINES)
    codec = Codec.load(model, TextConfig(), "de", "en")
    out, err = score_against(model, tmp_path, best(expected), ["--batch-tokens", "30"], monkeypatch, capsys)
    rows = [list(map(float, line.split("\t"))) for line in out.split("\n")[:-1]]
    assert len(rows) == len(LINES)
    compared, total, tokens = 0, 0.0, 0
    for line, [output], (log_prob, perplexity) in zip(LINES, expected, rows, strict=True):
        ids = codec.encode_tgt([output.text])[0]
        if not line.strip():
            assert math.isnan(log_prob)
            assert math.isnan(perplexity)
            continue
        total, tokens = total + log_prob, tokens + len(ids) + 1
        assert perplexity == pytest.approx(math.exp(-log_prob / (len(ids) + 1)), rel=1e-3)
        if tuple(ids) == output.parts[0].tgt:
            assert log_prob == pytest.approx(output.log_prob, abs=2e-3)
            compared += 1
    assert compared > 0
    assert f"scored 6 pairs: perplexity {math.exp(-total / tokens):.4g} over {tokens} tokens, 2 without a score" in err
    assert "line 2: a side is blank, unreadable or of more than 1,000 sub-words" in err


def test_scores_as_json_name_each_token(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = '{"id": 1, "text": "der hund"}\n\n{"text": "hund"}\n'
    targets = "die maus\nx\n" + "a " * 1001 + "\n"
    out, _ = score_against(model, tmp_path, targets, ["--format", "jsonl"], monkeypatch, capsys, sources)
    first, second, third = map(json.loads, out.split("\n")[:-1])
    assert (first["id"], first["text"], first["translation"]) == (1, "der hund", "die maus")
    assert "".join(piece for piece, _ in first["tokens"]).replace("\u2581", " ") == " die maus</s>"
    assert sum(log_prob for _, log_prob in first["tokens"]) == pytest.approx(first["log_prob"], abs=1e-3)
    assert (second["line"], second["log_prob"], second["perplexity"], second["tokens"]) == (2, None, None, [])
    assert third["log_prob"] is None
    result = json.loads(score_against(model, tmp_path, "die maus\n", ["--json"], monkeypatch, capsys, "der hund\n")[0])
    assert result["scores"] == [
        [pytest.approx(first["log_prob"], abs=1e-3), pytest.approx(first["perplexity"], rel=1e-3)]
    ]
    assert result["tokens"] == len(first["tokens"])


def test_files_of_other_lengths_are_not_scored_against_each_other(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "targets").write_text("a\nb\n")
    feed_stdin(monkeypatch, b"hund\n")
    assert main(["translate", "-m", str(model), "--score-against", str(tmp_path / "targets")]) == 1
    assert "give one translation for each line" in capsys.readouterr().err


# ---- as a process: pipes and signals


def start(model: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "aiayn_cli", "translate", "-m", str(model), "--device", "cpu", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


def test_each_line_of_a_slow_pipe_is_answered_before_the_next_and_ctrl_c_ends_with_130(model: Path) -> None:
    with start(model) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for line in (b"hund\n", b"\n", b"katze\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer.endswith(b"\n")
            assert (answer == b"\n") == (line == b"\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stdout.read() == b""
        assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_does_not_wait_for_a_slow_named_pipe(model: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    output = tmp_path / "out"
    with (
        start(model, "-i", str(tmp_path / "pipe"), "-o", str(output)) as process,
        (tmp_path / "pipe").open("wb") as pipe,
    ):
        assert process.stderr is not None
        pipe.write(b"hund\n")
        pipe.flush()
        unfinished = tmp_path / "out.unfinished"
        deadline = time.monotonic() + 60
        while not (unfinished.exists() and unfinished.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        err = process.stderr.read().decode()
    assert "Traceback" not in err
    assert f"what was translated so far is in {unfinished}" in err
    assert unfinished.read_bytes().count(b"\n") == 1
    assert not output.exists()


def test_a_reader_that_goes_away_ends_it_quietly(model: Path) -> None:
    with start(model) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"hund\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"hund\n" * 50)
        process.stdin.close()
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.returncode == 141
        err = process.stderr.read()
        assert b"Traceback" not in err
        assert b"rror" not in err


def test_a_terminal_shows_a_prompt_and_gets_each_answer_at_once(model: Path) -> None:
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    command = [sys.executable, "-m", "aiayn_cli", "translate", "-m", str(model), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "dumb"}
    shown = b""

    def read_until(text: bytes, times: int) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while shown.count(text) < times and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 1 << 16)
        assert shown.count(text) >= times, shown

    with subprocess.Popen(command, stdin=slave, stderr=slave, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        read_until(b"\n> ", 1)
        for number, line in enumerate((b"hund\n", b"\n", b"katze\n"), start=1):
            os.write(master, line)
            answer = process.stdout.readline()
            assert (answer == b"\n") == (line == b"\n")
            read_until(b"> ", number + 1)
        os.write(master, b"\x04")
        assert process.wait(timeout=30) == 0
    read_until(b"translated 3 lines", 1)
    assert b"type a line to translate it; Ctrl-D ends" in shown
    os.close(master)
    os.close(slave)
