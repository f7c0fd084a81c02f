"""Watches a workload: the ends of its programs, what they print, and the traffic of every node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testbed.errors import TestbedError
from testbed.network.counters import Traffic
from testbed.network.ledgers import MOST_PEERS
from testbed.run.output import Output
from testbed.run.scraping import Scraper
from testbed.run.watch import Watch, describe_exit
from testbed.runtimes.agent.launch import Exit
from testbed.telemetry.event_kinds import WorkloadEnded
from testbed.telemetry.rows import NodeRow, PairRow
from testbed.values.topology import NodeSpec

ABSENT = "absent for good"
KILLED = "killed by a fault"
HELD = "frozen or dead until a line or value that no node is left to print"
"""What a node is that is gone by its availability, or by a fault, of which the last has no end."""

OTHERS = "others"
"""Stands for the peers of a node that are not counted one by one."""


FOREGROUND = "A node ends with its command: run servers in the foreground, not as daemons."
"""What to do if a program has ended well, but should not have ended."""


@dataclass
class WorkloadWatch(Watch):
    """Polls a workload, and records what is new."""

    output: Output  # of its nodes
    scraper: Scraper  # of the metrics that they serve
    stop_seconds: float | None = None  # since the start, or None for no such end
    succeeded: set[str] = field(default_factory=set)  # nodes that have exited with status 0
    gone: dict[str, str] = field(default_factory=dict)  # nodes that ended otherwise, and how
    _begun: bool = False
    _pairs: dict[tuple[str, str], PairRow] = field(default_factory=dict)  # last, by node and peer

    @property
    def started(self) -> bool:
        """Whether the first nodes have been started."""
        return self._begun

    @property
    def finished(self) -> bool:
        """Whether the workload has ended well."""
        return bool(self.ending)

    def begin(self) -> None:
        """Register that the first nodes are about to be started."""
        self._begun = True

    def look(self) -> None:
        """Process what has happened since the last look.

        Raises:
            NodeError: a node has ended without which the run cannot continue.
            HostError: the run's folder was deleted, or a part of it.
        """
        exits = self.take_ended()  # before reading output, which then is all that they printed
        self.output.look()
        self.scraper.look()
        for ended in exits:
            self._take_exit(self.plan.node(ended.node), ended)
        if not self.finished and (reason := self._reason()):
            self.ending = reason
            self.recorder.event(WorkloadEnded(reason))
        self.measure()

    def catch_up(self) -> None:
        """Nothing is left to process: the nodes keep no records."""

    def depart(self, name: str, how: str) -> None:
        """Register a node that never returns."""
        self.planned_exits.restarting.discard(name)
        if name not in self.succeeded:
            self.gone.setdefault(name, f"{name} is {how}")

    @property
    def over(self) -> set[str]:
        """The nodes that have ended, and those that never return."""
        return self.succeeded | self.gone.keys()

    def prepare_restart(self, node: NodeSpec) -> None:
        """Forget how a node ended that is about to start again."""
        self.gone.pop(node.name, None)
        self.succeeded.discard(node.name)

    def failure(self, node: NodeSpec, ended: Exit) -> TestbedError:
        error = super().failure(node, ended)
        if ended.status == 0:
            error.hint = f"{FOREGROUND} {error.hint}"
        return error

    def count(self) -> None:
        """Record the kernel's counters of every node, and the host's load."""
        self.begin_count()
        traffic, usage = self.agent.count(), self.agent.usage()
        self.look_at_logs()
        now = self.recorder.elapsed_seconds or 0.0
        rows = []
        for name, wire in traffic.peers.items():
            used, queue = usage.containers.get(name), usage.down.get(name)
            rows.append(
                NodeRow(
                    time_seconds=now,
                    node=name,
                    up_bytes=wire.tx_bytes,
                    up_packets=wire.tx_packets,
                    down_bytes=wire.rx_bytes,
                    down_packets=wire.rx_packets,
                    retransmitted_bytes=traffic.retransmitted_in_bytes.get(name, 0),
                    dropped_packets=None if queue is None else queue.dropped_packets,
                    cpu_seconds=None if used is None else used.cpu_seconds,
                    memory_bytes=None if used is None else used.memory_bytes,
                )
            )
        self.recorder.readings(rows)
        self._record_pairs(traffic, now)
        self.recorder.host(self.host.sample())

    def _record_pairs(self, traffic: Traffic, now: float) -> None:
        links = ((node.name, node.link) for node in self.plan.nodes)
        names = {link.address: name for name, link in links if link is not None} | {"": OTHERS}
        changed: dict[tuple[str, str], dict[str, Any]] = {}
        for node, tcp in traffic.pairs.items():
            for address, pair in tcp.items():
                if address in names:
                    changed[node, names[address]] = pair._asdict()
        for source, sent in traffic.frames.items():
            for target, frames in sent.items():
                if source in names and target in names:
                    changed.setdefault((names[source], names[target]), {}).update(frames._asdict())
        peers = len(names) - 2  # of each node: neither itself nor the others
        nothing = 0 if peers <= MOST_PEERS else None  # as long as no TCP connection is counted
        for key, values in changed.items():
            before = self._pairs.get(key, PairRow(now, *key, nothing, nothing, nothing, None))
            self._pairs[key] = before._replace(time_seconds=now, **values)
        self.recorder.readings([self._pairs[key] for key in changed])

    def _take_exit(self, node: NodeSpec, ended: Exit) -> None:
        how = describe_exit(node, ended)
        if self.planned_exits.take(node.name):
            if node.name not in self.planned_exits.restarting:
                self.gone.setdefault(node.name, f"{node.name} is {KILLED}")
            # an absence, of which there may be thousands, is not reported
            self.record_exit(ended, planned=True, how="" if node.when_absent else how)
        elif ended.status == 0 and (node.end in {"final", "expected"} or self.finished):
            self.succeeded.add(node.name)
            self.record_exit(ended, planned=True)
        elif node.end in {"final", "fatal"} and not self.finished:
            self.record_exit(ended, how=how, ends_run=True)
            raise self.failure(node, ended)
        else:
            self.gone[node.name] = how
            self.record_exit(ended, planned=True, how="" if self.finished else how)

    def _reason(self) -> str:
        """Return why the workload has ended well; empty if it has not."""
        elapsed = self.recorder.elapsed_seconds
        if self.stop_seconds is not None and (elapsed or 0.0) >= self.stop_seconds:
            return f"stop.time of {self.stop_seconds:g} s has passed"
        if self.output.values.reached:
            return self.output.values.reached
        final = [node.name for node in self.plan.nodes if node.end == "final"]
        if final and self.over.issuperset(final):
            but = ""
            for how in (KILLED, ABSENT, HELD):
                if names := [name for name in final if self.gone.get(name) == f"{name} is {how}"]:
                    but += f", except {', '.join(names)}, {how}"
            return f"all final programs have ended with status 0{but}"
        if self.over.issuperset(node.name for node in self.plan.nodes):
            return "all programs have ended"
        return ""
