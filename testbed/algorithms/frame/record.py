"""The record of applied updates: one row each, written when the update enters the model."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from testbed.algorithms.base import Applied, Samples
from testbed.models.metrics.clients import distribution
from testbed.payloads.notes import Note
from testbed.telemetry.ps_events import ClientsEvaluated
from testbed.telemetry.rows import StreamColumns, UpdateRow


class Timing(NamedTuple):
    """The durations of a worker's cycle up to a push, in emulated seconds; see UpdateRow."""

    compute_seconds: float = 0.0
    late_seconds: float = 0.0
    think_seconds: float = 0.0
    transfer_seconds: float = 0.0
    blocked_seconds: float = 0.0
    overslept_seconds: float = 0.0
    queued_seconds: float = 0.0


class Intake(NamedTuple):
    """The state of a worker's stream when its last step took samples; see StreamColumns."""

    stream_wait_seconds: float = 0.0
    stream_lag_seconds: float = 0.0
    stream_rate: float = 0.0
    stream_produced: int = 0
    stream_used: int = 0
    stream_buffered: int = 0
    stream_truncated: int = 0
    stream_duplicates: int = 0
    stream_latency_seconds: float = 0.0
    stream_refused: int = 0
    stream_missing: int = 0


NOTED = {"injected": 2**31 - 1, "compressed": 1, "rho": 1e30, "rho_mean": 1e30}
"""The entries of an update's note that have a column, and their maximum values."""


EVALUATED = "evaluated"
"""The entry of a note with the accuracy of the model that the worker had pulled, float64 (1,)."""


def shared_bytes(shared: Samples | None, sample_bytes: int) -> int:
    """Bytes of the samples in a message, at ``sample_bytes`` each."""
    return 0 if shared is None else len(shared) * sample_bytes


@dataclass
class WorkerTraffic:
    """A worker's traffic since its last update: messages and payload bytes in both directions.

    ``reply_bytes`` is the last reply, which the next update builds on; repeats count once.
    """

    messages: int = 0
    up_bytes: int = 0
    pickle9_bytes: int = 0
    saturated: int = 0
    down_bytes: int = 0
    reply_bytes: int = 0


@dataclass
class UpdateRecord:
    """Keeps the columns of each update until it is applied, and then writes its row.

    Attributes:
        append: receives the rows, in the order in which the updates entered the model.
        streamed: whether rows have the columns of streams.
        applied: number of applied updates.
        applied_bytes: their payload, including the messages that led to them.
        clients: distribution of what the workers of the last round have found; empty if workers do
            not evaluate.
    """

    STATE: ClassVar[tuple[str, ...]] = (
        *("applied", "applied_bytes", "clients", "_traffic", "_pending"),
    )
    append: Callable[[tuple[Any, ...]], None]
    streamed: bool = False
    applied: int = 0
    applied_bytes: int = 0
    clients: dict[str, float] = field(default_factory=dict)
    _traffic: defaultdict[int, WorkerTraffic] = field(
        default_factory=lambda: defaultdict(WorkerTraffic)
    )
    _pending: defaultdict[int, deque[tuple[dict[str, Any], tuple[Any, ...], float | None]]] = field(
        default_factory=lambda: defaultdict(deque)
    )  # columns of UpdateRow by name, the StreamColumns that follow, and its accuracy, by worker
    _round: dict[int, tuple[int, float]] = field(default_factory=dict)  # version and accuracy

    @property
    def pending(self) -> int:
        """Accepted updates that are not yet applied."""
        return sum(len(queue) for queue in self._pending.values())

    @property
    def pending_bytes(self) -> int:
        """Payload of the pending updates."""
        pending = (one for queue in self._pending.values() for one, _, _ in queue)
        return sum(one["payload_up_bytes"] for one in pending)

    def reply_bytes(self, worker: int) -> int:
        """Payload of a worker's last reply."""
        return self._traffic[worker].reply_bytes

    def replied(self, worker: int, payload_bytes: int) -> None:
        """Record a reply of this size to a worker."""
        self._traffic[worker].reply_bytes = payload_bytes

    def accepted(self, push: Any, timing: Timing) -> None:
        """Record an accepted push: a PushMessage of a live run, or a Cycle of a simulated one."""
        worker, update, intake = push.worker, push.update, push.intake
        traffic, pickle9_bytes = self._traffic[worker], update.payload.pickle9_bytes
        if not update.steps:
            traffic.messages += 1
            traffic.up_bytes += push.payload_bytes
            traffic.pickle9_bytes += pickle9_bytes
            traffic.saturated += push.saturated
            traffic.down_bytes += traffic.reply_bytes
            return
        columns = {
            "worker": worker,
            "sequence": push.sequence,
            "version_pulled": update.version,
            "samples": update.samples,
            "steps": update.steps,
            "messages": traffic.messages,
            "entries": update.payload.entries,
            "payload_up_bytes": push.payload_bytes + traffic.up_bytes,
            "payload_down_bytes": traffic.reply_bytes + traffic.down_bytes,
            "pickle9_bytes": pickle9_bytes + traffic.pickle9_bytes,
            "saturated": push.saturated + traffic.saturated,
            **timing._asdict(),
        }
        stream: tuple[Any, ...] = ()
        if self.streamed:
            told: dict[str, Any] = {} if intake is None else intake._asdict()
            stream = tuple(StreamColumns(**told | _noted(update.note)))
        self._pending[worker].append((columns, stream, _accuracy(update.note)))
        if traffic.messages:
            self._traffic[worker] = WorkerTraffic(reply_bytes=traffic.reply_bytes)

    def enter(self, applied: Applied, *, now: float, elapsed: float) -> None:
        """Record an applied update, at emulated time ``now`` and ``elapsed`` real seconds."""
        accepted, stream, accuracy = self._pending[applied.worker].popleft()
        if accuracy is not None and not applied.staleness:
            self._round[applied.worker] = accepted["version_pulled"], accuracy
        self.applied += 1
        self.applied_bytes += accepted["payload_up_bytes"]
        row = UpdateRow(
            time_seconds=now,
            wall_seconds=elapsed,
            version_applied=applied.version,
            staleness=applied.staleness,
            sigma_mean=applied.sigma_mean,
            sigma_max=applied.sigma_max,
            step_scale=applied.step_scale,
            **accepted,
        )
        self.append((*row, *stream) if self.streamed else row)

    def end_round(self, now: float) -> ClientsEvaluated | None:
        """Return what the workers of the round that was entered have found; None if nothing.

        Workers that pulled an older model, whose updates are late, do not count.
        """
        if not self._round:
            return None
        found, self._round = self._round, {}
        accuracies = {f"w{worker}": found[worker][1] for worker in sorted(found)}
        self.clients = distribution([*accuracies.values()])
        version = next(iter(found.values()))[0]
        return ClientsEvaluated(now, version, self.clients, accuracies)


def _accuracy(note: Note) -> float | None:
    """Return the accuracy in a note; None for none, or one that no worker finds."""
    found = note.get(EVALUATED)
    if not isinstance(found, np.ndarray) or found.shape != (1,) or not 0 <= found[0] <= 1:
        return None
    return float(found[0])


def _noted(note: Note) -> dict[str, float]:
    """Return the note's entries that have a column; skip invalid values a worker may have sent."""
    numbers = {name: value for name, value in note.items() if isinstance(value, int | float)}
    told = {name: numbers[name] for name in NOTED if name in numbers}
    kinds = {name: type(StreamColumns._field_defaults[name]) for name in told}
    return {name: kinds[name](value) for name, value in told.items() if 0 <= value <= NOTED[name]}
