"""Captures the link of a node of an active run into a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from testbed.errors import HostError
from testbed.network.capture import Captured
from testbed.reports.exports import check_new
from testbed.run.net import open_links
from testbed.telemetry.folder import RunFolder

STANDARD_OUTPUT = Path("-")
ENDS = {
    "time": "",
    "size": "; the file is full",
    "link": "; the node's link does not exist any more",
}


def capture_into(
    folder: RunFolder, node: str, file: Path, *, seconds: float, most_bytes: int, force: bool
) -> str:
    """Capture what a node's link carries; return a description of the file.

    The agent hands over a socket of the run's network; nothing else of it is involved, and nothing
    is left if this process is killed. On another host, a command in its agent's container captures.

    Args:
        folder: the run's.
        node: a name, or a pattern that matches one node.
        file: the file to write; ``-`` for standard output.
        seconds: real time.
        most_bytes: limit of the file's length.
        force: whether to replace an existing file.

    Raises:
        ScenarioError: no such node, or one without a link; a simulation; or the file exists.
        NodeError: the run has ended, or the node does not run.
        HostError: the file cannot be written, or belongs to another user's run.
    """
    if file != STANDARD_OUTPUT:
        check_new("--to", file, force=force)
    with open_links(folder) as links, links.capturing(node) as capture, _opened(file) as into:
        found = capture(into, seconds=seconds, most_bytes=most_bytes)
    return _described(found, file)


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """Open a file to write.

    Raises:
        HostError: it cannot be written.
    """
    if file == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        return
    try:
        with file.open("wb") as opened:
            yield opened
    except OSError as error:
        raise HostError(
            f"{file}: {error.strerror}.", hint="Choose another one: --to FILE"
        ) from None


def _described(found: Captured, file: Path) -> str:
    dropped = f", {found.dropped:,} more were not read in time" if found.dropped else ""
    count = f"{found.frames:,} frames, {found.written_bytes:,} bytes{dropped}{ENDS[found.ended]}"
    where = "standard output" if file == STANDARD_OUTPUT else str(file)
    return f"{where}: {count}"
