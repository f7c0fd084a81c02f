"""Reads what the nodes of a run printed, once or as it grows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.run.tail import LineTail
from testbed.telemetry.folder import RunFolder

FOLLOW_SECONDS = 0.2


@dataclass(frozen=True)
class Line:
    """A line that a node printed."""

    node: str
    text: str


def read_logs(folder: RunFolder, nodes: Sequence[str]) -> Iterator[Line]:
    """What these nodes have printed so far, one node after the other."""
    for node in nodes:
        yield from _lines(node, LineTail(folder.log(node)), whole=True)


def follow_logs(folder: RunFolder, nodes: Sequence[str]) -> Iterator[Line]:
    """What these nodes have printed and print until the run ends, as it comes."""
    tails = {node: LineTail(folder.log(node)) for node in nodes}
    going_on = True
    while going_on:
        going_on = folder.alive()
        for node, tail in tails.items():
            yield from _lines(node, tail, whole=not going_on)
        if going_on:
            time.sleep(FOLLOW_SECONDS)  # logs are files: nothing tells when one has grown


def _lines(node: str, tail: LineTail, *, whole: bool) -> Iterator[Line]:
    for line in tail.read(whole=whole):
        yield Line(node, line.decode(errors="replace"))
