"""Finds the agents on this host from outside, without any record of them.

An agent is two processes: the first of the run's pid namespace, and the outer one that waits for
it. Both name their run on their command line. A process that is exiting has lost its command line
while the kernel still tears it down, and is identified by its title until it has exited.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.host.process import Process, every_pid, name_of, namespace_pids, parent_of
from testbed.runtimes.agent.settings import AgentSettings

AGENT_MODULE = "testbed.runtimes.agent"
TITLE_DIGITS = 7
"""With "testbed:", the 15 bytes that the kernel keeps of a process name."""


def title_of(folder: Path) -> str:
    """Return the title of the processes of a run's agent, by the path of the run folder."""
    return f"testbed:{hashlib.sha256(os.fsencode(folder)).hexdigest()[:TITLE_DIGITS]}"


def settings_of(pid: int) -> AgentSettings | None:
    """Return a process's settings, if it belongs to an agent; None if not, or if it is exiting."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    if AGENT_MODULE not in words[:-1]:
        return None
    try:
        return AgentSettings.from_json(words[words.index(AGENT_MODULE) + 1])
    except ValueError:  # another version's
        return None


def find_agents() -> Iterator[tuple[Process, AgentSettings]]:
    """Find the processes of this user's agents, of runs with or without control groups."""
    for pid in _own_pids():
        with suppress(ProcessLookupError):  # it has just ended
            settings = settings_of(pid)
            if settings is not None:
                yield Process.of(pid), settings


def first_of(folder: Path) -> Process | None:
    """Return the first process of a run's pid namespace; None if there is none or it is exiting."""
    found = [process for process, settings in find_agents() if settings.folder == folder]
    depths = {process: depth for process in found if (depth := _depth_of_first(process.pid))}
    # A node that was forked warm has the agent's command line too, one pid namespace further in.
    return min(depths, key=depths.__getitem__, default=None)


def all_of(folder: Path) -> list[Process]:
    """Return the processes of a run's agent, including those that are exiting."""
    title, found = title_of(folder), []
    for pid in _own_pids():
        with suppress(ProcessLookupError):  # it has just ended
            settings, process = settings_of(pid), Process.of(pid)
            mine = name_of(pid) == title if settings is None else settings.folder == folder
            if mine and process.alive():
                found.append(process)
    return found


def waiting_for(agent: Process) -> Process | None:
    """Return the outer process that waits for a run's first one; None if it ended earlier."""
    with suppress(ProcessLookupError):
        outside = Process.of(parent_of(agent.pid))
        return None if settings_of(outside.pid) is None else outside
    return None


def _depth_of_first(pid: int) -> int:
    """Return the depth of the pid namespace whose first process this is; 0 for any other."""
    with suppress(ProcessLookupError):
        pids = namespace_pids(pid)
        return len(pids) if pids[-1] == 1 else 0
    return 0


def _own_pids() -> Iterator[int]:
    for pid in every_pid():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if Path(f"/proc/{pid}").stat().st_uid == os.geteuid():
                yield pid
