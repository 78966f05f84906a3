import base64
import json
import re
from typing import NamedTuple

import numpy as np
import pytest
import torch
from html_page import Page

from aiayn_cli.model.transformer import AttentionMaps
from aiayn_cli.translate.aids.attention_page import attention_page, encode_example

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
