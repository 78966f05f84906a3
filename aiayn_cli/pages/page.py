"""HTML pages of one file each, and line charts for them: all is inside, and their policy lets the browser load nothing.

This folder has the templates (Jinja), which extend layout.html, the stylesheet and the scripts. Charts are inline SVG;
curves.js adds a tooltip at each point.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aiayn_cli import logs

_FOLDER = Path(__file__).parent
_MOST_POINTS = 400  # of one line; more would be indistinguishable
_TICKS = 5


def render_page(template: str, script: str = "", **values: Any) -> str:
    """Fill in a template of this folder with the values that it names, escaped; every page needs "title".

    Raises:
        jinja2.UndefinedError: the template names another value.
    """
    style = (_FOLDER / "style.css").read_text(encoding="utf-8")
    code = (_FOLDER / script).read_text(encoding="utf-8") if script else ""
    page: str = _environment(_FOLDER).get_template(template).render(style=style, script=code, **values)
    return page


@cache
def _environment(folder: Path) -> Any:
    # Here, because few commands write a page, and loading Jinja takes as long as a plain score.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sha256"] = _sha256
    environment.globals["counted"] = logs.counted
    return environment


def _sha256(content: str) -> str:
    """A hash in the form of a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str  # in the legend
    points: Sequence[tuple[float, float]]  # (x, y) with x rising; those that are not finite are not drawn
    dotted: bool = False  # whether each point gets a dot with its numbers as a tooltip


def line_chart(title: str, lines: Sequence[Line], *, marks: Sequence[float] = (), x_name: str = "update") -> str:
    """An <svg> element, or "" if there is no point to draw.

    Args:
        title: with the unit of y.
        marks: x of thin vertical lines.
        x_name: label of the horizontal axis.
    """
    lines = [Line(line.name, [p for p in line.points if all(map(math.isfinite, p))], line.dotted) for line in lines]
    drawn = [(line, thinned(line.points, _MOST_POINTS)) for line in lines if line.points]
    if not drawn:
        return ""
    xs, ys = zip(*(point for line in lines for point in line.points), strict=True)
    x_ticks, y_ticks = ticks(0, max(xs)), ticks(min(ys), max(ys))
    low, high = min(*ys, y_ticks[0]), max(*ys, y_ticks[-1])
    values = {"last": max(xs) or 1, "high": high, "span": (high - low) or 1, "x_ticks": x_ticks, "y_ticks": y_ticks}
    return render_page("chart.html", title=title, drawn=drawn, marks=marks, x_name=x_name, number=_number, **values)


def ticks(low: float, high: float) -> list[float]:
    """Two to about six round numbers in steps of 1, 2 or 5 times a power of ten, from low or below to near high."""
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"no ticks from {low} to {high}")
    size = max(abs(low), abs(high))
    span = high - low
    if span <= 1e-9 * size or size < 1e-100:  # labels could show only one number
        span = size if size >= 1e-100 else 1.0
    power = 10.0 ** math.floor(math.log10(span / _TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if span / (factor * power) <= _TICKS)
    first = math.floor(low / step)
    last = max(math.floor(high / step), first + 1)
    return [number * step for number in range(first, last + 1)]


def without_steep_start(points: Sequence[tuple[float, float]], share: float = 0.05) -> list[tuple[float, float]]:
    """Leave out points of the first `share` of x that are higher than all later ones: they would flatten the rest."""
    later = [y for x, y in points if x >= share * points[-1][0]]
    return [point for point in points if point[1] <= max(later)]


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` of the points: the lowest and the highest of each stretch, so that no spike is lost."""
    if len(points) <= most:
        return list(points)
    kept = []
    stretches = most // 2
    for number in range(stretches):
        some = range(len(points) * number // stretches, len(points) * (number + 1) // stretches)
        ends = {min(some, key=lambda i: points[i][1]), max(some, key=lambda i: points[i][1])}
        kept += [points[i] for i in sorted(ends)]
    return kept


def _number(value: float, among: Sequence[float]) -> str:
    """A tick's label, with as many decimals as the step between ticks needs."""
    step = among[1] - among[0]
    if max(abs(among[0]), abs(among[-1])) < 1e-2 or step >= 1e6:
        return f"{value:.3g}"
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{places}f}"
