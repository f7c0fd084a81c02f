"""The console for tables, notices and the live line."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich import box, console
from rich import table as rich_table

_TRAILING = re.compile(r" +$", re.MULTILINE)

UNBOUNDED = 100_000
"""Console width for output to a pipe or a file, where lines are not wrapped."""


WIDEST_VALUE = 60
"""Width in a table at which a long value is wrapped, in characters."""


class Console(console.Console):
    """A console that raises BrokenPipeError if its reader has exited; rich would exit the process.

    The exception lets a run be torn down, and every verb exit with the same status, for example
    after ``| head``. In a pipe or a file, lines are never wrapped, so that commands in the output
    can be copied, and tables are not padded to their widest row.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not self.is_terminal:
            self.width = UNBOUNDED

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as the base class; on an error such as a full disk, set the name of the output."""
        try:
            if self.is_terminal:
                super().print(*objects, **options)
                return
            with self.capture() as printed:
                super().print(*objects, **options)
            self.file.write(_TRAILING.sub("", printed.get()))
            self.file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            error.filename = error.filename or "standard output"
            raise


@dataclass
class NotebookLines:
    """Shows the last eight lines of progress in a single output of a notebook's cell."""

    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    _shown: Any = None

    def tell(self, text: str) -> None:
        """Show another line."""
        from IPython.display import display

        self._lines.append(text)
        data = {"text/plain": "\n".join(self._lines)}
        if self._shown is None:
            show: Any = display
            self._shown = show(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)


class Table(rich_table.Table):
    """A table that never truncates a cell: on a narrow terminal, cells wrap."""

    def add_column(self, *arguments: Any, **options: Any) -> None:
        super().add_column(*arguments, **{"overflow": "fold"} | options)


def table(*columns: str) -> Table:
    """Return an empty table with a line below the column names."""
    return Table(*columns, box=box.SIMPLE_HEAD)


def span(words: Iterable[str]) -> str:
    """Return a range of consecutive items, as its first and last one."""
    first, *rest = words
    return f"{first} - {rest[-1]}" if rest else first
