import errno
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Aiayn
from translation_models import make_checkpoint, translate_options

from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.errors import AiaynError, CheckpointError, UsageError
from aiayn_cli.export import session as stage
from aiayn_cli.export.session import run_export
from aiayn_cli.recipe_keys import ModelConfig
from aiayn_cli.translate.options import Sampling
from aiayn_cli.translate.session import run_translate

processor = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

LINES = ["der hund läuft", "", "die katze springt und läuft", "eine maus sieht die katze. " * 60, "hund"]
SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=8, d_v=8)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_checkpoint(tmp_path_factory.mktemp("models") / "one", 1, shape=SHAPE)
    run_export(path)
    return path


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "one"))


@pytest.fixture
def translate(tmp_path: Path) -> Callable[..., list[str]]:
    def run(model: Path, **options: object) -> list[str]:
        (tmp_path / "in").write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
        run_translate(translate_options([model], source=str(tmp_path / "in"), path=tmp_path / "out", **options))  # type: ignore[arg-type]
        return (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1]

    return run


@processor
def test_export_says_how_well_the_engines_agree_and_keeps_it(tmp_path: Path, aiayn: Aiayn) -> None:
    path = make_checkpoint(tmp_path / "one", 1, shape=SHAPE)
    check = tmp_path / "check"
    check.write_text("der hund\n\ndie katze sieht\n")
    code, out, err = aiayn("export", path, "--check", check)
    assert code == 0
    assert out.startswith(f"{path / 'ctranslate2'}: 2 of 2 check sentences translated alike; log p per token diff")
    assert f"model: {path}, step 1,201" in err
    assert json.loads((path / "ctranslate2" / "exported.json").read_bytes())["same_translations"] == 2
    result = aiayn("export", path, "--json", "--int8", "--out", tmp_path / "elsewhere").json
    assert result["check_sentences"] == 100
    assert 1e-4 < result["mean_difference"] < 0.1
    assert load_checkpoint(path).weights().keys(), "the checkpoint is whole, with the export inside it"


@processor
def test_both_engines_translate_alike_line_by_line(exported: Path, translate: Callable[..., list[str]]) -> None:
    greedy = {"beam_size": 1, "precision": "fp32"}
    expected = translate(exported, **greedy)
    assert len(set(expected)) > 3
    assert expected[1] == ""
    assert translate(exported, engine="ctranslate2", beam_size=1) == expected


@processor
def test_with_8_bits_every_line_has_its_output(exported: Path, translate: Callable[..., list[str]]) -> None:
    for engine in ("torch", "ctranslate2"):
        found = translate(exported, engine=engine, int8=True)
        assert len(found) == len(LINES)
        assert [bool(line) for line in found] == [bool(line) for line in LINES]


