"""Where calls become deeds: bytes are read, the training is asked, and the answer is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.roles.journal import Journal
from testbed.roles.snapshots import Snapshots
from testbed.roles.training import Training
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import LARGEST_COUNT, LARGEST_NUMBER, decode_push, parse
from testbed.rpc.service import INCOMPLETE, Behaviour, Call, Refusal
from testbed.rpc.wire import MalformedError

MOST_REFUSALS = 1000  # of one node, written one by one; beyond it they are only counted
LONGEST_REASON = 1000  # characters


@dataclass
class Desk:
    """Answers every method of the contract.

    Attributes:
        training: see Training.
        snapshots: see Snapshots.
        journal: where refusals and evaluations are written.
    """

    training: Training
    snapshots: Snapshots
    journal: Journal
    _nodes: dict[str, str] = field(default_factory=dict)  # by peer
    _refusals: Counter[str | None] = field(default_factory=Counter)

    @property
    def for_workers(self) -> Mapping[str, Behaviour]:
        """The methods of ParameterServer."""
        return {
            methods.JOIN: self.join,
            methods.PULL: self.pull,
            methods.EXCHANGE: self.exchange,
            methods.LEAVE: self.leave,
        }

    @property
    def for_management(self) -> Mapping[str, Behaviour]:
        """The methods of Management."""
        return {
            methods.SNAPSHOT: self.snapshot,
            methods.REPORT: self.report,
            methods.REMOVE: self.remove,
        }

    async def join(self, message: bytes, call: Call) -> bytes:
        """See the contract."""
        request = parse(ps_pb2.JoinRequest, message)
        self._name(call, request.worker)
        version = self.training.join(request.worker, request.fingerprint)
        if call.node is not None:
            self._nodes[call.peer] = call.node
        return ps_pb2.JoinReply(version=version).SerializeToString()

    async def pull(self, message: bytes, call: Call) -> bytes:
        """See the contract."""
        request = parse(ps_pb2.PullRequest, message)
        self._name(call, request.worker)
        return await self.training.pull(request.worker, request.attempt)

    async def exchange(self, message: bytes, call: Call) -> bytes:
        """See the contract."""
        push = decode_push(message)
        self._name(call, push.worker)
        return await self.training.exchange(push)

    async def leave(self, message: bytes, call: Call) -> bytes:
        """See the contract."""
        request = parse(ps_pb2.LeaveRequest, message)
        self._name(call, request.worker)
        self.training.leave(request.worker)
        return ps_pb2.LeaveReply().SerializeToString()

    async def snapshot(self, message: bytes, call: Call) -> bytes:
        """See the contract."""
        request = parse(ps_pb2.SnapshotRequest, message)
        call.node = "evaluator"
        if math.isnan(request.least_seconds):
            raise MalformedError("least_seconds is not a number")
        answer = self.snapshots.ask(request.least_version, request.least_seconds)
        try:
            self.training.look()
            return await answer
        finally:
            self.snapshots.withdraw(answer)

    async def report(self, message: bytes, call: Call) -> bytes:
        """See the contract."""
        report = parse(ps_pb2.ReportRequest, message)
        call.node = "evaluator"
        if not (0 <= report.top1 <= 1 and 0 <= report.top5 <= 1):
            raise MalformedError(f"top1 {report.top1}, top5 {report.top5}: expected shares")
        if report.version > LARGEST_NUMBER or not 1 <= report.images <= LARGEST_COUNT:
            raise MalformedError(f"version {report.version}, {report.images} images: out of range")
        taken, first = self.snapshots.reported(report.version, final=report.final)
        if first:
            self.journal.write(
                "evaluated",
                time_seconds=taken.time,
                version=report.version,
                loss=report.loss,
                top1=report.top1,
                top5=report.top5,
                images=report.images,
                final=report.final,
                payload_up_bytes=taken.payload_up_bytes,
            )
            if report.final:
                self.snapshots.concluded.set()
            else:
                self.training.tick(loss=report.loss, accuracy=report.top1)
        return ps_pb2.ReportReply().SerializeToString()

    async def remove(self, message: bytes, call: Call) -> bytes:
        """See the contract."""
        request = parse(ps_pb2.RemoveRequest, message)
        call.node = "controller"
        if (length := len(request.reason)) > LONGEST_REASON:
            raise MalformedError(f"a reason of {length} characters, above {LONGEST_REASON}")
        self.training.remove(request.worker, request.reason)
        return ps_pb2.RemoveReply().SerializeToString()

    def refused(self, refusal: Refusal) -> None:
        """Write down a refusal, with the node's name if it is known."""
        call = refusal.call
        node = call.node or self._nodes.get(call.peer)
        self._refusals[node] += 1
        if self._refusals[node] > MOST_REFUSALS:
            return
        self.journal.write(
            "incomplete" if refusal.code == INCOMPLETE else "rejected",
            node=node,
            peer=call.peer,
            method=call.method.rpartition("/")[2],
            code=refusal.code,
            reason=refusal.reason,
        )

    def _name(self, call: Call, worker: int) -> None:
        call.node = self.training.node(worker)
