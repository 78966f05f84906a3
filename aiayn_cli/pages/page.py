"""HTML pages of one file each, and line charts for them: all is inside, and their policy lets the browser load nothing.

This folder has the templates (Jinja), which extend layout.html, the stylesheet and the scripts. Charts are inline SVG;
curves.js adds a tooltip at each point.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_WIDTH, _HEIGHT = 400, 220  # about the pixels that a phone has, so that text is as large as elsewhere on the page
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 20, 42, 32  # room around the plot, for titles and numbers
_MOST_POINTS = 400  # of one line; more would be indistinguishable
_TICKS = 5
_COLOURS = 8  # CSS classes line-0 to line-7


def render_page(template: str, script: str = "", **values: Any) -> str:
    """Fill in a template of this folder with the values that it names, escaped; every one needs "title".

    Raises:
        jinja2.UndefinedError: the template names another value.
    """
    # Here, because few commands write a page, and loading Jinja takes as long as a plain score.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sha256"] = _sha256
    return environment.get_template(template).render(
        style=(_FOLDER / "style.css").read_text(encoding="utf-8"),
        script=(_FOLDER / script).read_text(encoding="utf-8") if script else "",
        **values,
    )


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
    """An <svg> element, or "" if there is no point to draw; its colours are the CSS classes line-0 to line-7.

    Args:
        title: with the unit of y.
        marks: x of thin vertical lines.
        x_name: label of the horizontal axis.
    """
    lines = [Line(line.name, [p for p in line.points if all(map(math.isfinite, p))], line.dotted) for line in lines]
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_ticks, y_ticks = ticks(0, max(xs)), ticks(min(ys), max(ys))
    left, right = 0.0, max(xs)
    low, high = min(*ys, y_ticks[0]), max(*ys, y_ticks[-1])

    def across(x: float) -> float:
        return _LEFT + (x - left) / ((right - left) or 1) * (_WIDTH - _LEFT - _RIGHT)

    def down(y: float) -> float:
        return _TOP + (high - y) / ((high - low) or 1) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}" data-x="{escape(x_name)}">',
        f'<text x="10" y="16" class="title">{escape(title)}</text>',
    ]
    for y in y_ticks:
        parts.append(f'<path d="M{_LEFT} {down(y):.1f}H{_WIDTH - _RIGHT}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{down(y) + 4:.1f}" text-anchor="end">{_number(y, y_ticks)}</text>')
    for x in x_ticks:
        parts.append(f'<text x="{across(x):.1f}" y="{_HEIGHT - 17}" text-anchor="middle">{_number(x, x_ticks)}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">{escape(x_name)}</text>')
    for x in marks:
        if left <= x <= right:
            parts.append(f'<path d="M{across(x):.1f} {_TOP}V{_HEIGHT - _BOTTOM}" class="mark"/>')
    for number, line in enumerate(lines):
        points, colour = thinned(line.points, _MOST_POINTS), number % _COLOURS
        path = "L".join(f"{across(x):.1f} {down(y):.1f}" for x, y in points)
        values = " ".join(f"{x:.12g} {y:.5g}" for x, y in points)
        name = escape(line.name)
        parts.append(f'<path d="M{path}" class="line-{colour}" data-name="{name}" data-points="{values}"/>')
        if line.dotted or len(line.points) == 1:
            for x, y in line.points:
                tip = f"{name}: {y:.5g} at {escape(x_name)} {x:,.0f}"
                place = f'cx="{across(x):.1f}" cy="{down(y):.1f}"'
                parts.append(f'<circle {place} r="2.5" class="dot-{colour}"><title>{tip}</title></circle>')
    if len(lines) > 1 and sum(30 + 6.5 * len(line.name) for line in lines) < _WIDTH:
        at = 10.0
        for number, line in enumerate(lines):
            parts.append(f'<path d="M{at} 29h14" class="line-{number % _COLOURS}"/>')
            parts.append(f'<text x="{at + 18}" y="33">{escape(line.name)}</text>')
            at += 30 + 6.5 * len(line.name)
    return "".join(parts) + "</svg>"


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
