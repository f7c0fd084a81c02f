"""Runs are ended from outside: whatever became of their controller, and one after the other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.orchestrator.down import asked_to_end, end_all, end_runs
from testbed.telemetry.folder import RunFolder, State
from testbed.telemetry.registry import Registry

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z


@dataclass
class Host:
    """A driver of a host with some runs on it.

    Attributes:
        present: names of the runs that have something here.
        foreign: those of them that are not stopped through a folder of ours.
        stuck: those that cannot be removed.
        on_stop: called when a run is stopped.
    """

    present: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    stopped: list[str] = field(default_factory=list)
    on_stop: Callable[[RunFolder], Any] = lambda folder: None

    def find(self) -> tuple[str, ...]:
        return tuple(sorted(self.present))

    def stop(self, folder: RunFolder) -> None:
        self.stopped.append(folder.name)
        self.on_stop(folder)
        if folder.name in self.stuck:
            raise HostError(f"{folder.name} cannot be removed.", hint="Try again.")
        if folder.name not in self.foreign:
            self.present.discard(folder.name)


def make(runs: Path, name: str, state: State) -> RunFolder:
    folder = RunFolder.create(runs, name, scenario="quick", text="", classes=["fast"], now=NOON)
    folder.move(state, now=NOON)
    return folder


def end(folder: RunFolder, host: Any) -> Any:
    (ended,) = end_runs([folder], host, clock=lambda: NOON + 60)
    return ended


def test_a_run_whose_controller_died(tmp_path: Path) -> None:
    folder = make(tmp_path, "r1", "training")
    host = Host({"r1"})
    assert end(folder, host).acted
    state = folder.state()
    assert (state.state, state.ended) == ("interrupted", "2026-01-01T12:01:00.000Z")
    assert state.reason == "ended by `testbed down`"
    assert host.present == set()
    assert not end(folder, host).acted
    assert folder.state() == state


def test_what_a_finished_run_has_left_is_removed_and_its_end_stands(tmp_path: Path) -> None:
    folder = make(tmp_path, "r1", "finished")
    host = Host({"r1"})
    assert end(folder, host).acted
    assert host.present == set()
    assert folder.state().state == "finished"


def test_a_run_of_the_same_name_elsewhere_is_not_said_to_have_been_ended(tmp_path: Path) -> None:
    folder = make(tmp_path, "r1", "finished")
    assert not end(folder, Host({"r1"}, foreign={"r1"})).acted


def test_a_controller_that_lives_learns_that_it_was_no_failure(tmp_path: Path) -> None:
    folder = make(tmp_path, "r1", "training")
    lock = os.open(folder.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)

    def let_go(folder: RunFolder) -> None:
        assert asked_to_end(folder)
        folder.move("interrupted", now=NOON + 30, reason="seen")
        os.close(lock)

    assert not asked_to_end(folder)
    assert end(folder, Host({"r1"}, on_stop=let_go)).acted
    assert not asked_to_end(folder)
    assert folder.state().reason == "seen"


def test_one_that_cannot_be_ended_does_not_keep_the_next(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    stuck, damaged, good = (make(runs, name, "training") for name in ("a", "b", "c"))
    damaged.run_file.write_text("[]")
    host: Any = Host({"a", "b", "c"}, stuck={"a"})
    ended = end_all(runs, Registry(tmp_path / "none"), driver=host, clock=lambda: NOON)
    assert [one.run for one in ended] == ["a", "b", "c"]
    assert [str(one.failure) for one in ended[:2]] == [
        "a cannot be removed. Try again.",
        f"{damaged.run_file}: not a JSON object. The file is damaged.",
    ]
    assert ended[2].failure is None
    assert good.state().state == "interrupted"
    assert stuck.state().state == "training"


def test_all_are_those_of_the_folder_of_the_registry_and_of_the_host(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    make(tmp_path / "runs", "here", "training")
    registry.add(make(tmp_path / "elsewhere", "there", "training").path)
    make(tmp_path / "other", "unknown", "training")
    host: Any = Host({"here", "there", "left", "somebody's"}, foreign={"somebody's"})
    ended = end_all(tmp_path / "runs", registry, driver=host, clock=lambda: NOON)
    assert {one.run: (one.acted, one.folder is None) for one in ended} == {
        "here": (True, False),
        "there": (True, False),
        "left": (True, True),
        "somebody's": (False, True),
    }
    assert host.present == {"somebody's"}


@pytest.mark.parametrize("state", ["created", "starting"])
def test_a_run_that_never_trained(tmp_path: Path, state: State) -> None:
    folder = make(tmp_path, "r1", state)
    assert end(folder, Host()).acted
    assert folder.state().state == "interrupted"
