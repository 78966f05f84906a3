"""Which passes the page of `translate --attention` shows, so that a browser can still open it."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from html_page import Page
from translation_models import make_checkpoint, translate_options

from aiayn_cli.model.transformer import AttentionMaps
from aiayn_cli.translate.aids import attention_page as page_module
from aiayn_cli.translate.aids.attention_page import AttentionPicture, attention_page, draw_attention, encode_example
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


NASTY = '</script><script>alert("x")</script><!-- & \u2028 <b>'


class Example(NamedTuple):
    label: str
    source: str
    output: str
    src: list[str]
    tgt: list[str]
    maps: AttentionMaps


def example(label: str = "line 1", src: int = 3, tgt: int = 2) -> Example:
    def weights(layers: int, heads: int, rows: int, columns: int) -> torch.Tensor:
        return torch.rand(layers, 1, heads, rows, columns).softmax(-1)

    torch.manual_seed(src)
    maps = AttentionMaps(
        weights(3, 4, src + 1, src + 1), weights(2, 4, tgt + 1, tgt + 1), weights(2, 4, tgt + 1, src + 1)
    )
    return Example(label, NASTY, "ein Hund", [f"s{i}" for i in range(src)], ["▁ein", NASTY][:tgt], maps)


def page_of(title: str, examples: list[Example]) -> str:
    return attention_page(title, [encode_example(*each) for each in examples])


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return [example(), example("line 2", src=5, tgt=1)]


def test_the_page_is_well_formed_whatever_its_texts_hold_and_loads_nothing(examples: list[Example]) -> None:
    text = page_of(f"Attention of {NASTY}", examples)
    page = Page(text)
    assert page.count("script") == 2
    assert "".join(page.inside["h1"]) == f"Attention of {NASTY}"
    assert not any(attributes.keys() & {"src", "href", "onclick"} for _, attributes in page.elements)
    assert "default-src 'none'" in text
    assert re.findall(r"https?://[^\"' ]+", text.replace("http://www.w3.org/2000/svg", "")) == []


def test_every_control_that_the_script_asks_for_is_there(examples: list[Example]) -> None:
    page = Page(page_of("x", examples))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    script = "".join(page.inside["script"])
    asked = set(re.findall(r'byId\("(\w+)"\)', script)) | {"sentence", "kind", "layer", "heads", "picture"}
    assert asked <= ids
    kinds = {attributes["value"] for tag, attributes in page.elements if tag == "option"}
    assert kinds == {"cross", "encoder", "decoder"}


def test_the_page_holds_every_weight_to_the_nearest_255th(examples: list[Example]) -> None:
    stored = json.loads("".join(Page(page_of("x", examples)).inside["data"]))
    assert [each["label"] for each in stored] == ["line 1", "line 2"]
    for each, given in zip(stored, examples, strict=True):
        assert (each["source"], each["output"]) == (given.source, given.output)
        src, tgt = [*given.src, "</s>"], [*given.tgt, "</s>"]
        expected = {
            "cross": (tgt, src, given.maps.cross),
            "encoder": (src, src, given.maps.encoder),
            "decoder": (tgt, ["<s>", *given.tgt], given.maps.decoder),
        }
        for name, (rows, columns, weights) in expected.items():
            shown = each[name]
            assert (shown["from"], shown["to"]) == (rows, columns)
            shape = (shown["layers"], shown["heads"], len(rows), len(columns))
            found = np.frombuffer(base64.b64decode(shown["weights"]), np.uint8).reshape(shape) / 255
            assert np.abs(found - weights[:, 0].numpy()).max() <= 0.5 / 255 + 1e-6
