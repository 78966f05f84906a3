"""The pages in Chromium: no complaint on its console, nothing wider than a phone, and scripts that do what they say."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import PROGRAM, Chromium
from screenshots import made_up_pages

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {page.stem: page for page in made_up_pages(tmp_path_factory.mktemp("pages"))}


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["attention", "compare", "report", "runs"])
def test_a_page_fits_and_nothing_is_refused(name: str, width: int, pages: dict[str, Path], browser: Chromium) -> None:
    browser.open(pages[name], width=width, dark=width == 390)
    assert browser.complaints == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("[...document.querySelectorAll('button, select, input')].every(e => e.labels?.length || "
                       "e.ariaLabel || e.textContent)")  # fmt: skip


def test_attention_opens_on_one_head_of_the_last_layer_but_one_and_keys_step_on(
    pages: dict[str, Path], browser: Chromium
) -> None:
    browser.open(pages["attention"])
    where = "document.getElementById('looks').textContent"
    assert browser.run(where) == "layer 5, head 5"
    assert browser.run("document.querySelectorAll('#picture svg').length") == 2
    for key, shift, expected in (
        ("ArrowRight", False, "layer 5, head 6"),
        ("ArrowLeft", False, "layer 5, head 5"),
        ("ArrowRight", True, "layer 6, head 5"),
        ("ArrowRight", True, "layer 6, head 5"),  # there is no seventh
        ("a", False, "layer 6, mean of 8 heads"),
        ("j", False, "layer 6, mean of 8 heads: ▁Das looks at"),
    ):
        browser.press(key, shift=shift)
        assert browser.run(where).startswith(expected)
    browser.run("document.getElementById('png').click()")
    assert browser.run("new Promise(done => setInterval(() => document.body.dataset.saved && done(1), 50))")


def test_curves_tell_their_numbers_at_every_point_to_mouse_and_keyboard(
    pages: dict[str, Path], browser: Chromium
) -> None:
    browser.open(pages["report"])
    tips = "[...document.querySelectorAll('.tip')].filter(tip => !tip.hidden).map(tip => tip.textContent)"
    box = browser.run("document.querySelector('.charts svg').getBoundingClientRect().toJSON()")
    browser.point_at(box["left"] + box["width"] * 0.9, box["top"] + box["height"] / 2)
    [tip] = browser.run(tips)
    assert tip.startswith("update 8")
    assert "training 1." in tip
    assert "validation 1." in tip
    assert browser.run("document.querySelectorAll('.cursor[d]').length") == 6  # on all charts
    browser.point_at(5, 5)
    assert browser.run(tips) == []
    browser.run("document.querySelectorAll('.charts svg')[1].focus()")
    for key, expected in (
        ("ArrowRight", "update 5,000 validation BLEU"),
        ("ArrowRight", "update 10,000 validation BLEU"),
        ("End", "update 90,000"),
    ):
        browser.press(key)
        [tip] = browser.run(tips)
        assert tip.startswith(expected)


def test_sentences_come_in_pages_of_fifty_with_the_greatest_difference_first(
    pages: dict[str, Path], browser: Chromium
) -> None:
    browser.open(pages["compare"])
    shown = "[...document.querySelectorAll('article')].map(each => Math.abs(each.dataset.difference))"
    where = "document.querySelector('.where').textContent"
    first = browser.run(shown)
    assert len(first) == 50
    assert first == sorted(first, reverse=True)
    for key, expected in (
        ("ArrowLeft", "1–50 of 120"),
        ("ArrowRight", "51–100 of 120"),
        ("ArrowRight", "101–120 of 120"),
    ):
        browser.press(key)
        assert browser.run(where) == expected
    assert max(browser.run(shown)) <= first[-1]
    browser.press("/")
    browser.press("q")
    assert browser.run(where) == "none"
    assert browser.complaints == []
