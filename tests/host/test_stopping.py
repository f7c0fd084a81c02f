"""Stopping all processes of a pid namespace by signal."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.host.process import Process, continue_all, is_stopped, parent_of, state_of, stop_all

pytestmark = pytest.mark.root
SCRIPT = "sleep 1000 & sleep 1001 & wait"
UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")


def children(pid: int) -> list[int]:
    found = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [child for child in found if _parent(child) == pid]


def _parent(pid: int) -> int:
    try:
        return parent_of(pid)
    except ProcessLookupError:
        return 0


@pytest.fixture
def role(eventually: Callable[[Callable[[], Any]], Any]) -> Iterator[int]:
    """The first process of a pid namespace, with two children."""
    with subprocess.Popen([*UNSHARE, "sh", "-c", SCRIPT]) as outer:
        (first,) = eventually(lambda: children(outer.pid))
        eventually(lambda: len(children(first)) == 2)
        yield first
        Process.of(first).kill()


def test_exactly_the_processes_of_a_namespace_are_stopped_and_continued(role: int) -> None:
    stop_all(role)
    assert {state_of(pid) for pid in (role, *children(role))} == {"T"}
    assert not is_stopped(os.getpid())
    assert not is_stopped(parent_of(role))
    continue_all(role)
    assert not any(is_stopped(pid) for pid in (role, *children(role)))


def test_an_ended_process_counts_as_stopped(role: int) -> None:
    assert is_stopped(2**22 + 1)
    stop_all(2**22 + 1)
