"""The page is whole, safe and self-contained; whether it is beautiful is for a person to see."""

from pathlib import Path
from typing import Any

import pytest
from commands import Aiayn
from html_page import Page

from aiayn_cli.score.session import ScoreOptions, run_score

REFERENCE = ["Der Hund läuft.", 'Sie sagte: "Halt!" & <b>ging</b>.', "", "<script>alert(1)</script>"]
FIRST = ["Der Hund rennt.", 'Sie sagte: "Stopp!" & <b>ging</b>.', "", "<script>alert(2)</script>"]
SECOND = ["Der Hund läuft.", "Sie ging.", "", "<script>alert(1)</script>"]
SOURCE = ["The dog runs.", 'She said: "stop!" & <b>left</b>.', "", "<script>alert(1)</script>"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    names = {}
    for name, lines in (("ref.de", REFERENCE), ("a<b", FIRST), ("second", SECOND), ("src", SOURCE)):
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        names[name] = str(tmp_path / name)
    return names


def page_of(files: dict[str, str], *systems: str, **options: Any) -> tuple[str, Page]:
    path = Path(files["src"]).with_name("page.html")
    hypotheses = [files[name] for name in systems]
    given = {"references": [Path(files["ref.de"])], "hypotheses": hypotheses, "source": files["src"], "html": path}
    run_score(ScoreOptions(**{**given, **options}))
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_every_sentence_is_there_with_what_differs(files: dict[str, str]) -> None:
    _, page = page_of(files, "a<b", "second")
    assert next(attributes["value"] for name, attributes in page.elements if name == "option") == "differs"
    articles = [attributes for name, attributes in page.elements if name == "article"]
    assert [article["data-line"] for article in articles] == ["1", "2", "3", "4"]
    assert articles[0]["data-difference"] is not None
    assert float(articles[0]["data-difference"]) < 0  # the second system is better there
    assert page.inside["mark"][1] == "rennt"  # after the legend
    texts = "".join(page.inside["dd"])
    for line in (SOURCE[0], "Der Hund ", REFERENCE[3]):
        assert line in texts
    _, alone = page_of(files, "a<b")
    assert alone.inside["mark"][1] == "rennt"
    assert alone.inside["del"][1] == "läuft"
    assert next(attributes["value"] for name, attributes in alone.elements if name == "option") == "worst"


def test_words_of_the_reference_that_a_system_lost_are_marked_there_and_where_they_should_stand(
    files: dict[str, str],
) -> None:
    lines = {"ref.de": "Das ist für sie gut so.", "a<b": "Das ist gut.", "second": "Das ist für sie gut."}
    for name, line in lines.items():
        Path(files[name]).write_text(line + "\n", encoding="utf-8")
    _, page = page_of(files, "a<b", "second", source=None)
    looks = [attributes.get("class") for name, attributes in page.elements if name == "del"]
    legend = 3
    assert list(zip(looks, page.inside["del"], strict=True))[legend:] == [("lost-0", "für sie"), ("lost-both", "so")]
    gaps = [attributes for name, attributes in page.elements if name == "mark" and "title" in attributes]
    assert len(gaps) == 3  # two of the first system, one of the second


def test_text_is_never_markup(files: dict[str, str]) -> None:
    text, page = page_of(files, "a<b", "second")
    assert page.count("script") == 1
    assert page.count("b") == 0
    assert "<script>alert" not in text
    assert "a&lt;b" in text


def test_scores_tests_and_parts_are_in_its_tables(files: dict[str, str]) -> None:
    text, page = page_of(files, "a<b", "second", compare=True, resamples=20, trials=20, compound_split=True)
    assert page.count("table") == 1
    assert "by paired bootstrap" in text
    assert "0-10 words" in "".join(page.inside["td"])
    assert "nrefs:1|case:mixed" in "".join(page.inside["code"])
    assert "compound-split tokenised BLEU" in "".join(page.inside["dt"])
    assert page.count("svg") == 2


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left_beside_it(
    files: dict[str, str], aiayn: Aiayn
) -> None:
    folder = Path(files["src"]).parent / "pages"
    folder.mkdir()
    before = sorted(folder.parent.iterdir())
    for target, why in ((folder, "it is a folder"), (Path(), "it is a folder"), (folder / "no" / "page.html", "")):
        said = aiayn("score", files["ref.de"], "--hyp", files["second"], "--html", target)
        assert said.code == 1
        assert f"error: cannot write {target}: {why}" in said.err
    assert sorted(folder.parent.iterdir()) == before


def test_a_disk_that_is_full_leaves_the_earlier_page_and_no_other_file(
    files: dict[str, str], aiayn: Aiayn, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Path(files["src"]).parent / "page.html"
    target.write_text("earlier", encoding="utf-8")
    before = sorted(target.parent.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    said = aiayn("score", files["ref.de"], "--hyp", files["second"], "--html", target)
    assert said.code == 1
    assert "No space left on device" in said.err
    assert target.read_text(encoding="utf-8") == "earlier"
    assert sorted(target.parent.iterdir()) == before
