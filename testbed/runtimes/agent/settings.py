"""The settings of an agent on its command line, and finding an agent by them from outside.

An agent is two processes: the agent itself, in a native run the first of the run's pid namespace,
and the outer one that waits for it. Both name their run on their command line. A process that is
exiting has lost its command line while the kernel still tears it down, and is identified by its
title until it has exited.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from testbed.host.hierarchies import Hierarchy
from testbed.host.limits import ROOTS_PIDS_LIMIT
from testbed.host.process import Process, every_pid, name_of, namespace_pids, parent_of
from testbed.host.users import Users
from testbed.network.tunnel import Tunnel

AGENT_LOG = "agent"
AGENT_SOCKET = "agent.sock"
PRIVATE = "private"
"""Folder of a native agent's socket, in a mount of its own mount namespace: only a process that may
inspect the agent reaches it, as no node may, even if it has the user's own uid."""

LIFELINE_SOCKET = "lifeline.sock"
"""Of an agent in a container. All of these are in the run folder's ``control``."""

MARK = "mark"
"""A file that every container of a node mounts; see ``mark``."""

COMMIT = b"commit\n"
OWN_FAILURE = 1
"""Exit status of an agent that ended with an error of its own, which is in its log."""

OnHangup = Literal["end", "finish", "keep"]
"""What a run does when its controller hangs up or dies: it ends, continues until training has
finished and ends then, or stays until it is stopped."""


@dataclass(frozen=True)
class Template:
    """What the process that warm nodes are forked from does before the first fork.

    Attributes:
        preload: modules to import.
        warm_up: entry point to call once, as ``module:function``; empty for none. Its result,
            unless it is None, is the second argument of every entry point of a warm node.
        arguments: what the warm-up is called with.
        forks: the expected number of nodes.
    """

    preload: tuple[str, ...] = ()
    warm_up: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    forks: int = 0


OWN_CONTAINERS = "testbed.runtimes.agent.init:main"
"""Main of an agent that creates the containers, in a pid namespace of the run."""


@dataclass(frozen=True)
class AgentSettings:
    """What an agent must know of its run before the first launch.

    Attributes:
        folder: the run folder; its name is the run's.
        hierarchies: where control groups are created; empty for a run without them.
        private: folders of the user that are hidden from nodes, except what the interpreter needs.
        processes: the maximum number of processes and threads of one node uid.
        main: entry point of the agent's process, called with the settings.
        images: whether nodes have containers of the user's images, which need a first process.
        tunnel: what joins its switch to those of the run's other hosts, if there are any.
    """

    folder: Path
    template: Template
    users: Users
    hierarchies: tuple[Hierarchy, ...]
    private: tuple[Path, ...] = ()
    processes: int = ROOTS_PIDS_LIMIT
    main: str = OWN_CONTAINERS
    images: bool = False
    tunnel: Tunnel | None = None

    @property
    def own_pids(self) -> bool:
        """Whether the run has a pid namespace of its own, whose end ends all its processes.

        Root's agent that enters containers of an engine is in the one in which they are.
        """
        return self.main == OWN_CONTAINERS or self.users.namespace

    @staticmethod
    def from_json(text: str) -> AgentSettings:
        """Parse the output of ``to_json``; ValueError if another version wrote it, or none."""
        return _SETTINGS.validate_json(text)

    def to_json(self) -> str:
        """One line of JSON."""
        return _SETTINGS.dump_json(self).decode()


TEMPLATE = TypeAdapter(Template)
_SETTINGS = TypeAdapter(AgentSettings)


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


def find_agents(main: str = OWN_CONTAINERS) -> Iterator[tuple[Process, AgentSettings]]:
    """Find the processes of this user's agents with this main, with or without control groups."""
    for pid in _own_pids():
        with suppress(ProcessLookupError):  # it has just ended
            settings = settings_of(pid)
            if settings is not None and settings.main == main:
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
