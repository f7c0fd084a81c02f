"""Commands of the host that an image build needs, ended with everything they started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from testbed.errors import HostError

GRACE_SECONDS = 10.0
SHOWN_LINES = 12


def run_command(
    command: Sequence[str], *, doing: str, environment: Mapping[str, str], hint: str = ""
) -> None:
    """Run a command to its end, silently; interrupted, it is ended with all its children.

    Raises:
        HostError: there is no such command, or it failed; the message has the end of what it said.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            env=environment,
            process_group=0,
        )
    except FileNotFoundError:
        raise HostError(f"There is no command {command[0]}, for {doing}.", hint=hint) from None
    with process:
        try:
            said, _ = process.communicate()
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        lines = [line for line in said.splitlines() if line.strip()][-SHOWN_LINES:]
        raise HostError(
            "\n  ".join([f"`{command[0]}` failed {doing}:", *lines]),
            hint=hint,
        )


def _end(process: subprocess.Popen[str]) -> None:
    """End a command and its children: it may clean up, but not for long."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
