"""Runs are ended from outside, whatever happened to their controller, one after the other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from testbed.errors import HostError, TestbedError
from testbed.run.down import asked_to_end, end_all, end_run
from testbed.runtimes.lock import controlling
from testbed.telemetry.entry import NAMES
from testbed.telemetry.event_kinds import State
from testbed.telemetry.events import EventLog
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Done, Drained, Finished, Started
from testbed.telemetry.registry import Registry

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z


@dataclass
class Host:
    """The driver of a host with some runs.

    Attributes:
        present: names of the runs with remains on this host.
        foreign: those of them in other folders.
        stuck: those that cannot be removed.
        orphans: former folders of runs whose folder was deleted.
        on_stop: called when a run is stopped.
        elsewhere: names of other hosts that have something of a run, by its name.
    """

    present: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    orphans: set[Path] = field(default_factory=set)
    stopped: list[str] = field(default_factory=list)
    on_stop: Callable[[RunFolder], Any] = lambda folder: None
    elsewhere: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def find(self) -> tuple[str, ...]:
        return tuple(sorted(self.present))

    def find_orphans(self) -> tuple[RunFolder, ...]:
        return tuple(RunFolder(path) for path in sorted(self.orphans))

    def stop(self, folder: RunFolder) -> tuple[str, ...]:
        self.stopped.append(folder.name)
        self.on_stop(folder)
        if folder.name in self.stuck:
            raise HostError(f"{folder.name} cannot be removed.", hint="Try again.")
        if folder.name not in self.foreign:
            self.present.discard(folder.name)
        return self.elsewhere.pop(folder.name, ())


def make(runs: Path, name: str, state: State) -> RunFolder:
    folder = RunFolder.create(runs, name, scenario="quick", text="", classes=["fast"], now=NOON)
    folder.move(state, now=NOON)
    return folder


def end(folder: RunFolder, host: Any) -> Any:
    return end_run(folder, host, clock=lambda: NOON + 60)


def end_every(runs: Path, registry: Registry, **drivers: Any) -> Any:
    """End all runs; those whose names begin with ``docker`` are the docker driver's."""

    def runtime_of(folder: RunFolder) -> str:
        return "docker" if folder.name.startswith("docker") else "native"

    return end_all(runs, registry, drivers=drivers, runtime_of=runtime_of, clock=lambda: NOON)


def test_a_run_whose_controller_died(tmp_path: Path) -> None:
    folder = make(tmp_path, "r1", "training")
    host = Host({"r1"})
    assert end(folder, host).acted
    state = folder.state()
    assert (state.state, state.ended) == ("interrupted", "2026-01-01T12:01:00.000Z")
    assert state.reason == "stopped by `testbed down`"
    assert host.present == set()
    assert not end(folder, host).acted
    assert folder.state() == state


@pytest.mark.parametrize(
    ("last", "state", "reason"),
    [
        ("done", "finished", "300 updates applied"),
        ("finished", "interrupted", "stopped by `testbed down`"),
    ],
)
def test_a_run_that_ended_without_its_controller(
    tmp_path: Path, last: str, state: str, reason: str
) -> None:
    folder = make(tmp_path, "r1", "training")
    said = [Started(), Finished("300 updates applied", 300), Drained(), Done(evaluated=True)]
    with closing(EventLog(folder.ps_events)) as log:
        for event in said[: [NAMES[type(event)] for event in said].index(last) + 1]:
            log.write(event)
    assert end(folder, Host({"r1"})).acted
    assert (folder.state().state, folder.state().reason) == (state, reason)


def test_the_report_of_a_run_is_awaited(tmp_path: Path) -> None:
    folder, stopped, complete = make(tmp_path, "r1", "finished"), Event(), list[bool]()
    host = Host({"r1"}, on_stop=lambda _: stopped.set())

    def down() -> None:
        end(folder, host)
        complete.append(folder.summary.exists())

    ending = Thread(target=down)
    with controlling(folder):
        ending.start()
        assert stopped.wait(30)
        ending.join(0.3)
        folder.summary.write_text("{}")
    ending.join()
    assert complete == [True]


def test_remains_of_a_finished_run_are_removed_and_its_state_is_kept(tmp_path: Path) -> None:
    folder = make(tmp_path, "r1", "finished")
    host = Host({"r1"})
    assert end(folder, host).acted
    assert host.present == set()
    assert folder.state().state == "finished"


def test_what_is_only_on_other_hosts_is_removed_and_named(tmp_path: Path) -> None:
    folder = make(tmp_path, "r1", "finished")
    host = Host(elsewhere={"r1": ("b", "c")})
    ended = end(folder, host)
    assert (ended.acted, ended.hosts) == (True, ("b", "c"))
    ended = end(folder, host)
    assert (ended.acted, ended.hosts) == (False, ())


def test_a_run_of_the_same_name_in_another_folder_is_not_reported_as_ended(tmp_path: Path) -> None:
    folder = make(tmp_path, "r1", "finished")
    assert not end(folder, Host({"r1"}, foreign={"r1"})).acted


