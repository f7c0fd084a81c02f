"""What tables, notices and the live line are written to."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box, console
from rich.table import Table


class Console(console.Console):
    """One that raises BrokenPipeError when its reader has gone; rich would end the process.

    A run has to be torn down then, and every verb ends with the same status, as after ``| head``.
    """

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def span(words: Iterable[str]) -> str:
    """Neighbours in a list, by the first and the last of them."""
    first, *rest = words
    return f"{first} - {rest[-1]}" if rest else first


def table(*columns: str) -> Table:
    """An empty table with a line below the names of its columns."""
    return Table(*columns, box=box.SIMPLE_HEAD)