@pytest.mark.parametrize("exact", [True, False])
def test_a_processor_whose_8_bit_sums_overflow_is_said_to_be_slow_without_them(
    exact: bool, exported: Path, translate: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("aiayn_cli.translate.ctranslate2_engine.multiplies_slowly", lambda: not exact)
    translate(exported, engine="ctranslate2", int8=True)
    translate(exported, engine="ctranslate2")
    [in_8_bits, in_32] = [line for line in capsys.readouterr().err.split("\n") if line.startswith("engine:")]
    assert ("slow on this processor" in in_8_bits) == (not exact)
    assert "slow" not in in_32


def test_n_best_and_scores_come_from_the_other_engine_too(exported: Path, aiayn: Aiayn) -> None:
    options = ["--engine", "ctranslate2", "--nbest", "3", "--scores"]
    said = aiayn("translate", "-m", exported, *options, stdin="der hund läuft\n".encode())
    scores = [float(line.split("\t")[0]) for line in said.lines]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert "engine: CTranslate2" in said.err


def test_an_engine_that_says_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_checkpoint(tmp_path / "one", 1, shape=SHAPE)
    honest = stage._attention

    def careless(spec: object, attention: object, norm: object) -> None:
        honest(spec, attention, norm)  # type: ignore[arg-type]
        spec.linear[-1].weight[0] *= -1  # type: ignore[attr-defined]

    monkeypatch.setattr(stage, "_attention", careless)
    for int8 in (False, True):
        with pytest.raises(AiaynError, match="CTranslate2 and torch disagree") as error:
            run_export(path, int8=int8)
        assert error.value.hint.startswith("nothing was written")
    assert [entry.name for entry in path.iterdir() if "ctranslate2" in entry.name] == []


@pytest.mark.parametrize("name", ["out", ".", "link"])
def test_an_export_is_renewed_under_any_name_that_leads_to_it(
    name: str, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copied / "ctranslate2").rename(tmp_path / "out")
    (tmp_path / "out" / "left over").touch()
    monkeypatch.chdir(tmp_path / "out")
    (tmp_path / "link").symlink_to("out")
    run_export(copied, out=Path(name) if name == "." else tmp_path / name)
    assert not (tmp_path / "out" / "left over").exists()
    assert (tmp_path / "link" / "exported.json").is_file()
    assert (tmp_path / "link").is_symlink()
    assert [each.name for each in tmp_path.iterdir() if "unfinished" in each.name] == []


def test_nothing_but_an_export_is_replaced(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(UsageError, match="letters exists and is not an export"):
        run_export(exported, out=tmp_path / "letters")
    (tmp_path / "file").touch()
    with pytest.raises(AiaynError, match=r"cannot write .*file/in: Not a directory"):
        run_export(exported, out=tmp_path / "file" / "in")


def test_an_export_that_is_killed_leaves_the_old_one_whole_or_can_be_repeated(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied / "ctranslate2"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    real = shutil.rmtree

    def killed(path: Path, ignore_errors: bool = False) -> None:
        if (path / "exported.json").exists():  # the export that is to be replaced, half removed
            (path / "exported.json").unlink()
            raise SystemExit(137)
        real(path, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(SystemExit):
        run_export(copied)
    monkeypatch.undo()
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert found.keys() == before.keys()
    assert found["model.bin"] == before["model.bin"]
    run_export(copied)


def test_a_full_disk_is_said_and_the_export_before_stays(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (copied / "ctranslate2" / "model.bin").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stage, "export", full)
    with pytest.raises(AiaynError, match=r"cannot write .*ctranslate2: No space left on device"):
        run_export(copied)
    assert (copied / "ctranslate2" / "model.bin").read_bytes() == before
    assert sorted(entry.name for entry in copied.iterdir() if "ctranslate2" in entry.name) == ["ctranslate2"]


def test_a_model_without_an_export_or_with_that_of_other_weights_is_named(
    exported: Path, tmp_path: Path, translate: Callable[..., list[str]]
) -> None:
    path = make_checkpoint(tmp_path / "other", 2, shape=SHAPE)
    with pytest.raises(CheckpointError, match="has not been exported for CTranslate2") as error:
        translate(path, engine="ctranslate2", int8=True)
    assert error.value.hint == f"run `aiayn export {path} --int8`"
    shutil.copytree(exported / "ctranslate2", path / "ctranslate2")
    with pytest.raises(CheckpointError, match="was exported from other weights"):
        translate(path, engine="ctranslate2")
    (path / "ctranslate2" / "exported.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"exported\.json cannot be read"):
        translate(path, engine="ctranslate2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sampling": Sampling()}, "does not support --sample"),
        ({"precision": "bf16"}, "does not support --precision bf16"),
        ({"glossary": Path("terms.tsv")}, "does not support --glossary"),
    ],
)
def test_what_the_other_engine_cannot_do_is_wrong_usage(
    exported: Path, translate: Callable[..., list[str]], options: dict[str, object], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        translate(exported, engine="ctranslate2", **options)
    with pytest.raises(UsageError, match="does not support an ensemble"):
        run_translate(translate_options([exported, exported], engine="ctranslate2"))


def test_a_network_of_another_kind_cannot_be_exported(tmp_path: Path, translate: Callable[..., list[str]]) -> None:
    path = make_checkpoint(tmp_path / "one", 1, shape=replace(SHAPE, kind="recurrent"))
    with pytest.raises(AiaynError, match="does not support recurrent models"):
        run_export(path)
    with pytest.raises(AiaynError, match="does not support recurrent models") as error:
        translate(path, engine="ctranslate2")
    assert error.value.hint == "translate with --engine torch instead"  # and not to export it first


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["{model}"], 1, "this needs the package ctranslate2"),
        (["nope"], 1, "nope does not exist"),
        (["{model}", "--check", "nope"], 1, "nope does not exist"),
        (["{model}", "--out", "."], 2, ". exists and is not an export"),
    ],
)
def test_what_the_user_named_is_checked_before_the_package(
    arguments: list[str], code: int, problem: str, exported: Path, tmp_path: Path, aiayn: Aiayn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    said = aiayn("export", *(argument.format(model=exported) for argument in arguments))
    assert said.code == code
    assert f"error: {problem}" in said.err


def test_the_check_set_keeps_to_learned_positions_and_to_its_size_and_has_text(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "one", 1, shape=replace(SHAPE, positions="learned", max_positions=16))
    (tmp_path / "text").write_text("hund\n" * 500)
    assert run_export(path).check_sentences == 100
    assert run_export(path, check=str(tmp_path / "text")).check_sentences == 100
    (tmp_path / "blank").write_text("\n \n")
    with pytest.raises(AiaynError, match="blank has no text"):
        run_export(path, out=tmp_path / "out", check=str(tmp_path / "blank"))
    assert not (tmp_path / "out").exists()
