"""A run that does not end: its remaining processes, and what to type."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.errors import NodeError
from testbed.host.process import Process, name_of
from testbed.runtimes.agent.settings import title_of
from testbed.runtimes.lock import not_ended, take_lock
from testbed.runtimes.native.driver import NativeDriver
from testbed.telemetry.folder import RunFolder

ENDING = """
import signal, sys
from testbed.host.syscalls import set_name
set_name(sys.argv[1])
print("named", flush=True)
signal.pause()
"""
"""What an agent looks like that the kernel is still taking apart."""

OTHERS = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "r1", scenario="s", text="", classes=(), now=0.0)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a process, and waits until it prints a line."""
    with ExitStack() as started:

        def begin(code: str, *words: str, keep: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=keep,
            )
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline()
            return process

        yield begin


def test_processes_of_the_agent_are_named_if_the_lock_is_free(
    folder: RunFolder, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    os.close(take_lock(folder))  # by this process, which is alive but no longer holds it
    ending = start(ENDING, title_of(folder.path))
    driver = NativeDriver(hierarchies=(), stop_seconds=0.1)
    with pytest.raises(NodeError) as stuck:
        driver.stop(folder)
    assert stuck.value.message == (
        f"r1 has not ended after 0.1 s. Still running: "
        f"process {ending.pid} ({title_of(folder.path)})."
    )
    assert stuck.value.hint == f"`kill -9 {ending.pid}`, then `testbed down r1`."
    ending.kill()
    ending.wait()
    driver.stop(folder)


def test_another_holder_of_the_lock_is_named_too(
    folder: RunFolder, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    ending, lock, pid = start(ENDING, title_of(folder.path)), take_lock(folder), os.getpid()
    found = not_ended(folder, after_seconds=30.0)
    os.close(lock)
    assert found.message == (
        f"r1 has not ended after 30 s. Still running: "
        f"process {ending.pid} ({title_of(folder.path)}); "
        f"process {pid} ({name_of(pid)}), which started it and holds its lock."
    )
    assert found.hint == f"`kill -9 {ending.pid} {pid}`, then `testbed down r1`."


def test_a_lock_that_outlives_its_taker_refers_to_other_tools(
    folder: RunFolder, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    lock, taker = take_lock(folder), start(OTHERS)
    start(OTHERS, keep=(lock,))
    os.close(lock)
    folder.lock.write_text(f"{Process.of(taker.pid)}\n")
    taker.kill()
    taker.wait()
    found = not_ended(folder, after_seconds=30.0)
    assert found.message.startswith(f"{folder.lock} is still held after 30 s, by a process ")
    assert found.hint.startswith(f"Find the process with `fuser -v {folder.lock}`")
    assert found.hint.endswith("`testbed down r1`.")
