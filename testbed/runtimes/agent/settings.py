"""The settings of an agent on its command line, and its files in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from testbed.host.hierarchies import Hierarchy
from testbed.host.limits import ROOTS_PIDS_LIMIT
from testbed.host.users import Users

AGENT_LOG = "agent"
AGENT_SOCKET = "agent.sock"
PRIVATE = "private"
"""Folder of a native agent's socket, in a mount of its own mount namespace: only a process that may
inspect the agent reaches it, as no node may, even if it has the user's own uid."""

LIFELINE_SOCKET = "lifeline.sock"
"""Of an agent in a container. All of these are in the run folder's ``control``."""

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


@dataclass(frozen=True)
class AgentSettings:
    """What an agent must know of its run before the first launch.

    Attributes:
        folder: the run folder; its name is the run's.
        hierarchies: where control groups are created; empty for a run without them.
        private: folders of the user that are hidden from nodes, except what the interpreter needs.
        processes: the maximum number of processes and threads of one node uid.
    """

    folder: Path
    template: Template
    users: Users
    hierarchies: tuple[Hierarchy, ...]
    private: tuple[Path, ...] = ()
    processes: int = ROOTS_PIDS_LIMIT

    @staticmethod
    def from_json(text: str) -> AgentSettings:
        """Parse the output of ``to_json``; ValueError if another version wrote it, or none."""
        return _SETTINGS.validate_json(text)

    def to_json(self) -> str:
        """One line of JSON."""
        return _SETTINGS.dump_json(self).decode()


TEMPLATE = TypeAdapter(Template)
_SETTINGS = TypeAdapter(AgentSettings)
