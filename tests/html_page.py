"""What a browser would find in a page: elements, texts and tables; tags that do not match are an error."""

from html.parser import HTMLParser

VOID = {"meta", "wbr", "br", "link", "img", "input", "hr", "base", "source", "embed"}


class Page(HTMLParser):
    def __init__(self, content: str) -> None:
        super().__init__()
        self._open: list[tuple[str, str]] = []  # tag and id
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside: dict[str, list[str]] = {}  # texts by the tag and by the id of what they stand in
        self.tables: list[list[list[str]]] = []  # of <table>, and of <dl>, where a dt begins a row and its dd follow
        self.feed(content)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append((tag, dict(attrs).get("id") or ""))
        if tag in ("table", "dl"):
            self.tables.append([])
        elif tag in ("tr", "dt"):
            self.tables[-1].append([""] if tag == "dt" else [])
        elif tag in ("td", "th", "dd"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        for name in filter(None, self._open[-1] if self._open else ()):
            self.inside.setdefault(name, []).append(data)
        if {"td", "th", "dt", "dd"} & {tag for tag, _ in self._open}:
            self.tables[-1][-1][-1] += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    def row(self, name: str) -> list[str]:
        found = next(row for table in self.tables for row in table if row[0] == name)
        return [" ".join(cell.split()) for cell in found]
