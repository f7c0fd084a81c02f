"""The agents on this host, as they are seen from outside without any record of them.

An agent is two processes: the first of the run's pid namespace, and the one outside that waits for
it. Both say on their command line which run they are of. One that is ending has lost that while the
kernel still takes it apart, and is known by its title until it is gone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.agent.settings import AgentSettings
from testbed.host.process import Process, every_pid, name_of, namespace_pids, parent_of

AGENT_MODULE = "testbed.agent"
TITLE_DIGITS = 7
"""With "testbed:", the 15 bytes that the kernel keeps of a process's name."""


def title_of(folder: Path) -> str:
    """What the processes of a run's agent are called, by the path of the run's folder."""
    return f"testbed:{hashlib.sha256(os.fsencode(folder)).hexdigest()[:TITLE_DIGITS]}"


def settings_of(pid: int) -> AgentSettings | None:
    """What a process was told, if it is an agent's; None if it is not, or is ending."""
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
    """The processes of this user's agents, of runs with control groups or without."""
    for pid in _own_pids():
        with suppress(ProcessLookupError):  # it has just ended
            settings = settings_of(pid)
            if settings is not None:
                yield Process.of(pid), settings


def first_of(folder: Path) -> Process | None:
    """The first process of a run's pid namespace; None if there is none, or it is ending."""
    found = [process for process, settings in find_agents() if settings.folder == folder]
    depths = {process: depth for process in found if (depth := _depth_of_first(process.pid))}
    # A node that was forked warm has the agent's command line too; it is the first one further in.
    return min(depths, key=depths.__getitem__, default=None)


def all_of(folder: Path) -> list[Process]:
    """The processes of a run's agent, those that are ending too."""
    title, found = title_of(folder), []
    for pid in _own_pids():
        with suppress(ProcessLookupError):  # it has just ended
            settings, process = settings_of(pid), Process.of(pid)
            mine = name_of(pid) == title if settings is None else settings.folder == folder
            if mine and process.alive():
                found.append(process)
    return found


def waiting_for(agent: Process) -> Process | None:
    """The process outside that waits for the first one of a run's; None if it has ended before."""
    with suppress(ProcessLookupError):
        outside = Process.of(parent_of(agent.pid))
        return None if settings_of(outside.pid) is None else outside
    return None


def _depth_of_first(pid: int) -> int:
    """In how many pid namespaces the first process of one is; 0 for any other, and one ended."""
    with suppress(ProcessLookupError):
        pids = namespace_pids(pid)
        return len(pids) if pids[-1] == 1 else 0
    return 0


def _own_pids() -> Iterator[int]:
    for pid in every_pid():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if Path(f"/proc/{pid}").stat().st_uid == os.geteuid():
                yield pid
