from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from testbed.errors import NodeError
from testbed.runtimes.agent.link_changes import SHAPE, LinkChanges
from testbed.values.topology import Direction, LinkSpec
from testbed.values.units import Duration, Rate

PLANNED = LinkSpec(
    "10.77.0.2", "02:00:0a:4d:00:02", Direction(rate=Rate(4e6)), Direction(rate=Rate(8e6)), 7
)
SLOW = Direction(rate=Rate(1e6), delay=Duration(0.04), loss=0.01)


@dataclass
class Host:
    """The links of nodes, and a clock that only the test advances."""

    now: float = 100.0
    links: dict[str, LinkSpec] = field(default_factory=lambda: dict.fromkeys(("w0", "w1"), PLANNED))
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.changes = LinkChanges(self.relink, lambda: 1000 + self.now, lambda: self.now)

    def relink(self, name: str, link: LinkSpec) -> None:
        if name in self.gone:
            raise NodeError(f"{name} ended with status 1.")
        self.links[name] = link

    def set(self, *names: str, up: Direction | None = SLOW, seconds: float | None = None) -> None:
        links = {name: self.links[name] for name in names}
        self.changes.set(links, up=up, down=None, seconds=seconds)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.changes.expire()


def test_a_change_keeps_the_other_direction_and_the_addresses() -> None:
    host = Host()
    host.set("w0")
    link = host.links["w0"]
    assert (link.up, link.down) == (SLOW, PLANNED.down)
    assert (link.address, link.mac, link.seed) == (PLANNED.address, PLANNED.mac, 7)
    assert host.links["w1"] == PLANNED
    assert host.changes.due_in_seconds() is None


def test_a_change_from_a_trace_keeps_its_planned_time() -> None:
    host = Host()
    host.changes.set(*({"w0": PLANNED},), up=SLOW, down=None, seconds=None, planned=1099.97)
    (change,) = host.changes.done
    assert (change.action, change.planned, change.actual) == ("recorded", 1099.97, 1100.0)
    assert host.links["w0"].up == SLOW


def test_a_change_expires_and_both_times_are_recorded() -> None:
    host = Host()
    host.set("w0", "w1", seconds=120)
    assert host.changes.due_in_seconds() == 120
    host.pass_time(119)
    assert host.links["w0"].up == SLOW
    host.pass_time(1.5)
    assert host.links == dict.fromkeys(("w0", "w1"), PLANNED)
    first, last = host.changes.done
    assert (first.action, first.nodes) == ("set", ("w0", "w1"))
    assert SHAPE.validate_python(first.up) == SLOW
    assert (last.action, last.planned, last.actual) == ("expired", 1220.0, 1220.5)
    assert host.changes.due_in_seconds() is None


def test_a_later_change_replaces_an_earlier_one_and_resets_to_the_plan() -> None:
    host = Host()
    host.set("w0", seconds=10)
    host.set("w0", up=Direction(rate=Rate(2e6)), seconds=60)
    host.pass_time(30)
    assert host.links["w0"].up == Direction(rate=Rate(2e6))
    host.pass_time(30)
    assert host.links["w0"] == PLANNED
    host.set("w0", seconds=10)
    host.set("w0")
    host.pass_time(1000)
    assert host.links["w0"].up == SLOW


def test_a_reset_keeps_unchanged_links() -> None:
    host = Host()
    host.set("w1")
    done = host.changes.reset(["w0", "w1"])
    assert (done.action, done.nodes, done.failure) == ("reset", ("w1",), "")
    assert host.links["w1"] == PLANNED


def test_an_ended_node_does_not_prevent_the_reset_of_others() -> None:
    host = Host()
    host.set("w0", "w1", seconds=1)
    host.gone.add("w0")
    host.pass_time(1)
    assert host.links["w1"] == PLANNED
    assert host.changes.done[-1].failure == "w0 ended with status 1."
    assert host.changes.due_in_seconds() is None


def test_changes_are_kept_until_their_reader_has_them() -> None:
    host = Host()
    host.set("w0")
    host.set("w1")
    first, second = host.changes.since(0)
    assert host.changes.since(0) == [first, second]  # the answer was not read
    host.changes.reset(["w0"])
    assert [change.action for change in host.changes.since(2)] == ["reset"]
    assert host.changes.since(3) == host.changes.done == []
    host.set("w0")
    assert host.changes.since(0) == host.changes.since(3) == host.changes.done
    assert host.changes.since(2**32) == []
    host.set("w1")
    assert [change.nodes for change in host.changes.since(4)] == [("w1",)]


def test_a_change_that_fails_is_told_at_once() -> None:
    host = Host()
    host.gone.add("w0")
    with pytest.raises(NodeError, match="w0 ended"):
        host.set("w0")
