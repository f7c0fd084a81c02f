"""Records of a parameter server on another host, whose clock is an hour ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from far_agents import HOUR, Agent, far_agents

from testbed.errors import HostLostError, NodeError
from testbed.runtimes.agent.hosts import HostAgents
from testbed.runtimes.agent.operations import WRITTEN_BYTES
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Phase
from testbed.telemetry.events import EventLog, follow_ps_events
from testbed.telemetry.files import LONGEST_LINE
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Finished, Listening, Restored
from testbed.telemetry.rows import UpdateRow
from testbed.telemetry.spool import SpoolReader, SpoolWriter, cut_spool
from testbed.telemetry.untrusted import SpoiledError

AT = 5000.0
HOSTS = {"ps": "b"}


@dataclass
class Server:
    """The run's folder here, and the records as a server on another host writes them."""

    here: RunFolder
    there: RunFolder
    agent: Agent
    hosts: HostAgents

    def train(self, *versions: int) -> None:
        writer = SpoolWriter(self.there.spool)
        empty: dict[str, Any] = dict.fromkeys(UpdateRow._fields, 0)
        for version in versions:
            writer.append(UpdateRow(**empty | {"sequence": 1, "version_applied": version}))
        writer.close()

    def log(self, *events: Any) -> None:
        log = EventLog(self.there.ps_events, wall=lambda: AT + HOUR)
        for event in events:
            log.write(event)
        log.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    here = RunFolder(tmp_path / "run")
    there = RunFolder(tmp_path / "disk" / str(here.path).lstrip("/"))
    for folder in (here, there):
        folder.ps.mkdir(parents=True)
    agent = Agent(ahead=HOUR, disk=tmp_path / "disk")
    with far_agents() as connect:
        agents = {"a": connect(Agent()), "b": connect(agent)}
        with HostAgents(agents, HOSTS, here="a", server="b", records=here, goes_on=True) as hosts:
            yield Server(here, there, agent, hosts)


def test_records_are_copied_with_the_times_of_this_host(server: Server) -> None:
    server.hosts.copy_records(whole=True)  # there are none yet
    assert not server.here.ps_events.exists()
    server.train(*range(5000))
    server.log(Listening(7), Finished("enough", 5000))
    (error,) = (one.clock.error_seconds for one in server.hosts.other_hosts())
    server.hosts.copy_records(whole=True)
    entries = follow_ps_events(server.here.ps_events).read()
    assert [one.event for one in entries] == [Listening(7), Finished("enough", 5000)]
    assert [one.time for one in entries] == pytest.approx([AT, AT], abs=2 * error)
    assert server.here.spool.read_bytes() == server.there.spool.read_bytes()
    assert server.here.spool.stat().st_size > WRITTEN_BYTES


def test_what_has_arrived_is_copied_without_waiting(
    server: Server, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    server.log(Listening(7))

    def copied() -> bool:
        server.hosts.copy_records()
        return server.here.ps_events.exists()

    eventually(copied)
    asked = [one for one in server.agent.asked if one["method"] == "written"]
    assert list(asked[0]["since"]) == [str(server.here.spool), str(server.here.ps_events)]


def test_a_restarted_server_removes_updates_here_too(server: Server) -> None:
    server.train(0, 1, 2, 3)
    server.hosts.copy_records(whole=True)
    reader = SpoolReader(server.here.spool)
    assert len(reader.read()) == 4
    cut_spool(server.there.spool, rows=2)
    server.log(Restored(2, 1.0, 2))
    server.train(*range(20, 30))  # more than there were before
    server.hosts.copy_records(whole=True)
    assert server.here.spool.read_bytes() == server.there.spool.read_bytes()
    (restored,) = only(follow_ps_events(server.here.ps_events).read(), Restored)
    reader.rewind(rows=restored.version)
    assert reader.read()["version_applied"].tolist() == list(range(20, 30))


def test_a_restart_from_later_than_what_was_copied_removes_nothing(server: Server) -> None:
    server.train(0, 1)
    server.hosts.copy_records(whole=True)
    reader = SpoolReader(server.here.spool)
    assert len(reader.read()) == 2
    server.train(2, 3)
    server.log(Restored(4, 1.0, 0))
    server.hosts.copy_records(whole=True)
    reader.rewind(rows=4)
    assert reader.read()["version_applied"].tolist() == [2, 3]


@pytest.mark.parametrize(
    "line", [b"[1]", b'{"event": "listening", "time": 1}', b"x" * (LONGEST_LINE + 1)]
)
def test_what_is_no_record_is_refused_by_its_reader(server: Server, line: bytes) -> None:
    server.there.ps_events.write_bytes(line)
    with server.there.ps_events.open("ab") as file:
        file.write(b"\n")
    server.hosts.copy_records(whole=True)
    with pytest.raises(SpoiledError, match="written by ps"):
        follow_ps_events(server.here.ps_events).read()


def test_an_event_of_the_controllers_is_refused_by_its_reader(server: Server) -> None:
    server.log(Phase("no event of a server"))
    server.hosts.copy_records(whole=True)
    with pytest.raises(SpoiledError, match="expected an event of the parameter server"):
        follow_ps_events(server.here.ps_events).read()


def test_no_link_is_followed_on_the_other_host(server: Server) -> None:
    server.there.spool.symlink_to("/etc/passwd")
    with pytest.raises(NodeError, match=r"host b: .*symbolic link.*, written by ps"):
        server.hosts.copy_records(whole=True)


def test_the_records_of_a_lost_host_end_with_it(server: Server) -> None:
    server.log(Listening(7))
    server.hosts.copy_records(whole=True)
    server.agent.dies_of = "written"
    with pytest.raises(HostLostError, match="host b is lost"):
        server.hosts.copy_records(whole=True)
    server.hosts.copy_records(whole=True)  # there will be none
    assert len(follow_ps_events(server.here.ps_events).read()) == 1
