"""Processes identified by pid and start time, and their reports through pipes."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError, NodeError
from testbed.host.process import (
    YOUNG,
    Process,
    child_of,
    children_of,
    every_pid,
    has_ended,
    namespace_pids,
    parent_of,
)
from testbed.host.reports import ReportPipe, encode_error, report


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def test_a_process_is_recorded_and_found_again(child: subprocess.Popen[bytes]) -> None:
    process = Process.of(child.pid)
    assert Process.parse(f"{process}\n") == process
    assert Process.parse("nonsense") is None
    assert Process.parse("1 2 3") is None
    assert process.alive()
    assert namespace_pids(child.pid)[0] == child.pid


def test_another_process_with_the_same_pid_is_untouched(child: subprocess.Popen[bytes]) -> None:
    reused = Process(child.pid, Process.of(child.pid).started - 1)
    assert reused.open() is None
    assert not reused.alive()
    reused.kill()
    assert child.poll() is None


def test_killing_does_not_wait_and_is_idempotent(child: subprocess.Popen[bytes]) -> None:
    process = Process.of(child.pid)
    descriptor = process.open()
    assert descriptor is not None
    assert not has_ended(descriptor, 0)
    process.kill()
    assert has_ended(descriptor, 10)
    os.close(descriptor)
    assert not process.alive()  # although it was not reaped yet
    process.kill()
    child.wait()
    process.kill()
    with pytest.raises(ProcessLookupError):
        Process.of(child.pid)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[ReportPipe, int]]:
    reader, writer = os.pipe()
    yield ReportPipe(reader, writer="w3", log=tmp_path / "w3.log"), writer
    os.close(reader)


def soon() -> float:
    return time.monotonic() + 5


def test_reports_may_come_in_any_order(pipe: tuple[ReportPipe, int]) -> None:
    reports, writer = pipe
    report(writer, prepared=True)
    report(writer, pid=7)
    os.close(writer)
    assert reports.expect("pid", deadline=soon()) == 7
    assert reports.expect("prepared", deadline=soon()) is True


def test_a_reported_error_is_raised(pipe: tuple[ReportPipe, int]) -> None:
    reports, writer = pipe
    report(writer, pid=7)
    report(writer, error=encode_error(HostError("no room.", hint="Make some.")))
    os.close(writer)
    with pytest.raises(HostError, match=r"no room\. Make some\."):
        reports.expect("prepared", deadline=soon())


def test_an_os_error_becomes_a_node_error(pipe: tuple[ReportPipe, int]) -> None:
    reports, writer = pipe
    report(writer, error=encode_error(PermissionError(1, "mount proc: Operation not permitted")))
    os.close(writer)
    with pytest.raises(NodeError, match="mount proc: Operation not permitted"):
        reports.expect("prepared", deadline=soon())


def test_silence_shows_the_end_of_the_log(pipe: tuple[ReportPipe, int], tmp_path: Path) -> None:
    reports, writer = pipe
    (tmp_path / "w3.log").write_text("".join(f"line {i}\n" for i in range(20)))
    with pytest.raises(NodeError, match="w3: did not report 'pid' in time") as late:
        reports.expect("pid", deadline=time.monotonic())
    assert re.search(r"(?s)line 10\n.*line 19$", late.value.message)
    load = rf"This host's load is \d+ with {os.cpu_count()} CPUs: .* use fewer workers\."
    assert re.fullmatch(load, late.value.hint)
    os.close(writer)
    with pytest.raises(NodeError, match=r"(?s)w3: exited before it reported 'pid'\. .*line 19$"):
        reports.expect("pid", deadline=soon())


@pytest.mark.root
def test_a_child_is_found_by_its_pid_in_another_namespace(
    eventually: Callable[[Callable[[], Any]], Any],
) -> None:
    command = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "sleep 60 & wait"]
    with subprocess.Popen(command) as outer:
        first = eventually(lambda: next(iter(children(outer.pid)), None))
        inner = eventually(lambda: next(iter(children(first)), None))
        assert namespace_pids(inner) == (inner, 2)
        assert child_of(first, 2) == inner
        assert child_of(outer.pid, first) == first  # in this process's own namespace
        assert child_of(first, 3) is None
        for _ in range(YOUNG):
            subprocess.run(["true"], check=True)
        assert child_of(first, 2) == inner  # no longer one of the youngest
        assert children_of(first) == {2: inner}
        outer.kill()
    eventually(lambda: child_of(first, 2) is None)


def children(parent: int) -> list[int]:
    found = []
    for pid in every_pid():
        with suppress(ProcessLookupError):  # it has just ended
            if parent_of(pid) == parent:
                found.append(pid)
    return found
