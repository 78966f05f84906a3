"""Which passes the page of `translate --attention` shows, so that a browser can still open it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from translation_models import make_checkpoint, translate_options

from aiayn_cli.translate.aids import attention_page as page_module
from aiayn_cli.translate.aids.attention_page import AttentionPicture, draw_attention
from aiayn_cli.translate.forced_decoding import ForcedDecoder
from aiayn_cli.translate.input import InputLine
from aiayn_cli.translate.load_models import LoadedModels, load_models
from aiayn_cli.translate.trust.retry import Judged

SOURCES = ["hund", "der hund läuft und die katze springt", "maus"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModels:
    model = make_checkpoint(tmp_path_factory.mktemp("m") / "m", seed=1)
    return load_models(translate_options([model], device="cpu", precision="fp32"))


@pytest.fixture(scope="module")
def passes(loaded: LoadedModels) -> Callable[[int | None], tuple[list[str], int]]:
    lines = [InputLine(number, text) for number, text in enumerate(SOURCES, start=1)]
    judged = [Judged(outputs, ()) for outputs in loaded.translator.translate_n_best(SOURCES)]
    second_pass = ForcedDecoder(loaded.translator)

    for each in judged:
        [part] = each.outputs[0].parts
        maps, _, _ = second_pass.attention(part)
        weights = sum(each.numel() for each in (maps.encoder, maps.decoder, maps.cross))
        assert second_pass.attention_size(part) == weights
    return lambda at_most: draw_attention(second_pass, lines, judged, at_most)


def test_passes_beyond_the_number_asked_for_and_too_long_ones_are_counted(
    passes: Callable[[int | None], tuple[list[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert passes(None) == ([], 0)
    all_of_them, left_out = passes(9)
    assert (len(all_of_them), left_out) == (3, 0)
    assert passes(2) == (all_of_them[:2], 1)
    monkeypatch.setattr(page_module, "_MOST_WEIGHTS", 900)
    assert passes(9) == ([all_of_them[0], all_of_them[2]], 1)


def test_the_passes_of_a_long_line_show_their_own_part_of_it(loaded: LoadedModels) -> None:
    text = " ".join(["der hund läuft und die katze springt"] * 12)
    translator = loaded.translator.variant(longest_source=40)
    [outputs] = translator.translate_n_best([text])
    examples, _ = draw_attention(ForcedDecoder(translator), [InputLine(1, text)], [Judged(outputs, ())], 50)
    shown = [json.loads(example) for example in examples]
    assert len(shown) == len(outputs[0].parts) > 2
    assert " ".join(each["source"] for each in shown) == text
    assert " ".join(each["output"] for each in shown if each["output"]) == outputs[0].text


def test_a_page_ends_before_a_browser_gives_up_and_says_how_many_are_left_out(
    passes: Callable[[int | None], tuple[list[str], int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    examples, _ = passes(9)
    picture = AttentionPicture(tmp_path / "page.html")
    monkeypatch.setattr(page_module, "_LONGEST_PAGE", len(examples[0]) + len(examples[2]))
    picture.take(examples, 4)
    assert picture.room == 0
    picture.write("Attention")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [f'"line {number}"' in page for number in (1, 2, 3)] == [True, False, True]
    assert "shows 2 passes; 5 more are left out" in capsys.readouterr().err


def test_without_any_pass_there_is_no_page_and_the_reason_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for left_out, why in ((0, "there was no line"), (3, "all 3 passes are too long to be drawn")):
        picture = AttentionPicture(tmp_path / "page.html")
        picture.take([], left_out)
        picture.write("Attention")
        assert f"page.html is not written: {why}" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
