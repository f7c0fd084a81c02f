"""What a starting process tells the one that waits for it: lines of JSON through a pipe."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.errors import HostError, NodeError, TestbedError
from testbed.telemetry.files import read_tail

MESSAGE_CHARACTERS = 1500
"""Of an error; a line must fit into PIPE_BUF, so that lines of two writers never mix."""

LOG_LINES = 10


def report(descriptor: int, **message: Any) -> None:
    """Write one line into a pipe.

    Raises:
        BrokenPipeError: nobody waits any more.
    """
    os.write(descriptor, json.dumps(message).encode() + b"\n")


def encode_error(error: TestbedError | OSError) -> dict[str, str]:
    """An error as plain data; what the system refused becomes a NodeError at the other end."""
    if isinstance(error, TestbedError):
        message, hint = error.message, error.hint
    else:
        message, hint = f"{error}.", ""
    kind = "HostError" if isinstance(error, HostError) else "NodeError"
    return {"kind": kind, "message": message[:MESSAGE_CHARACTERS], "hint": hint}


def decode_error(content: Mapping[str, str]) -> TestbedError:
    """The error that ``encode_error`` made plain data of."""
    kind = HostError if content["kind"] == "HostError" else NodeError
    return kind(content["message"], hint=content["hint"])


class ReportPipe:
    """The reading end, whose descriptor stays the caller's.

    ``whose`` names the writer in error messages; the last lines of its ``log`` say what went wrong.
    """

    def __init__(self, descriptor: int, *, whose: str, log: Path) -> None:
        self._descriptor = descriptor
        self._whose = whose
        self._log = log
        self._said: dict[str, Any] = {}
        self._partial = b""

    def expect(self, key: str, *, deadline: float) -> Any:
        """Wait for the line that says ``key``, and return what it says.

        Raises:
            NodeError, HostError: the writer reported an error, ended, or was late (``deadline`` is
                a ``time.monotonic``).
        """
        while key not in self._said:
            if "error" in self._said:
                raise decode_error(self._said["error"])
            if not self._readable(deadline - time.monotonic()):
                raise NodeError(f"{self._whose}: no {key!r} in time.{last_lines(self._log)}")
            self._read(key)
        return self._said[key]

    def _readable(self, seconds: float) -> bool:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN | select.POLLHUP)
        return bool(poller.poll(max(0.0, seconds * 1000)))

    def _read(self, key: str) -> None:
        data = os.read(self._descriptor, 65536)
        if not data:
            raise NodeError(f"{self._whose}: ended before {key!r}.{last_lines(self._log)}")
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._said.update(json.loads(line))


def last_lines(log: Path) -> str:
    """What a log ends with, as the end of a message."""
    try:
        lines = read_tail(log, lines=LOG_LINES)
    except FileNotFoundError:
        return ""
    if not lines:
        return f" {log} is empty."
    return f" Last lines of {log}:\n" + "\n".join(lines)
