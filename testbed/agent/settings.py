"""The settings of an agent on its command line, and its files in the run folder."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from testbed.host.hierarchies import Hierarchy
from testbed.host.limits import ROOTS_PIDS_LIMIT
from testbed.host.users import Users
from testbed.rpc.limits import MessageLimits
from testbed.rpc.tokens import CONTROLLER, token_of

AGENT_LOG = "agent"
AGENT_SOCKET = "agent.sock"
AGENT_TOKEN = "agent.token"
TOKEN_VARIABLE = "TESTBED_AGENT_TOKEN"
"""Carries the token that an agent accepts. A process of the host has it in its initial
environment, which /proc shows to its user but to no node; an agent in a container, in a file."""

SERVED = (AGENT_SOCKET, AGENT_TOKEN)
LIFELINE_SOCKET = "lifeline.sock"
"""Of an agent in a container. All of these are in the run folder's ``control``."""

SERVICE = "/testbed.v1.Agent/"
CONTROL_LIMITS = MessageLimits(message_bytes=2**20)
"""A server of 1,022 workers is launched with that many neighbours, in a tenth of this size."""

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


def new_token() -> str:
    """Return the token that the controller of a new run shows to its agent."""
    return token_of(secrets.token_hex(16), CONTROLLER)


TEMPLATE = TypeAdapter(Template)
_SETTINGS = TypeAdapter(AgentSettings)
