"""Checks that Flower's commands in hand-written programs can talk to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.version import InvalidVersion, Version

from testbed.scenario.document import Finding
from testbed.scenario.flower import OLDEST, api_of
from testbed.scenario.source import Locate
from testbed.scenario.workload import Program, Workload

SUPERLINK, SUPERNODE = "flower-superlink", "flower-supernode"
INSTALLED = re.compile(r"flwr-(.+)\.dist-info")
HTTP_PORT = 8000


def check_flower_versions(workload: Workload, locate: Locate) -> Iterator[Finding]:
    """Refuse SuperNodes that use another protocol than the SuperLink: they would try for ever.

    Only Python environments are looked at: what an image contains is not known. With several
    SuperLinks, it is not known which one a SuperNode uses.
    """
    if sum(_has(program, SUPERLINK) for program in workload.workload.values()) != 1:
        return
    links = list(_found(workload, locate, SUPERLINK))
    for name, environment, version in _found(workload, locate, SUPERNODE):
        for other, _, expected in links:
            if _protocol(version) != _protocol(expected):
                found = f"flwr {version}, whose SuperNodes use {_protocol(version)}"
                cure = f"{environment / 'bin/python'} -m pip install flwr=={expected}"
                wanted = f"the version of {other}, {expected}, with {_protocol(expected)}: {cure}"
                yield ("workload", name, "python"), found, wanted


def _has(program: Program, command: str) -> bool:
    return any(command in word for word in program.command)


def _found(workload: Workload, locate: Locate, command: str) -> Iterator[tuple[str, Path, Version]]:
    """Yield the programs with a command, their environments, and versions of flwr in them."""
    for name, program in workload.workload.items():
        if program.python is None or not _has(program, command):
            continue
        environment = locate(program.python)
        for folder in environment.glob("lib/python*/site-packages/flwr-*.dist-info"):
            match = INSTALLED.fullmatch(folder.name)
            try:
                yield name, environment, Version(match[1] if match else "")
            except InvalidVersion:
                continue


def _protocol(version: Version) -> str:
    """Return what SuperNodes of a version use."""
    uses_http = version >= OLDEST and api_of(version).fleet == HTTP_PORT
    return "HTTP" if uses_http else "gRPC"
