"""What is known of a run's nodes from outside the run, whatever holds each of them together."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Cells(Protocol):
    """The nodes of one run: their control groups, or where there are none, their processes."""

    def nodes(self) -> list[str]:
        """Every node that was launched, by name; ended ones included as long as the run lives."""

    def first(self, node: str) -> int | None:
        """The pid of a node's role; None if it has ended."""

    def is_frozen(self, node: str) -> bool:
        """Whether a node stands still."""

    def freeze(self, node: str) -> None:
        """Stop all processes of a node where they are, and wait until they stand.

        Raises:
            NodeError: there is no such node, or it does not stop.
        """

    def thaw(self, node: str) -> None:
        """Let a frozen node go on.

        Raises:
            NodeError: there is no such node.
        """

    def entrances(self, node: str) -> list[Path]:
        """The files into which a process writes 0 to become one of the node's."""
