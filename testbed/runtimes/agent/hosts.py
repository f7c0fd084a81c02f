"""The agents of a run over several hosts, as one client: a request goes to the host of its node."""

from __future__ import annotations

import select
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from socket import socket
from typing import Any, TypeVar

from testbed.errors import HostLostError, NodeError
from testbed.runtimes.agent.client import AgentClient, AgentEndedError, AgentLateError
from testbed.runtimes.agent.launch import Exit, LaunchSpec, NodeState
from testbed.runtimes.agent.operations import WRITTEN_BYTES
from testbed.runtimes.agent.records import ServerRecords
from testbed.telemetry.event_kinds import LinkChanged
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import OtherHost
from testbed.telemetry.untrusted import SpoiledError
from testbed.telemetry.wall import ClockOffset, measure_offset

Answer = TypeVar("Answer")

LISTS = frozenset({"running", "frozen", "links", "limit_changes"})
MAPPINGS = frozenset({"carried"})
OF_NODES = frozenset({"reshape", "reset_links"})
MOST_NODES = 32
"""Whose output is asked for at once: the reply holds a piece of each."""

LOOK_SECONDS = 1.0
"""Between two readings of what nodes on other hosts have printed."""


class HostAgents(AgentClient):
    """One agent per host, each of which knows the nodes of its own host.

    What nodes on other hosts print is copied into their logs on this one, for the nodes that this
    client has launched. Times of their agents are converted to this host's clock.

    A host whose agent has ended, or does not answer in time, is lost. Its nodes have ended, or do
    when their agent notices that. No run continues without that of the parameter server.

    Args:
        agents: by host.
        host_of: the host of every node of the plan.
        here: this host.
        server: the host of the parameter server; by default this one.
        records: the run's folder, if that server's records are to be copied into it.
        goes_on: whether a lost host is no error, but the end of its nodes.
        goes_on_later: the same, from ``nodes_are_up`` on.
        drained: returns why hosts are to be left, by name; asked with every reading of the hosts.
        lost: the hosts that are lost already, and why.

    Attributes:
        lost: why each lost host is lost.
    """

    def __init__(
        self,
        agents: Mapping[str, AgentClient],
        host_of: Mapping[str, str],
        *,
        here: str,
        server: str = "",
        records: RunFolder | None = None,
        goes_on: bool = False,
        goes_on_later: bool = False,
        drained: Callable[[], Mapping[str, str]] = dict,
        lost: Mapping[str, str] | None = None,
    ) -> None:
        self.lost = dict(lost or {})
        self._goes_on, self._goes_on_later, self._drained = goes_on, goes_on_later, drained
        self._launched: set[str] = set()  # by this client, and not reported as ended yet
        self._lost_nodes: list[Exit] = []  # not reported yet
        self._sent_again: dict[str, dict[str, int]] = {}  # as last counted, by host
        self._agents = dict(agents)
        self._host_of = dict(host_of)
        self._here, self._server = here, server or here
        self._records: ServerRecords | None = None
        if records is not None and self._server != here:
            clock = partial(self._clock_of, self._server)
            self._records = ServerRecords(agents[self._server], records, clock)
        self._logs: dict[str, Path] = {}  # of launched nodes on other hosts
        self._contained: dict[str, int | None] = {}  # the container of each, as launched
        self._copied: defaultdict[Path, int] = defaultdict(int)  # bytes of these logs
        self._looked = time.monotonic()
        self._clocks: dict[str, ClockOffset] = {}  # of other hosts, as last measured

    def close(self) -> None:
        """Copy what is left of records and logs, and close the connections; the run continues."""
        for agent in self._agents.values():
            agent.defer_signals()
        for copy in (partial(self.copy_records, whole=True), self.copy_logs):
            with suppress(NodeError):  # a host that is lost has no more
                copy()
        for agent in self._agents.values():
            agent.close()

    def nodes_are_up(self) -> None:
        self._goes_on = self._goes_on or self._goes_on_later

    def begin_launch(self, launch: LaunchSpec) -> Callable[[], int | None]:
        """Request a node on its host; see the base class. On a lost host it ends as it starts."""
        node = launch.node
        self._host_of[node.name] = node.host
        if node.host in self.lost:
            self._lost_nodes.append(self._lost_node(node.name))
            return lambda: None
        self._launched.add(node.name)
        if node.host != self._here:
            self._logs[node.name] = launch.log
            if self._contained.get(node.name) != launch.container:
                self._copied[launch.log] = 0  # the container was made with an empty log
            self._contained[node.name] = launch.container
        with self._naming(node.host):
            answer = self._agents[node.host].begin_launch(launch)

        def launched() -> int | None:
            if node.host not in self.lost:
                with self._noticing_loss(node.host):
                    return answer()
            return None

        return launched

    def nodes(self) -> list[NodeState]:
        """Return the states of the running nodes, host by host."""
        return [one for states in self._of_each(AgentClient.nodes).values() for one in states]

    def exits(self, within_seconds: float = 0.0) -> list[Exit]:
        """Return the nodes that have ended since the last call; see the base class."""
        for host in filter(self._is_needed, self.lost):
            raise self._end_of_run(host)  # noticed by a call whose failure was passed over
        deadline = time.monotonic() + within_seconds
        while True:
            found = [one for ended in self._of_each(AgentClient.exits).values() for one in ended]
            found += self._lost_nodes
            self._lost_nodes = []
            self._launched -= {one.node for one in found}
            if found or time.monotonic() - self._looked >= LOOK_SECONDS:
                self.copy_logs()
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            poller = select.poll()
            for reader in (one for agent in self._agents.values() for one in agent.readers):
                poller.register(reader, select.POLLIN)
            poller.poll(1000 * min(left, LOOK_SECONDS))

    def link_changes(self) -> list[LinkChanged]:
        """Return the link changes since the last call of this client, from any source."""
        changes = []
        for host, new in self._of_each(AgentClient.link_changes).items():
            for one in new:
                clock = self._clock_of(host)
                planned, actual = clock.here(one.planned), clock.here(one.actual)
                changes.append(replace(one, planned=planned, actual=actual))
        return sorted(changes, key=attrgetter("actual"))

    def other_hosts(self) -> list[OtherHost]:
        """Return the load of each other host, and its clock, which is measured now."""
        for host, why in self._drained().items():
            if host in self._agents and host != self._here:
                self._leave(host, why)
        others = [host for host in self._agents if host != self._here]
        found = self._of_each(lambda agent: (measure_offset(agent.clock), agent.load()), others)
        self._clocks = {host: clock for host, (clock, _) in found.items()}
        return [OtherHost(host, load, clock) for host, (clock, load) in found.items()]

    def _leave(self, host: str, why: str) -> None:
        """End the nodes of a host, and count it as lost."""
        for node in self._launched:
            if self._host_of[node] == host:
                try:
                    self._agents[host].signal(node, signal.SIGKILL, thaw=True)
                except (AgentEndedError, AgentLateError):
                    break  # nor would the next request be answered
                except NodeError:
                    continue  # it has just ended
        self._lose(host, why)

    def _clock_of(self, host: str) -> ClockOffset:
        """Return the offset of a host's clock, which is measured if it is not known yet."""
        self._check_lost(host)
        if host == self._here:
            return ClockOffset(0.0, 0.0)
        if host not in self._clocks:
            self._clocks[host] = measure_offset(self._agents[host].clock)
        return self._clocks[host]

    def capture(self, node: str) -> socket:
        """Return a socket that receives the frames of a node on this host; see the base class."""
        return self._agents[self._here].capture(node)

    def call(self, method: str, **arguments: Any) -> Any:
        """Have the agents execute an operation that concerns their nodes; return one result."""
        if node := arguments.get("node"):
            return self._ask_of(self._host(node), method, **arguments)
        if method in OF_NODES:
            return self._change_links(method, **arguments)
        by_host = self._of_each(lambda agent: agent.call(method, **arguments))
        found = list(by_host.values())
        if method in LISTS:
            return [item for items in found for item in items]
        if method in MAPPINGS:
            return _merged(found)
        if method == "count":  # the parameter server's link, and the sockets of all workers
            resent = "retransmitted_in_bytes"
            self._sent_again |= {host: one[resent] for host, one in by_host.items()}
            return {**by_host[self._server], resent: _merged(self._sent_again.values())}
        if method == "usage":
            return {key: _merged(one[key] for one in found) for key in found[0]}
        raise NodeError(f"{method}: an agent of several hosts has no such request.")

    def _host(self, node: str) -> str:
        if node not in self._host_of:
            raise NodeError(f"{node} was never launched.")
        return self._host_of[node]

    def _change_links(
        self, method: str, *, nodes: Sequence[str], planned: float | None = None, **others: Any
    ) -> Any:
        by_host: defaultdict[str, list[str]] = defaultdict(list)
        for node in nodes:
            by_host[self._host(node)].append(node)
        done, lost = [], []
        for host, some in by_host.items():
            try:
                clock, given = self._clock_of(host), dict(others)
                if planned is not None:
                    given["planned"] = clock.there(planned)
                change = self._ask_of(host, method, nodes=some, **given)
            except HostLostError as error:
                lost.append(f"{', '.join(some)}: {error.message}")
                continue
            times = {name: clock.here(change[name]) for name in ("planned", "actual")}
            done.append({**change, **times})
        failure = "; ".join(one["failure"] for one in done if one["failure"])
        if lost:
            rest = " The links of nodes on other hosts are changed." if done else ""
            raise HostLostError(f"{' '.join(lost)}{f' {failure}' if failure else rest}")
        nodes = [node for one in done for node in one["nodes"]]
        return {**done[-1], "nodes": nodes, "failure": failure}

    def _ask_of(self, host: str, method: str, **arguments: Any) -> Any:
        self._check_lost(host)
        with self._noticing_loss(host):
            return self._agents[host].call(method, **arguments)
        raise self._lost_error(host)

    def _of_each(
        self, ask: Callable[[AgentClient], Answer], hosts: Iterable[str] | None = None
    ) -> dict[str, Answer]:
        """Return the answers of all or some agents by host, without those of hosts now lost."""
        answers = {}
        for host in list(self._agents if hosts is None else hosts):
            with self._noticing_loss(host):
                answers[host] = ask(self._agents[host])
        return answers

    @contextmanager
    def _noticing_loss(self, host: str) -> Iterator[None]:
        """Inside, an agent that has ended, or does not answer in time, means a lost host."""
        try:
            with self._naming(host):
                yield
        except AgentEndedError:
            self._lose(host, "the stream to its agent has ended")
        except AgentLateError:
            if host == self._here:
                raise
            self._lose(host, "its agent does not answer")

    def _lose(self, host: str, why: str) -> None:
        """Count a host as lost, and its nodes as ended; NodeError if the run cannot do without."""
        if host == self._here:
            raise AgentEndedError("the agent has ended.", hint="See logs/agent.log.")
        self._agents.pop(host).close()
        self.lost[host] = why
        self._logs = {node: log for node, log in self._logs.items() if self._host_of[node] != host}
        if self._is_needed(host):
            raise self._end_of_run(host)
        for node in sorted(self._launched):
            if self._host_of[node] == host:
                self._lost_nodes.append(self._lost_node(node))

    def _is_needed(self, host: str) -> bool:
        return not self._goes_on or host == self._server

    def _lost_node(self, node: str) -> Exit:
        return Exit(node, -signal.SIGKILL, lost=self.lost[self._host_of[node]])

    def require_host(self, host: str) -> None:
        """Raise HostLostError if a host is lost."""
        self._check_lost(host)

    def _check_lost(self, host: str) -> None:
        if host in self.lost:
            raise self._lost_error(host)

    def _end_of_run(self, host: str) -> HostLostError:
        see = f"See logs/agent@{host}.log, which is fetched if the host can be reached."
        had = " It had the parameter server." if host == self._server else ""
        return HostLostError(
            f"{self._lost_error(host).message}{had}", hint=f"{see} {leave_out(host)}"
        )

    def _lost_error(self, host: str) -> HostLostError:
        return HostLostError(f"host {host} is lost: {self.lost[host]}.")

    @contextmanager
    def _naming(self, host: str) -> Iterator[None]:
        """Inside, the errors of another host's agent begin with the name of the host."""
        try:
            yield
        except SpoiledError:
            raise
        except NodeError as error:
            if host == self._here:
                raise
            raise type(error)(f"host {host}: {error.message}", hint=error.hint) from None

    def copy_records(self, *, whole: bool = False) -> None:
        """Bring the parameter server's records up to date; see the base class."""
        if self._records is not None and self._server in self._agents:
            with self._noticing_loss(self._server):
                self._records.copy(whole=whole)

    def copy_logs(self, last: Collection[str] = ()) -> None:
        """Append what nodes on other hosts have printed to their logs on this one."""
        self._looked = time.monotonic()
        by_host: defaultdict[str, list[Path]] = defaultdict(list)
        for node, log in self._logs.items():
            by_host[self._host_of[node]].append(log)
        for host, logs in by_host.items():
            with self._noticing_loss(host):
                for begin in range(0, len(logs), MOST_NODES):
                    self._copy_logs_of(host, logs[begin : begin + MOST_NODES])
        for node in last:
            self._logs.pop(node, None)

    def _copy_logs_of(self, host: str, logs: Sequence[Path]) -> None:
        """Append what nodes have printed to their logs, until no whole piece is left."""
        while logs:
            with self._naming(host):
                since = {path: self._copied[path] for path in logs}
                found = self._agents[host].begin_written(since)(True) or {}
            new = {path: found[path] for path in logs if path in found}  # whatever else it names
            for path, text in new.items():
                with path.open("ab") as log:
                    log.write(text)
                self._copied[path] += len(text)
            logs = [path for path, text in new.items() if len(text) == WRITTEN_BYTES]


def leave_out(host: str) -> str:
    """Return how to start a run without a host that is lost."""
    return f"To run without it: docker node update --availability drain {host}"


def _merged(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for one in mappings for name, value in one.items()}
