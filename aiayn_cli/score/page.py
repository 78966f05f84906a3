"""A page that shows one system or compares two: scores, parts, and every sentence with what differs.

One file without a link to anything, so that it can be mailed and kept. All text is escaped; a content security policy
lets nothing run but the page's own few lines of script.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from aiayn_cli import __version__
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.files import check_writable, read_place, write_output
from aiayn_cli.score.differences import Piece, differences
from aiayn_cli.score.result import SIGNIFICANT, PartScores, ScoreResult, Sentence

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --a: #3b76c4; --b: #c47a2c; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } code, .small { font-size: .85em; } .small { opacity: .75; }
.bar { display: inline-block; height: .7em; min-width: 1px; } .a { background: var(--a); } .b { background: var(--b); }
td.bars { width: 22rem; text-align: left; line-height: .8; }
.warning { border-left: 4px solid #c33; padding-left: .8rem; }
.controls { position: sticky; top: 0; background: Canvas; padding: .6rem 0; display: flex; gap: 1rem; flex-wrap: wrap; }
article { border-top: 1px solid var(--line); padding: .6rem 0; }
article { content-visibility: auto; contain-intrinsic-size: auto 7rem; }
article .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 0 1.5rem; }
article p { margin: .1rem 0; overflow-wrap: anywhere; } article .name { font-size: .8em; opacity: .75; }
mark { background: #e0555540; color: inherit; text-decoration: underline; text-decoration-color: #d33; }
del { background: #3ba55d40; text-decoration: underline; text-decoration-color: #2a8; }
"""

_SCRIPT = """
const list = document.getElementById("sentences"), all = [...list.children];
const order = document.getElementById("order"), find = document.getElementById("find");
const count = document.getElementById("count");
function value(article) {
  const worse = Number(article.dataset.worse), line = Number(article.dataset.line);
  switch (order.value) {
    case "worst": return worse;
    case "first": return -Number(article.dataset.difference || 0);
    case "second": return Number(article.dataset.difference || 0);
    default: return line;
  }
}
function show() {
  const wanted = find.value.toLowerCase();
  const shown = all.filter(article => !wanted || article.textContent.toLowerCase().includes(wanted));
  shown.sort((x, y) => value(x) - value(y) || x.dataset.line - y.dataset.line);
  list.replaceChildren(...shown);
  count.textContent = shown.length + " of " + all.length + " sentences";
}
order.addEventListener("change", show);
find.addEventListener("input", show);
show();
"""


def write_page(path: Path, result: ScoreResult, parts: Sequence[PartScores], sentences: Sequence[Sentence]) -> None:
    """Write the page; what was there before stays until the new one is whole.

    Args:
        path: a file.
        result: of one or two systems.
        parts: rows of the table of parts.
        sentences: all lines of the test set.
    Raises:
        AiaynError: the file cannot be written.
    """
    text = page(result, parts, sentences)
    write_output(path, text, "give another --html")


def check_place(path: Path, inputs: Iterable[str]) -> None:
    """Refuse a place where no page can be written, before any work is done.

    Args:
        path: where the page is to go.
        inputs: files that are read, which a page must not replace; "-" is stdin.
    Raises:
        UsageError: it is stdout, or one of the inputs.
        AiaynError: it is a folder, or as check_writable() says.
    """
    if str(path) == "-":
        raise UsageError("--html - is no file, and stdout has the scores", "name a file, such as --html compare.html")
    if path.is_dir():
        raise AiaynError(f"{path} is a folder, but --html writes a file", f"name a file in it: {path / 'compare.html'}")
    check_writable(path)
    place = read_place(path, inputs)
    if place is not None:
        first = "" if place == path else f", but {place}, where it is written until it is whole,"
        raise UsageError(f"--html {path}{first} is one of the files that are scored", "give the page a name of its own")


def page(result: ScoreResult, parts: Sequence[PartScores], sentences: Sequence[Sentence]) -> str:
    """The page as HTML; see write_page."""
    names = [system.hypotheses for system in result.systems]
    title = " against ".join(names)
    policy = f"default-src 'none'; style-src '{_hash(_STYLE)}'; script-src '{_hash(_SCRIPT)}'; base-uri 'none'"
    references = ", ".join(result.references)
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="small">{result.lines:,} lines against {escape(references)}; aiayn {__version__}</p>',
        *_warnings(result),
        "<h2>Scores</h2>",
        _scores(result),
        *_signatures(result),
        "<h2>Parts</h2>",
        _parts(result, parts),
        "<h2>Sentences</h2>",
        _controls(names, next(iter(sentences[0].scores))),
        '<div id="sentences">',
        *(_sentence(sentence, names, lower_is_better=_is_error_rate(result)) for sentence in sentences),
        "</div>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f"\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _is_error_rate(result: ScoreResult) -> bool:
    return result.systems[0].scores[0].metric == "TER"


