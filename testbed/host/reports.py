"""Reports from a starting process to the one that waits for it: lines of JSON in a pipe."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import HostError, NodeError, TestbedError, escaped

MESSAGE_CHARACTERS = 1500
"""Of an error; a line must fit into PIPE_BUF, so that lines of two writers never mix."""

LOG_LINES = 10
TAIL_BYTES = 8192


def report(descriptor: int, **message: Any) -> None:
    """Write one line into a pipe.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
    """
    os.write(descriptor, json.dumps(message).encode() + b"\n")


def encode_error(error: TestbedError | OSError) -> dict[str, str]:
    """Return an error as plain data; an OSError becomes a NodeError at the other end."""
    if isinstance(error, TestbedError):
        message, hint = error.message, error.hint
    else:
        message, hint = f"{error}.", ""
    kind = "HostError" if isinstance(error, HostError) else "NodeError"
    return {"kind": kind, "message": message[:MESSAGE_CHARACTERS], "hint": hint}


def decode_error(content: Mapping[str, str]) -> TestbedError:
    """Return the error that ``encode_error`` encoded."""
    kind = HostError if content["kind"] == "HostError" else NodeError
    return kind(content["message"], hint=content["hint"])


class ReportPipe:
    """The reading end of a pipe; the caller owns the descriptor.

    ``writer`` names the writer in error messages, which quote the last lines of its ``log``;
    ``complete`` is called before, to make sure that they are there.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        writer: str,
        log: Path,
        complete: Callable[[], None] = lambda: None,
    ) -> None:
        self._descriptor = descriptor
        self._writer = writer
        self._log = log
        self._complete = complete
        self._reported: dict[str, Any] = {}
        self._partial = b""

    def expect(self, key: str, *, deadline: float) -> Any:
        """Wait for the line with ``key``, and return its value.

        Raises:
            NodeError, HostError: the writer reported an error, ended, or was late (``deadline`` is
                a ``time.monotonic``).
        """
        while key not in self._reported:
            if "error" in self._reported:
                raise decode_error(self._reported["error"])
            if not self._readable(deadline - time.monotonic()):
                raise self._failure(f"did not report {key!r} in time", hint=_hint_for_late())
            self._read(key)
        return self._reported[key]

    def _readable(self, seconds: float) -> bool:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN | select.POLLHUP)
        return bool(poller.poll(max(0.0, seconds * 1000)))

    def _read(self, key: str) -> None:
        data = os.read(self._descriptor, 65536)
        if not data:
            raise self._failure(f"exited before it reported {key!r}")
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._reported.update(json.loads(line))

    def _failure(self, what: str, *, hint: str = "") -> NodeError:
        self._complete()
        return NodeError(f"{self._writer}: {what}.{last_lines(self._log)}", hint=hint)


def _hint_for_late() -> str:
    return (
        f"This host's load is {os.getloadavg()[0]:.0f} with {os.cpu_count()} CPUs: if it is too "
        "busy, end other programs, or use fewer workers."
    )


def last_lines(log: Path) -> str:
    """Return the last lines of a log, to append to a message."""
    try:
        lines = read_tail(log, lines=LOG_LINES)
    except FileNotFoundError:
        return ""
    if not lines:
        return f" {log} is empty."
    return f" Last lines of {log}:\n" + "\n".join(lines)


def read_tail(path: Path, *, lines: int) -> list[str]:
    """Return the last lines of a log, escaped, at most TAIL_BYTES; the log may be of any size."""
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
        last = log.read(TAIL_BYTES).decode(errors="replace").splitlines()[-lines:]
    return [escaped(line) for line in last]
