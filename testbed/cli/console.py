"""What tables, notices and the live line are written to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box, console
from rich import table as rich_table

UNBOUNDED = 100_000
"""Columns where nobody sees a line's end: in a pipe or a file."""


WIDEST_VALUE = 60
"""Columns of a value of any length in a table, beyond which it is wrapped."""


class Console(console.Console):
    """One that raises BrokenPipeError when its reader has gone; rich would end the process.

    A run has to be torn down then, and every verb ends with the same status, as after ``| head``.
    In a pipe or a file lines are as long as they are: whatever has to be typed stands there whole.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not self.is_terminal:
            self.width = UNBOUNDED

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        """See the base class; a full disk behind the output is named by what it is."""
        try:
            super().print(*objects, **options)
        except BrokenPipeError:
            raise
        except OSError as error:
            error.filename = error.filename or "standard output"
            raise


class Table(rich_table.Table):
    """A table that never cuts a cell: on a terminal that is too narrow it goes on below."""

    def add_column(self, *arguments: Any, **options: Any) -> None:
        super().add_column(*arguments, **{"overflow": "fold"} | options)


def table(*columns: str) -> Table:
    """An empty table with a line below the names of its columns."""
    return Table(*columns, box=box.SIMPLE_HEAD)


def span(words: Iterable[str]) -> str:
    """Neighbours in a list, by the first and the last of them."""
    first, *rest = words
    return f"{first} - {rest[-1]}" if rest else first
