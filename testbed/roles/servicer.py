"""Handlers of the RPC contract: decode the bytes, call the training."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

from testbed.algorithms.base import Measured
from testbed.errors import RejectedError
from testbed.payloads.encodings import Encoding
from testbed.roles.training import Training
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import LARGEST_COUNT, LARGEST_NUMBER, decode_push
from testbed.rpc.service import (
    INCOMPLETE,
    Behaviour,
    Call,
    ImpersonationError,
    Refusal,
    Streaming,
)
from testbed.rpc.tokens import CONTROLLER, EVALUATOR
from testbed.rpc.wire import MalformedError, parse
from testbed.telemetry.entry import METRIC
from testbed.telemetry.ps_events import Evaluated, Incomplete, Produced, Received, Rejected

PRODUCED_SECONDS = 0.2
"""Minimum interval between two progress reports of a producer, in real seconds."""

LONGEST_REASON = 1000  # characters
MOST_METRICS = 2000


@dataclass
class Servicer:
    """Handles all methods of the gRPC services; logs refused calls and evaluations.

    Attributes:
        encoding: the encoding that pushes must use.
    """

    training: Training
    encoding: Encoding = "raw"
    _last_report: dict[str, float] = field(
        default_factory=dict
    )  # when each producer last reported, on the monotonic clock

    @property
    def for_workers(self) -> Mapping[str, Behaviour]:
        """The methods of ParameterServer."""
        return {
            methods.JOIN: self._join,
            methods.PULL: self._pull,
            methods.EXCHANGE: self._exchange,
            methods.RECEIVED: self._received,
            methods.LEAVE: self._leave,
        }

    @property
    def streams_for_workers(self) -> Mapping[str, Streaming]:
        """The methods of ParameterServer that stream responses, if the algorithm uses them."""
        streams = {methods.FOLLOW_ORDERS: self._follow_orders}
        return streams if self.training.server.sends_orders else {}

    @property
    def for_management(self) -> Mapping[str, Behaviour]:
        """The methods of Management."""
        return {
            methods.SNAPSHOT: self._snapshot,
            methods.REPORT: self._report,
            methods.REMOVE: self._remove,
            methods.SILENCE: self._silence,
            methods.CLOCK: self._clock,
            methods.PRODUCED: self._produced,
        }

    async def _join(self, message: bytes, call: Call) -> bytes:
        request = parse(ps_pb2.JoinRequest, message)
        _require_own_worker(call, request.worker)
        version = self.training.join(request.worker, request.fingerprint)
        return ps_pb2.JoinReply(version=version).SerializeToString()

    async def _pull(self, message: bytes, call: Call) -> bytes:
        request = parse(ps_pb2.PullRequest, message)
        _require_own_worker(call, request.worker)
        return await self.training.pull(request.worker, request.attempt)

    async def _exchange(self, message: bytes, call: Call) -> bytes:
        size = self.training.server.half.parameters.size
        push = decode_push(
            message, self.encoding, size=size, own=self.training.server.half.config.PAYLOADS
        )
        _require_own_worker(call, push.worker)
        return await self.training.exchange(push)

    async def _follow_orders(self, message: bytes, call: Call) -> AsyncIterator[bytes]:
        request = parse(ps_pb2.FollowOrdersRequest, message)
        _require_own_worker(call, request.worker)
        async for orders in self.training.follow_orders(request.worker, request.after):
            yield orders

    async def _received(self, message: bytes, call: Call) -> bytes:
        request = parse(ps_pb2.ReceivedRequest, message)
        _require_own_worker(call, request.worker)
        counts, silent = (
            (request.received, request.missing, request.removed),
            request.silent_seconds,
        )
        if max(counts) > LARGEST_NUMBER or not 0 <= silent < math.inf:
            raise MalformedError(f"{counts} samples, {silent} s without one: out of range")
        self.training.log.write(Received(str(call.node), *counts, silent))
        return ps_pb2.ReceivedReply().SerializeToString()

    async def _leave(self, message: bytes, call: Call) -> bytes:
        request = parse(ps_pb2.LeaveRequest, message)
        _require_own_worker(call, request.worker)
        self.training.leave(request.worker)
        return ps_pb2.LeaveReply().SerializeToString()

    async def _snapshot(self, message: bytes, call: Call) -> bytes:
        _require(call, node=EVALUATOR)
        request = parse(ps_pb2.SnapshotRequest, message)
        if math.isnan(request.least_seconds):
            raise MalformedError("least_seconds is not a number")
        return await self.training.snapshot(request.least_version, request.least_seconds)

    async def _report(self, message: bytes, call: Call) -> bytes:
        _require(call, node=EVALUATOR)
        report = parse(ps_pb2.ReportRequest, message)
        metrics = _metrics(report)
        if report.version > LARGEST_NUMBER or not 1 <= report.images <= LARGEST_COUNT:
            raise MalformedError(f"version {report.version}, {report.images} images: out of range")
        snapshots = self.training.snapshots
        time = report.time_seconds
        known = snapshots.reported(report.version, time, final=report.final)
        if known is not None:
            metrics |= known.clients
            evaluated = Evaluated(
                time_seconds=time,
                version=report.version,
                payload_up_bytes=known.payload_up_bytes,
                loss=report.loss,
                metrics=metrics,
                images=report.images,
                final=report.final,
            )
            self.training.log.write(evaluated)
            if report.final:
                snapshots.concluded.set()
            else:
                measured = Measured(time, report.version, report.loss)
                self.training.measured(measured, metrics=metrics)
        return ps_pb2.ReportReply().SerializeToString()

    async def _remove(self, message: bytes, call: Call) -> bytes:
        _require(call, node=CONTROLLER)
        request = parse(ps_pb2.RemoveRequest, message)
        if (length := len(request.reason)) > LONGEST_REASON:
            raise MalformedError(
                f"a reason of {length} characters, expected at most {LONGEST_REASON}"
            )
        self.training.remove(request.worker, request.reason)
        return ps_pb2.RemoveReply().SerializeToString()

    async def _silence(self, message: bytes, call: Call) -> bytes:
        _require(call, node=CONTROLLER)
        request = parse(ps_pb2.SilenceRequest, message)
        self.training.silence(request.worker, silent=request.silent, thaws=request.thaws)
        return ps_pb2.SilenceReply().SerializeToString()

    async def _clock(self, message: bytes, call: Call) -> bytes:
        parse(ps_pb2.ClockRequest, message)
        await self.training.started.wait()
        return ps_pb2.ClockReply(time_seconds=self.training.clock.now).SerializeToString()

    async def _produced(self, message: bytes, call: Call) -> bytes:
        request = parse(ps_pb2.ProducedRequest, message)
        worst = request.worst_lag_ratio
        if not (request.sent <= request.due <= LARGEST_NUMBER and 0 <= worst <= 1):
            found = f"{request.sent} of {request.due} records sent, worst lag ratio {worst}"
            raise MalformedError(f"{found}: out of range")
        _require(call, producer=True)
        self._record_produced(Produced(str(call.node), request.due, request.sent, worst))
        return ps_pb2.ProducedReply(ended=self.training.ended.is_set()).SerializeToString()

    def _record_produced(self, progress: Produced) -> None:
        """Log a producer's progress, at a limited rate so that none can fill the disk."""
        now = self.training.clock.steady()
        if now - self._last_report.get(progress.producer, -math.inf) < PRODUCED_SECONDS:
            often = f"more often than once per {PRODUCED_SECONDS:g} s"
            raise RejectedError(f"{progress.producer} reports its progress {often}")
        self._last_report[progress.producer] = now
        if not self.training.ended.is_set():
            self.training.log.write(progress)

    def refused(self, refusal: Refusal) -> None:
        """Log a refusal, with the node's name if it is known."""
        call = refusal.call
        kind = Incomplete if refusal.code == INCOMPLETE else Rejected
        reason, peer = _printable(refusal.reason), _printable(call.peer)
        method = _printable(call.method.rpartition("/")[2])
        self.training.log.write(kind(call.node, reason, peer, method, refusal.code))


