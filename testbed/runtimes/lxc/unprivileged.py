"""An ordinary user's containers: in the user and pid namespaces of the run, without control groups.

In them the user is uid 0, so LXC creates containers as it does for root. It stays in the host's
network namespace, in which LXC's tools reach a monitor. All of it ends with the agent, which is the
first process of the pid namespace.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path

from testbed.errors import HostError, NodeError
from testbed.host.process import Process, every_pid, has_ended, namespace_pids
from testbed.host.users import Users
from testbed.runtimes.base import STOP_SECONDS
from testbed.runtimes.lxc.groups import containers_folder
from testbed.runtimes.native.lifeline import read_record
from testbed.telemetry.folder import RunFolder

FIRST = "first"
"""File in a container's folder: the pid of its first process, as the agent sees it."""


def require_range(users: Users) -> None:
    """Reject an ordinary user without subordinate uids: HostError with how to get them."""
    if users.kind == "one":
        raise HostError(
            "the runtime lxc needs root, or subordinate uids of this user.",
            hint="Debian, Ubuntu: sudo apt-get install uidmap && sudo usermod --add-subuids "
            '100000-165535 --add-subgids 100000-165535 "$USER". Or use `runtime: native`.',
        )


def entering(run: Path) -> tuple[str, ...]:
    """Return the command that executes another as uid 0 of the run; NodeError without an agent."""
    agent = _agent_of(run)
    enter = ("nsenter", f"--target={agent.pid}", "--user", "--mount", "--pid", "--")
    return (*enter, "env", *(f"{name}={text}" for name, text in _locks(run).items()))


def first_process(run: Path, place: Path) -> int | None:
    """Return the pid of a container's first process as the agent sees it; None if it has ended."""
    found = _ask("lxc-info", run, place, "--pid", "--no-humanize")
    return int(found) if found.isdecimal() and int(found) > 0 else None


def find_first(run: Path, kept: Path) -> Process | None:
    """Return the first process of the container with this folder, alive with or without monitor."""
    with suppress(FileNotFoundError, NodeError, OSError, ValueError):  # half a file
        inner, agent = int((kept / FIRST).read_text()), _agent_of(run)
        theirs = _user_namespace(agent.pid)
        for pid in list(every_pid()):
            with suppress(OSError):  # it has ended, or is another user's
                if namespace_pids(pid)[-2:] == (inner, 1) and _user_namespace(pid) == theirs:
                    return Process.of(pid)
    return None


def end(run: Path, place: Path, kept: Path, *, deadline: float) -> None:
    """Kill the container with this folder, if it is alive, and wait for its monitor to end.

    Raises:
        HostError: it has not ended by ``deadline`` (``time.monotonic``).
    """
    if not kept.exists():
        return
    if not (kept / FIRST).exists() and (pid := first_process(run, place)) is not None:
        (kept / FIRST).write_text(str(pid))  # its start was interrupted
    first = find_first(run, kept)
    descriptor = None if first is None else first.open()
    if descriptor is not None:
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            if not has_ended(descriptor, max(0.0, deadline - time.monotonic())):
                raise HostError(f"{place.name} was killed but does not end.")
        finally:
            os.close(descriptor)
    left = ceil(max(1.0, deadline - time.monotonic()))
    _ask("lxc-wait", run, place, "--state", "STOPPED", "--timeout", str(left))


def _ask(tool: str, run: Path, place: Path, *words: str) -> str:
    """Return what a tool of LXC prints about a container; empty if it does not end.

    Its locks are in the run folder. A monitor that is stopped does not answer.
    """
    command = (tool, "--lxcpath", str(place.parent), "--name", place.name, *words)
    environment = {**os.environ, **_locks(run)}
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS,
            check=False,
        ).stdout.strip()
    return ""


def _locks(run: Path) -> Mapping[str, str]:
    """Return what makes LXC create its locks in the run folder instead of the user's."""
    return {"XDG_RUNTIME_DIR": str(containers_folder(run))}


def _agent_of(run: Path) -> Process:
    agent = read_record(RunFolder(run))
    if agent is None or not agent.alive():
        raise NodeError(f"the agent of {run.name} has ended.")
    return agent


def _user_namespace(pid: int) -> Path:
    return Path(f"/proc/{pid}/ns/user").readlink()
