"""Tables of plain text."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right; blanks at the end of a line are cut.

    Args:
        rows: of equal length; the first one holds the titles.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
