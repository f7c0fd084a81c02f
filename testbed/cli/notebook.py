"""Progress of a sweep in a notebook."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

LINES = 8


@dataclass
class Lines:
    """Shows the last lines of progress in a single output of a cell."""

    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
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
