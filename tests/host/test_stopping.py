"""Stopping by signal all that is in a pid namespace, and finding it from outside by its record."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.agent.records import NodeRecords
from testbed.errors import NodeError
from testbed.host.process import Process, is_first, namespace_pids, parent_of, state_of
from testbed.host.stopping import continue_all, is_stopped, stop_all
from testbed.telemetry.folder import RunFolder

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


def test_a_role_is_found_by_its_record(role: int, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.control.mkdir()
    records = NodeRecords(folder)
    records.create()
    agent = Process.of(parent_of(role))
    assert is_first(role)
    # As the namespace one level out has it, which is this one.
    inside = Process(namespace_pids(role)[-2], Process.of(role).started)
    records.add("w0", inside)
    records.add("w1", Process(inside.pid, inside.started - 1))  # an earlier one with that pid
    seen = records.of(agent)
    assert seen.nodes() == ["w0", "w1"]
    assert (seen.first("w0"), seen.first("w1")) == (role, None)
    seen.freeze("w0")
    assert seen.is_frozen("w0")
    seen.thaw("w0")
    assert not seen.is_frozen("w0")
    with pytest.raises(NodeError, match="has no node w1 that runs"):
        seen.freeze("w1")
    assert records.of(None).first("w0") is None
    records.remove("w1")
    assert records.nodes() == ["w0"]
    records.clear()
    assert records.nodes() == []
    assert not (folder.control / "nodes").exists()
