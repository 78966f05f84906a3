"""The page is whole, safe and self-contained; whether it is beautiful is for a person to see."""

from pathlib import Path

import pytest
from html_page import Page

from aiayn_cli.app import main
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


def page_of(files: dict[str, str], *systems: str, **options: object) -> tuple[str, Page]:
    path = Path(files["src"]).with_name("page.html")
    run_score(
        ScoreOptions(
            references=[Path(files["ref.de"])],
            hypotheses=[files[name] for name in systems],
            source=files["src"],
            html=path,
            **options,  # type: ignore[arg-type]
        )
    )
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_every_sentence_is_there_with_what_differs(files: dict[str, str]) -> None:
    _, page = page_of(files, "a<b", "second")
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


def test_it_opens_on_what_differs_most(files: dict[str, str]) -> None:
    for systems, order in ((("a<b", "second"), "differs"), (("a<b",), "worst")):
        _, page = page_of(files, *systems)
        assert next(attributes["value"] for name, attributes in page.elements if name == "option") == order


def test_words_of_the_reference_that_a_system_lost_are_marked_there_and_where_they_should_stand(
    tmp_path: Path,
) -> None:
    for name, line in (("ref", "Das ist für sie gut so."), ("a", "Das ist gut."), ("b", "Das ist für sie gut.")):
        (tmp_path / name).write_text(line + "\n", encoding="utf-8")
    options = ScoreOptions(
        references=[tmp_path / "ref"],
        hypotheses=[str(tmp_path / "a"), str(tmp_path / "b")],
        html=tmp_path / "page.html",
    )
    run_score(options)
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
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


def test_a_place_that_cannot_be_written_is_named(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    target = str(Path(files["src"]).parent / "nowhere" / "page.html")
    assert main(["score", files["ref.de"], "--hyp", files["second"], "--html", target]) == 1
    assert f"cannot write {target}" in capsys.readouterr().err


def test_a_folder_in_the_page_s_place_is_named_and_nothing_is_left_beside_it(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(files["src"]).parent / "pages"
    folder.mkdir()
    before = sorted(folder.parent.iterdir())
    for target in (folder, Path()):
        assert main(["score", files["ref.de"], "--hyp", files["second"], "--html", str(target)]) == 1
        assert f"error: cannot write {target}: it is a folder" in capsys.readouterr().err
    assert sorted(folder.parent.iterdir()) == before


def test_a_disk_that_is_full_leaves_the_earlier_page_and_no_other_file(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Path(files["src"]).parent / "page.html"
    target.write_text("earlier", encoding="utf-8")
    before = sorted(target.parent.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert main(["score", files["ref.de"], "--hyp", files["second"], "--html", str(target)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert target.read_text(encoding="utf-8") == "earlier"
    assert sorted(target.parent.iterdir()) == before