@pytest.mark.parametrize("part", ["scenario.yaml", "updates", "logs", "ps", "control"])
def test_an_incomplete_run_is_ended(tmp_path: Path, part: str) -> None:
    folder = make(tmp_path, "r1", "starting")
    lost = folder.path / part
    lost.rmdir() if lost.is_dir() else lost.unlink()
    (one,) = end_every(tmp_path, Registry(tmp_path / "none"), native=Host({"r1"}))
    assert (one.run, one.acted, one.failure) == ("r1", True, None)
    assert folder.state().state == "interrupted"


def test_a_run_with_an_unreadable_plan_does_not_block_the_others(tmp_path: Path) -> None:
    for name in ("bad", "good"):
        make(tmp_path, name, "training")

    def runtime_of(folder: RunFolder) -> str:
        if folder.name == "bad":
            raise TestbedError("plan.json: cut short")
        return "native"

    host = Host({"bad", "good"})
    bad, good = end_all(
        tmp_path,
        Registry(tmp_path / "none"),
        drivers={"native": host},
        runtime_of=runtime_of,
        clock=lambda: NOON,
    )
    assert (bad.run, str(bad.failure), bad.acted) == ("bad", "plan.json: cut short", False)
    assert (good.run, good.acted) == ("good", True)
    assert host.present == {"bad"}


def test_a_folder_without_state_is_not_a_run_to_end(tmp_path: Path) -> None:
    make(tmp_path, "r1", "created").run_file.unlink()
    assert end_every(tmp_path, Registry(tmp_path / "none"), native=Host()) == []


def test_a_live_controller_is_told_that_the_stop_is_not_a_failure(tmp_path: Path) -> None:
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


def test_a_run_that_cannot_be_ended_does_not_block_the_next(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    stuck, damaged, good = (make(runs, name, "training") for name in ("a", "b", "c"))
    damaged.run_file.write_text("[]")
    host: Any = Host({"a", "b", "c"}, stuck={"a"})
    ended = end_every(runs, Registry(tmp_path / "none"), native=host)
    assert [one.run for one in ended] == ["a", "b", "c"]
    assert [str(one.failure) for one in ended[:2]] == [
        "a cannot be removed. Try again.",
        f"{damaged.run_file}: not a JSON object. The file is damaged.",
    ]
    assert ended[2].failure is None
    assert good.state().state == "interrupted"
    assert stuck.state().state == "training"


def test_all_covers_the_folder_the_registry_and_the_host(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    make(tmp_path / "runs", "here", "training")
    registry.add(make(tmp_path / "elsewhere", "there", "training").path)
    make(tmp_path / "other", "unknown", "training")
    host: Any = Host({"here", "there", "left", "somebody's"}, foreign={"somebody's"})
    ended = end_every(tmp_path / "runs", registry, native=host)
    assert {one.run: (one.acted, one.folder is None) for one in ended} == {
        "here": (True, False),
        "there": (True, False),
        "left": (True, True),
        "somebody's": (False, True),
    }
    assert host.present == {"somebody's"}


def test_runs_with_deleted_folders_are_ended_wherever_those_were(tmp_path: Path) -> None:
    make(tmp_path, "here", "training")
    orphans = {Path("/elsewhere/deleted"), Path("/elsewhere/stuck")}
    host: Any = Host({"here", "deleted", "stuck", "somebody's"}, {"somebody's"}, {"stuck"}, orphans)
    ended = end_every(tmp_path, Registry(tmp_path / "none"), native=host)
    assert {one.run: (one.acted, one.failure is None) for one in ended} == {
        "here": (True, True),
        "deleted": (True, True),
        "stuck": (False, False),
        "somebody's": (False, True),
    }


def test_a_listed_run_that_cannot_be_ended_is_no_orphan(tmp_path: Path) -> None:
    orphan = make(tmp_path, "r1", "finished").path
    host: Any = Host({"r1"}, stuck={"r1"}, orphans={orphan})
    assert [one.run for one in end_every(tmp_path, Registry(tmp_path / "none"), native=host)] == [
        "r1"
    ]


class Silent(Host):
    """A host whose engine does not answer."""

    def find(self) -> tuple[str, ...]:
        raise HostError("No Docker engine answers.", hint="Start it.")


def test_an_engine_that_does_not_answer_blocks_no_other_run(tmp_path: Path) -> None:
    make(tmp_path, "plain", "training")
    make(tmp_path, "docker-1", "training")
    make(tmp_path, "docker-2", "finished")
    host: Any = Host({"plain"})
    ended = end_every(tmp_path, Registry(tmp_path / "none"), docker=Silent(), native=host)
    assert {one.run: (one.acted, str(one.failure), str(one.unasked)) for one in ended} == {
        "plain": (True, "None", "None"),
        "docker-1": (False, "No Docker engine answers. Start it.", "None"),
        "docker-2": (False, "None", "No Docker engine answers. Start it."),
    }


def test_every_runtime_is_asked_for_remains(tmp_path: Path) -> None:
    make(tmp_path, "docker-1", "training")
    native, docker = Host({"left"}), Host({"docker-1", "docker-left"})
    end_every(tmp_path, Registry(tmp_path / "none"), native=native, docker=docker)
    assert (native.stopped, docker.stopped) == (["left"], ["docker-1", "docker-left"])


@pytest.mark.parametrize("state", ["created", "starting"])
def test_a_run_that_never_trained(tmp_path: Path, state: State) -> None:
    folder = make(tmp_path, "r1", state)
    assert end(folder, Host()).acted
    assert folder.state().state == "interrupted"