def _warnings(result: ScoreResult) -> Iterable[str]:
    for system in result.systems:
        for warning in system.warnings:
            yield f'<p class="warning">{escape(system.hypotheses)}: {escape(warning)}</p>'


def _scores(result: ScoreResult) -> str:
    rows = ["<tr><th>system", *(f"<th>{escape(score.metric)}" for score in result.systems[0].scores)]
    if result.systems[0].compound_split:
        rows.append("<th>compound-split tokenised BLEU")
    for number, system in enumerate(result.systems):
        rows.append(f'<tr><td><span class="bar {"ab"[number]}" aria-hidden="true">&emsp;</span> ')
        rows.append(escape(system.hypotheses))
        for score in system.scores:
            interval = (
                "" if score.mean is None else f' <span class="small">{score.mean:.2f} ± {score.interval:.2f}</span>'
            )
            rows.append(f"<td>{score.score:.2f}{interval}")
        if system.compound_split:
            rows.append(f"<td>{system.compound_split.score:.2f}")
    for test in result.comparisons:
        verdict = "is hardly chance" if test.p_randomisation < SIGNIFICANT else "may be chance"
        rows.append(
            f'<tr><td colspan="{2 + len(result.systems[0].scores)}">{escape(test.metric)}: difference '
            f"{test.difference:+.2f}, p = {test.p_bootstrap:.4f} by paired bootstrap, {test.p_randomisation:.4f} by "
            f"approximate randomisation: it {verdict}"
        )
    return "<table>" + "\n".join(rows) + "\n</table>"


def _signatures(result: ScoreResult) -> Iterable[str]:
    first = result.systems[0]
    for score in first.scores:
        yield f'<p class="small">{escape(score.metric)}: <code>{escape(score.signature)}</code></p>'
    if first.compound_split:
        yield f'<p class="small">compound-split tokenised BLEU: {escape(first.compound_split.method)}</p>'


def _parts(result: ScoreResult, parts: Sequence[PartScores]) -> str:
    metric = result.systems[0].scores[0].metric
    most = max((value for part in parts for value in part.scores[0]), default=0.0) or 1.0
    titles = "".join(f"<th>{escape(system.hypotheses)}" for system in result.systems)
    rows = [f"<tr><th>{escape(metric)}<th>lines{titles}<th>"]
    for part in parts:
        values = "".join(f"<td>{value:.2f}" for value in part.scores[0])
        bars = "<br>".join(
            # A width in the element itself would need a looser policy: an SVG has it as an attribute.
            f'<svg width="{max(1, round(320 * value / most))}" height="9" class="bar {"ab"[number]}"></svg>'
            for number, value in enumerate(part.scores[0])
        )
        rows.append(f'<tr><td>{escape(part.part)}<td>{part.lines:,}{values}<td class="bars">{bars}')
    return "<table>" + "\n".join(rows) + "\n</table>"


def _controls(names: Sequence[str], metric: str) -> str:
    orders = [("line", "in order"), ("worst", f"worst {metric} first")]
    if len(names) == 2:
        orders += [("first", f"{names[0]} most ahead"), ("second", f"{names[1]} most ahead")]
    options = "".join(f'<option value="{value}">{escape(text)}</option>' for value, text in orders)
    return (
        f'<div class="controls"><label>Order <select id="order">{options}</select></label>'
        '<label>Find <input id="find" type="search"></label><span id="count"></span></div>'
    )


def _sentence(sentence: Sentence, names: Sequence[str], lower_is_better: bool) -> str:
    sign = -1 if lower_is_better else 1
    values = next(iter(sentence.scores.values()))
    data = f'data-line="{sentence.line}" data-worse="{sign * sum(values) / len(values):.4f}"'
    if len(values) == 2:
        data += f' data-difference="{sign * (values[0] - values[1]):.4f}"'
    compared = [differences(sentence.references[0], hypothesis) for hypothesis in sentence.hypotheses]
    columns = [] if sentence.source is None else [("source", escape(sentence.source))]
    single = len(compared) == 1
    columns.append(("reference", _marked(compared[0][0], "del") if single else escape(sentence.references[0])))
    columns += [(f"reference {n}", escape(text)) for n, text in enumerate(sentence.references[1:], start=2)]
    columns += [
        (f"{name}, {value:.1f}", _marked(pieces, "mark"))
        for name, value, (_, pieces) in zip(names, values, compared, strict=True)
    ]
    cells = "".join(
        f'<div><p class="name">{escape(name)}</p><p dir="auto">{content}</p></div>' for name, content in columns
    )
    return f'<article {data}><p class="name">line {sentence.line:,}</p><div class="columns">{cells}</div></article>'


def _marked(pieces: Sequence[Piece], element: str) -> str:
    return "".join(
        escape(piece.text)
        if piece.mark == "same" or not piece.text.strip()
        else f"<{element}>{escape(piece.text)}</{element}>"
        for piece in pieces
    )
