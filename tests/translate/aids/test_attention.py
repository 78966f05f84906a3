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
def passes(loaded: LoadedModels) -> Callable[[int], list[str]]:
    lines = [InputLine(number, text) for number, text in enumerate(SOURCES, start=1)]
    judged = [Judged(outputs, ()) for outputs in loaded.translator.translate_n_best(SOURCES)]
    second_pass = ForcedDecoder(loaded.translator)

    for each in judged:
        [part] = each.outputs[0].parts
        maps, _, _ = second_pass.attention(part)
        weights = sum(each.numel() for each in (maps.encoder, maps.decoder, maps.cross))
        assert second_pass.attention_size(part) == weights
    return lambda at_most: draw_attention(second_pass, lines, judged, at_most)


def test_no_more_passes_are_drawn_than_requested_and_none_that_is_too_long(
    passes: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_them = passes(9)
    assert len(all_of_them) == 3
    assert (passes(0), passes(2)) == ([], all_of_them[:2])
    monkeypatch.setattr(page_module, "_MOST_WEIGHTS", 900)
    assert passes(9) == [all_of_them[0], all_of_them[2]]


def test_the_passes_of_a_long_line_show_their_own_part_of_it(loaded: LoadedModels) -> None:
    text = " ".join(["der hund läuft und die katze springt"] * 12)
    translator = loaded.translator.variant(longest_source=40)
    [outputs] = translator.translate_n_best([text])
    examples = draw_attention(ForcedDecoder(translator), [InputLine(1, text)], [Judged(outputs, ())], 50)
    shown = [json.loads(example) for example in examples]
    assert len(shown) == len(outputs[0].parts) > 2
    assert " ".join(each["source"] for each in shown) == text
    assert " ".join(each["output"] for each in shown if each["output"]) == outputs[0].text


def test_a_page_ends_before_a_browser_gives_up(
    passes: Callable[[int], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    examples = passes(9)
    picture = AttentionPicture(tmp_path / "page.html")
    picture.write("Attention")
    assert "page.html is not written: there is no output that is short enough to draw" in capsys.readouterr().err
    monkeypatch.setattr(page_module, "_LONGEST_PAGE", len(examples[0]) + len(examples[2]))
    picture.take(examples)
    picture.write("Attention")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [f'"line {number}"' in page for number in (1, 2, 3)] == [True, False, True]
    assert "shows 2 outputs" in capsys.readouterr().err