def _metrics(report: ps_pb2.ReportRequest) -> dict[str, float | None]:
    """Return the metrics of a report by name."""
    if len(report.metrics) > MOST_METRICS:
        raise MalformedError(f"{len(report.metrics)} metrics, expected at most {MOST_METRICS}")
    found = {one.name: one.value if one.HasField("value") else None for one in report.metrics}
    for name, value in found.items():
        if not (re.fullmatch(METRIC, name) and isfinite(value or 0.0)):
            raise MalformedError(f"metric {name[:60]!r} {value}: expected a name and a number")
    return found


def _require_own_worker(call: Call, worker: int) -> None:
    """Refuse a call on behalf of another worker."""
    if call.node != f"w{worker}":
        raise ImpersonationError(f"{call.node} called as worker {worker}, expected its own number")


def _require(call: Call, *, producer: bool = False, node: str = "") -> None:
    """Refuse a call that only ``node``, or only a producer, may make."""
    if call.node in (EVALUATOR, CONTROLLER) if producer else call.node != node:
        method, who = call.method.rpartition("/")[2], "producers" if producer else f"the {node}"
        raise ImpersonationError(f"{call.node} called {method}, which only {who} may call")


def _printable(text: str) -> str:
    """Sanitize a peer's text for files and terminals."""
    return "".join(one if one.isprintable() else "?" for one in text[:LONGEST_REASON])
