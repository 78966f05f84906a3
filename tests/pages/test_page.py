"""A page is one file, escapes its texts, and lets the browser run and load nothing but its own style and script."""

import base64
import hashlib
import re
import shutil
from pathlib import Path

import jinja2
import pytest

from aiayn_cli.pages import page as module
from aiayn_cli.pages.page import render_page

FOLDER = Path(module.__file__).parent
FILES = [path for path in FOLDER.iterdir() if path.suffix in (".html", ".css", ".js")]


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in FILES:
        shutil.copy(path, tmp_path)
    (tmp_path / "mine.html").write_text('{% extends "layout.html" %}{% block body %}<p>{{ text }}</p>{% endblock %}')
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize("script", ["", "show('ü');\n"])
def test_the_policy_names_the_page_s_own_style_and_script_alone(templates: Path, script: str) -> None:
    if script:
        (templates / "mine.js").write_text(script, encoding="utf-8")
    page = render_page("mine.html", script="mine.js" if script else "", title="t", text="x")
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    expected = {"default-src": "'none'", "base-uri": "'none'"}
    for tag in ("style", "script") if script else ("style",):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert content is not None
        expected[f"{tag}-src"] = f"'sha256-{base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()}'"
    assert rules == expected
    assert page.count("<script>") == bool(script)


def test_values_are_text_and_none_may_be_missing(templates: Path) -> None:
    page = render_page("mine.html", title="a < b", text='<script>"&')
    assert "<title>a &lt; b</title>" in page
    assert "<p>&lt;script&gt;&#34;&amp;</p>" in page
    with pytest.raises(jinja2.UndefinedError, match="text"):
        render_page("mine.html", title="t")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_of_a_page_asks_for_what_its_policy_forbids(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"https?:|url\(|@import|\b(src|on\w+)=|style=\"\w|setAttribute\(\"style", text)
    for href in re.findall(r'href="(.)', text):
        assert href == "#"
