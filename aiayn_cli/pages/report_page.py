"""A page of HTML in one file: its style is inside, and its policy forbids the browser to load anything."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --back: #fff; --faint: #d0d7de; --dim: #57606a;
  --line-0: #0969da; --line-1: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --faint: #30363d; --dim: #8d96a0;
  --line-0: #58a6ff; --line-1: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 84rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; border-bottom: 1px solid var(--faint); margin-top: 2.5rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; } nav a { margin-right: 1rem; color: var(--line-0); }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left; vertical-align: top;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
th { font-weight: 600; color: var(--dim); overflow-wrap: normal; } thead th { border-bottom: 1px solid var(--faint); }
.sample { margin: 0 0 1.2rem; border-left: 3px solid var(--faint); display: block; padding-left: .8rem; }
.sample th { white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; } svg { width: 100%; height: auto; font-size: 12px; } svg text { fill: var(--dim); }
svg .title { fill: var(--text); font-weight: 600; font-size: 13px; } svg path { fill: none; stroke: var(--faint); }
svg .mark { stroke: var(--dim); stroke-dasharray: 4 3; }
svg .line-0 { stroke: var(--line-0); stroke-width: 1.5; } svg .line-1 { stroke: var(--line-1); stroke-width: 1.5; }
svg .dot-0 { fill: var(--line-0); } svg .dot-1 { fill: var(--line-1); }
"""


def link_free_page(title: str, sections: Mapping[str, str]) -> str:
    """A whole HTML document.

    Args:
        title: plain text.
        sections: headings, as plain text, and what stands beneath them, as HTML; "" is a section without one.
    """
    links = "".join(f'<a href="#{_id(name)}">{escape(name)}</a>' for name in sections if name)
    body = "".join(
        f'<section id="{_id(name)}"><h2>{escape(name)}</h2>{content}</section>' if name else content
        for name, content in sections.items()
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1><nav>{links}</nav>{body}</body></html>\n"
    )


def table(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    """A table with a row of headings; all cells are plain text."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in body)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'


def rows(facts: Iterable[tuple[str, object]]) -> str:
    """A table of names and values, one a line; both are plain text."""
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>' for name, value in facts
    )
    return f'<div class="scroll"><table><tbody>{lines}</tbody></table></div>'


def _id(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())
