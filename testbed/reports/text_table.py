"""Tables as text: aligned Markdown, which is readable as plain text, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. Cells are never truncated; numeric columns are right-aligned."""
    cells = [[_escaped(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    right = numeric_columns(cells[1:], columns=len(headings))
    rule = [
        "-" * (width - 1) + (":" if flush else "-")
        for width, flush in zip(widths, right, strict=True)
    ]
    lines = []
    for row in (cells[0], rule, *cells[1:]):
        aligned = (
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        )
        lines.append(f"| {' | '.join(aligned)} |")
    return "\n".join(lines) + "\n"


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return out.getvalue()


def numeric_columns(rows: Sequence[Sequence[str]], *, columns: int) -> list[bool]:
    """Return for each column whether all its cells are numbers or placeholders for none."""
    return [_is_numeric([row[index] for row in rows]) for index in range(columns)]


def _escaped(cell: str) -> str:
    return " ".join(cell.replace("|", "\\|").split())


def _is_numeric(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell and cell != "never" and not cell.startswith("not ")]
    return bool(filled) and all(cell[0] in "0123456789.-+" for cell in filled)
