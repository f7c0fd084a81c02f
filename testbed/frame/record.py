"""The record of the updates that are in the model: a row each, written when it is applied."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from testbed.algorithms.base import Applied, Update
from testbed.events.rows import UpdateRow


class Timing(NamedTuple):
    """A worker's cycle that ends with a push, in emulated seconds.

    Attributes:
        compute: training, padded to the device class's speed.
        late: by which steps took longer than that speed.
        think: waiting between training and pushing.
        transfer: the call that brought the model, without ``blocked``.
        blocked: for which the server held that call's reply back.
    """

    compute: float = 0.0
    late: float = 0.0
    think: float = 0.0
    transfer: float = 0.0
    blocked: float = 0.0


@dataclass
class Traffic:
    """What a worker has sent and got since its last update, apart from the update itself.

    Attributes:
        messages: how many it has sent without a step.
        up_bytes: payload of these.
        down_bytes: payload of the replies to these.
        reply_bytes: payload of the last reply; a repeated one counts once.
    """

    messages: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    reply_bytes: int = 0


class Accepted(NamedTuple):
    """An update that was accepted and is not in the model yet."""

    sequence: int
    version: int
    samples: int
    steps: int
    entries: int
    up_bytes: int
    down_bytes: int
    messages: int
    timing: Timing


@dataclass
class UpdateRecord:
    """Keeps what is known of every update until it is in the model, and then writes its row.

    Attributes:
        append: takes the rows, in the order in which the updates entered the model.
        applied: how many did.
        applied_bytes: their payload, with that of the messages that led to them.
    """

    append: Callable[[UpdateRow], None]
    applied: int = 0
    applied_bytes: int = 0
    _traffic: defaultdict[int, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    _pending: defaultdict[int, deque[Accepted]] = field(default_factory=lambda: defaultdict(deque))

    @property
    def pending(self) -> int:
        """Updates that were accepted and are in no model yet."""
        return sum(len(queue) for queue in self._pending.values())

    @property
    def pending_bytes(self) -> int:
        """Their payload."""
        return sum(one.up_bytes for queue in self._pending.values() for one in queue)

    def replied(self, worker: int, payload_bytes: int) -> None:
        """A worker got a reply of so many bytes."""
        self._traffic[worker].reply_bytes = payload_bytes

    def accepted(
        self, worker: int, sequence: int, *, update: Update, payload_bytes: int, timing: Timing
    ) -> None:
        """A push was accepted, as the server said."""
        traffic = self._traffic[worker]
        if not update.steps:
            traffic.messages += 1
            traffic.up_bytes += payload_bytes
            traffic.down_bytes += traffic.reply_bytes
            return
        self._pending[worker].append(
            Accepted(
                sequence=sequence,
                version=update.version,
                samples=update.samples,
                steps=update.steps,
                entries=update.payload.entries,
                up_bytes=payload_bytes + traffic.up_bytes,
                down_bytes=traffic.reply_bytes + traffic.down_bytes,
                messages=traffic.messages,
                timing=timing,
            )
        )
        if traffic.messages:
            self._traffic[worker] = Traffic(reply_bytes=traffic.reply_bytes)

    def enter(self, applied: Applied, *, now: float, elapsed: float) -> None:
        """An update is in the model, at emulated time ``now``, real seconds after the start."""
        accepted = self._pending[applied.worker].popleft()
        self.applied += 1
        self.applied_bytes += accepted.up_bytes
        timing = accepted.timing
        self.append(
            UpdateRow(
                time_seconds=now,
                wall_seconds=elapsed,
                worker=applied.worker,
                sequence=accepted.sequence,
                version_pulled=accepted.version,
                version_applied=applied.version,
                staleness=applied.staleness,
                sigma_mean=applied.sigma_mean,
                sigma_max=applied.sigma_max,
                step_scale=applied.step_scale,
                samples=accepted.samples,
                steps=accepted.steps,
                messages=accepted.messages,
                entries=accepted.entries,
                payload_up_bytes=accepted.up_bytes,
                payload_down_bytes=accepted.down_bytes,
                compute_seconds=timing.compute,
                late_seconds=timing.late,
                think_seconds=timing.think,
                transfer_seconds=timing.transfer,
                blocked_seconds=timing.blocked,
            )
        )
