"""Faults whose worker is lost with its host just when they are due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostLostError
from testbed.run.by_hand import Asked
from testbed.run.faults import Faults, FaultyNodes
from testbed.scenario.experiment import timeline_of
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.files import write_atomically
from testbed.telemetry.ps_events import Crashed, Started
from testbed.telemetry.record import Clock, Recorder
from testbed.telemetry.sink import Sink


@dataclass
class Hosts:
    """Agents of several hosts: some workers' host is lost."""

    lost: set[str] = field(default_factory=set)

    def freeze(self, node: str, told: Path | None = None) -> None:
        if node in self.lost:
            raise HostLostError("host b is lost: its agent does not answer.")

    thaw = freeze


@dataclass
class Applied(Sink):
    """The faults that were recorded: whether they began, and their workers."""

    found: list[tuple[bool, tuple[str, ...]]] = field(default_factory=list)

    def event(self, entry: Entry) -> None:
        if isinstance(entry.event, FaultApplied):
            self.found.append((entry.event.begins, entry.event.nodes))


@dataclass
class Subject:
    setup: Any
    faults: Faults
    hosts: Hosts
    applied: Applied
    now: float = 0.0


@pytest.fixture
def subject(make_small: Callable[..., Any]) -> Subject:
    """Three workers that may crash, while they train."""
    small, hosts, applied = make_small("faults=[{crash: {after_push: 0.5}}]"), Hosts(), Applied()
    setup, unused = small.setup, None
    recorder = Recorder([applied], time_scale=1.0, clock=Clock(steady=lambda: subject.now))
    timeline = timeline_of(setup.scenario, setup.folder.path)
    parts: tuple[Any, ...] = (setup, hosts, small.watch(), unused, timeline.names, unused)
    faults = Faults(timeline, FaultyNodes(*parts), recorder, setup.folder)
    subject = Subject(setup, faults, hosts, applied)
    recorder.event(Started())
    return subject


def test_a_crash_of_a_worker_whose_host_is_lost_ends_no_run(subject: Subject) -> None:
    subject.hosts.lost.add("w1")
    for worker in ("w0", "w1", "w2"):
        subject.faults.event(Entry(0.0, 0.0, Crashed(worker, 1, 0.0)))
    subject.faults.look()
    assert subject.applied.found == [(True, ("w0",)), (True, ("w2",))]
    subject.faults.look()
    assert len(subject.applied.found) == 2


def test_a_manual_fault_of_a_worker_whose_host_is_lost_ends_no_run(subject: Subject) -> None:
    asked = Asked(verb="freeze", nodes=("w0", "w1"), seconds=5.0)
    file = subject.setup.folder.control / "fault-1.json"
    write_atomically(file, asked.model_dump_json())
    subject.faults.look()
    assert file.with_suffix(".done").read_text() == ""
    subject.hosts.lost.add("w0")
    subject.now = 6.0
    subject.faults.look()
    subject.faults.look()
    assert subject.applied.found == [(True, ("w0",)), (True, ("w1",)), (False, ("w1",))]
