"""Waiting for a run's lock, and who controls a run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.errors import NodeError
from testbed.host.process import name_of
from testbed.runtimes.lock import (
    attempts,
    controlling,
    holding_lock,
    is_controlled,
    is_orphan,
    take_lock,
)
from testbed.telemetry.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "r1", scenario="s", text="", classes=(), now=0.0)


@pytest.fixture
def fork() -> Iterator[Callable[[], None]]:
    """Forks a process with every open descriptor, as own code may; it lives until the test ends."""
    (reader, writer), children = os.pipe(), list[int]()

    def forked() -> None:
        if not (child := os.fork()):
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        children.append(child)

    yield forked
    os.close(writer)
    os.close(reader)
    for child in children:
        os.waitpid(child, 0)


def test_the_lock_is_acquired_as_soon_as_it_is_released(folder: RunFolder) -> None:
    lock, found = take_lock(folder), []
    for _ in attempts(folder, within_seconds=60):
        with folder.locked() as mine:
            found.append(mine)
            if mine:
                break
        if len(found) == 2:
            os.close(lock)
    assert found == [False, False, True]


def test_a_timeout_names_the_holder(folder: RunFolder) -> None:
    lock, rounds = take_lock(folder), 0
    with pytest.raises(NodeError) as late:
        for _ in attempts(folder, within_seconds=0.0):
            rounds += 1
    os.close(lock)
    assert rounds == 1  # without patience there is still one attempt
    pid = os.getpid()
    assert folder.lock.read_text().startswith(f"{pid} ")
    assert late.value.message == (
        f"r1 has not ended after 0 s. Still running: "
        f"process {pid} ({name_of(pid)}), which started it and "
        "holds its lock."
    )
    assert late.value.hint == f"`kill -9 {pid}`, then `testbed down r1`."


def test_the_lock_is_acquired_once(folder: RunFolder) -> None:
    lock = take_lock(folder)
    with pytest.raises(NodeError, match=r"is in use: its lock is held. `testbed down r1`"):
        take_lock(folder)
    os.close(lock)
    os.close(take_lock(folder))


def test_a_process_that_own_code_forks_does_not_control_the_run(
    folder: RunFolder, fork: Callable[[], None]
) -> None:
    with controlling(folder), holding_lock(folder):
        fork()
        assert (is_controlled(folder), folder.alive()) == (True, True)
    assert (is_controlled(folder), folder.alive()) == (False, False)


def test_a_copy_that_own_code_forks_does_not_release_the_lock(folder: RunFolder) -> None:
    copy = 0
    try:
        with holding_lock(folder):
            if not (copy := os.fork()):
                raise SystemExit  # as own code may
            os.waitpid(copy, 0)
            assert folder.alive()
            assert folder.lock.read_text().startswith(f"{os.getpid()} ")
    finally:
        if not copy:
            os._exit(0)
    assert not folder.alive()


def test_a_run_has_a_controller_until_the_last_one_ends(folder: RunFolder) -> None:
    with controlling(folder):
        with controlling(folder):  # as of a `resume` that is refused
            pass
        assert is_controlled(folder)
    assert not is_controlled(folder)


def test_a_run_is_an_orphan_without_its_folder_or_with_a_free_lock(folder: RunFolder) -> None:
    assert not is_orphan(folder)  # there may be another folder of this path, as in a container
    with holding_lock(folder):
        assert not is_orphan(folder)
    assert is_orphan(folder)
    shutil.rmtree(folder.path)
    assert is_orphan(folder)
