"""The uids of a run's nodes, depending on the user who starts it.

Root has all uids. Any other user gets a user namespace for the run: with a range of
subordinate uids (``/etc/subuid``, ``/etc/subgid``) and ``newuidmap``, every node has a uid of its
own in it; without, all nodes have the user's, which they share with the agent.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.errors import HostError
from testbed.host.environment import BASE, agent_environment, python
from testbed.host.reports import decode_error

Kind = Literal["root", "range", "one"]

MODES: Mapping[Kind, str] = {
    "root": "own uid per node",
    "range": "own uid per node, of the user's subordinate uids",
    "one": "one uid",
}
TRIAL_SECONDS = 30.0
TOOLS = ("newuidmap", "newgidmap")

MIN_IDS = 32768
"""A range must hold the uids of all nodes; systems give their users twice as many by default."""


@dataclass(frozen=True)
class Users:
    """Where a run's nodes have their uids from: all of the host's, a range, or the user's only."""

    kind: Kind

    @property
    def mode(self) -> str:
        """The kind as text, for the record."""
        return MODES[self.kind]

    @property
    def namespace(self) -> bool:
        """Whether the run has a user namespace of its own."""
        return self.kind != "root"


@dataclass(frozen=True)
class IdRange:
    """Subordinate uids or gids of a user: ``count`` from ``start`` on."""

    start: int
    count: int


def find_users() -> Users:
    """Return what the current user can have; determined by a trial for any user except root.

    Raises:
        HostError: this is not Linux, or the user may have no namespaces; names what forbids it.
    """
    if sys.platform != "linux":
        raise HostError(f"the native runtime needs Linux; this is {sys.platform}.")
    if os.geteuid() == 0:
        return Users("root")
    trial = subprocess.run(
        python("testbed.host.user_namespace"),
        env=agent_environment({}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TRIAL_SECONDS,
        check=False,
    )
    try:
        found = json.loads(trial.stdout)
    except ValueError:
        raise HostError(
            f"creating namespaces failed with status {trial.returncode}: {trial.stderr.strip()}"
        ) from None
    if "error" in found:
        raise decode_error(found["error"])
    return Users(found["users"])


def find_ranges() -> tuple[IdRange, IdRange] | None:
    """Return the current user's subordinate uids and gids; None without them or the tools."""
    if any(shutil.which(tool, path=BASE["PATH"]) is None for tool in TOOLS):
        return None
    uid = os.getuid()
    try:
        names = {str(uid), pwd.getpwuid(uid).pw_name}
    except KeyError:  # a uid without an account
        names = {str(uid)}
    uids, gids = (read_range(Path("/etc", name), names) for name in ("subuid", "subgid"))
    return None if uids is None or gids is None else (uids, gids)


def read_range(file: Path, names: set[str]) -> IdRange | None:
    """Return the largest range of one of these names in a file of lines ``name:start:count``."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    found = [
        IdRange(int(start), int(count))
        for name, start, count in (line.split(":") for line in lines if line.count(":") == 2)
        if name in names and start.isdecimal() and count.isdecimal()
    ]
    largest = max(found, key=lambda one: one.count, default=None)
    return largest if largest is not None and largest.count >= MIN_IDS else None
