"""The virtual run: the frame's server, the pool's workers, the links between them, and one clock.

server releases a reply ─> down the links ─> the worker trains and thinks ─> up the links
     ^                                                                           │
     └──── applied, when the PS has dealt with those that came before <──────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from testbed.algorithms.base import Applied
from testbed.errors import NodeError, RejectedError
from testbed.frame.server import Release, Server
from testbed.frame.turns import Turns
from testbed.models import Evaluation
from testbed.rpc.codec import payload_bytes
from testbed.simulate.agenda import Agenda
from testbed.simulate.device import Cycle
from testbed.simulate.links import Bucket, FairLink
from testbed.simulate.model import Path, Transfer
from testbed.simulate.pool import Pool
from testbed.telemetry.spool import UPDATE, Rows

BUFFERED_ROWS = 200


class Journal(Protocol):
    """Where a simulation writes down what happens."""

    def updates(self, rows: Rows) -> None:
        """New rows of the update record."""

    def evaluated(
        self, evaluation: Evaluation, *, now: float, version: int, payload: int, final: bool
    ) -> None:
        """The model at ``version`` was evaluated, after so many bytes of pushes."""

    def rejected(self, worker: int, reason: str, *, now: float) -> None:
        """A push was refused; the worker has ended."""

    def show(self) -> None:
        """Called after every event: a moment to say how it goes."""


@dataclass(frozen=True)
class Seat:
    """What the model of the virtual world says of one worker.

    Attributes:
        step_seconds: emulated seconds of a training step.
        up: its way to the PS.
        down: its way back.
        up_bucket: its own link's, to the PS.
        down_bucket: and back.
        draw_think: draws the emulated seconds between computing and pushing.
        rng: draws what happens on its link.
    """

    step_seconds: float
    up: Path
    down: Path
    up_bucket: Bucket
    down_bucket: Bucket
    draw_think: Callable[[], float]
    rng: np.random.Generator


@dataclass
class Call:
    """A worker's last call, for the record of its next push; emulated seconds and bytes.

    Attributes:
        began: when the worker called.
        asked: when the call had arrived at the PS.
        blocked: how long the PS held the reply back.
        transfer: how long the call took beside that.
        pulled_bytes: payload of the reply.
        pushed_bytes: payload of the push that is under way.
    """

    began: float = 0.0
    asked: float = 0.0
    blocked: float = 0.0
    transfer: float = 0.0
    pulled_bytes: int = 0
    pushed_bytes: int = 0


@dataclass(frozen=True)
class Examination:
    """When the evaluator looks at the model, and at how much of it.

    Attributes:
        updates: every so many updates, or None.
        seconds: every so many emulated seconds, or None.
        images: indices of the test images looked at during the run.
    """

    updates: int | None
    seconds: float | None
    images: np.ndarray[Any, np.dtype[np.int64]]


@dataclass
class Engine:
    """One simulated run.

    Attributes:
        server: the frame's server.
        pool: computes what the workers do.
        seats: one per worker.
        agenda: the clock.
        uplink: the PS's link, towards it.
        downlink: the PS's link, from it.
        turns: the queue at the PS.
        examination: see Examination.
        journal: is told everything.
    """

    server: Server
    pool: Pool
    seats: Sequence[Seat]
    agenda: Agenda
    uplink: FairLink
    downlink: FairLink
    turns: Turns
    examination: Examination
    journal: Journal
    _calls: list[Call] = field(default_factory=list)
    _payload: int = 0
    _rows: list[tuple[float, ...]] = field(default_factory=list)  # as in UPDATE
    _due: int = 0
    _ended: int = 0

    def run(self) -> None:
        """From the first pull to the last evaluation."""
        self._calls = [Call() for _ in self.seats]
        for worker in range(len(self.seats)):
            self.server.join(worker)
        for worker in range(len(self.seats)):
            self._queue(partial(self._pull, worker), 0.0)
        self._examine(0.0)
        if self.examination.seconds is not None:
            self.agenda.at(self.examination.seconds, self._examine_by_time)
        if self.server.stop.time is not None:
            self.agenda.at(self.server.stop.time, self._tick)
        while not self.server.finished and self.agenda.advance():
            self.journal.show()
        self._flush()
        if not self.server.finished:
            raise NodeError("nothing is left that could happen, and the stop rule is not met.")
        self._evaluate(None)

    def _queue(self, serve: Callable[[float], None], now: float) -> None:
        """A request has come: the PS deals with it once it is through with those before."""
        served = self.turns.take(now)
        if served > now:
            self.agenda.at(served, serve)
        else:
            serve(now)

    def _pull(self, worker: int, now: float) -> None:
        """The PS deals with a worker's first request."""
        self._release(self.server.pull(worker, now))

    def _release(self, releases: Sequence[Release]) -> None:
        """Send replies on their way down."""
        now = self.agenda.now
        for release in releases:
            if release.reply is None:
                continue
            worker, reply = release.worker, release.reply
            call = self._calls[worker]
            call.blocked = now - call.asked
            call.pulled_bytes = payload_bytes(reply.model)
            self.pool.lend(worker, reply)
            seat = self.seats[worker]
            transfer = seat.down.send(call.pulled_bytes, seat.rng)
            arrived = partial(self._begin, worker)
            self._carry(transfer, seat.down_bucket, self.downlink, done=arrived)

    def _begin(self, worker: int, now: float) -> None:
        """A reply has arrived: the worker trains; it pushes once step and think are over."""
        call, seat = self._calls[worker], self.seats[worker]
        call.transfer = now - call.began - call.blocked
        think = seat.draw_think()
        self.pool.begin(worker, now=now, think=think)
        self.agenda.at(now + seat.step_seconds + think, partial(self._finish, worker))

    def _finish(self, worker: int, now: float) -> None:
        """The earliest moment of the push has come; with several local steps it may be later."""
        cycle = self.pool.finish(worker)
        if cycle.push_at > now:
            self.agenda.at(cycle.push_at, partial(self._push, cycle))
        else:
            self._push(cycle, now)

    def _push(self, cycle: Cycle, now: float) -> None:
        """Send an update on its way up."""
        seat, call = self.seats[cycle.worker], self._calls[cycle.worker]
        call.began = now
        call.pushed_bytes = payload_bytes(cycle.update.payload)
        transfer = seat.up.send(call.pushed_bytes, seat.rng)
        arrived = partial(self._arrive, cycle)
        self._carry(transfer, seat.up_bucket, self.uplink, done=arrived)

    def _arrive(self, cycle: Cycle, now: float) -> None:
        """An update has arrived at the PS."""
        self._calls[cycle.worker].asked = now
        self._queue(partial(self._apply, cycle), now)

    def _apply(self, cycle: Cycle, now: float) -> None:
        """The PS deals with a push."""
        worker = cycle.worker
        try:
            applied, releases = self.server.push(
                worker, cycle.sequence, update=cycle.update, now=now
            )
        except RejectedError as error:
            self._end(worker, error.message)
            return
        if applied is not None:
            self._record(cycle, applied)
        self._release(releases)
        if self.examination.updates is not None and self.server.version >= self._due:
            self._examine(now)

    def _record(self, cycle: Cycle, applied: Applied) -> None:
        now, call, update = self.agenda.now, self._calls[cycle.worker], cycle.update
        self._payload += call.pushed_bytes
        self._rows.append(
            (
                *(now, now, cycle.worker, cycle.sequence, update.version, applied.version),
                *(applied.staleness, applied.sigma_mean, applied.sigma_max, applied.step_scale),
                *(update.samples, update.payload.values.size),
                *(call.pushed_bytes, call.pulled_bytes, cycle.compute_seconds, 0.0),
                *(cycle.think_seconds, call.transfer, call.blocked),
            )
        )
        if len(self._rows) == BUFFERED_ROWS:
            self._flush()

    def _end(self, worker: int, reason: str) -> None:
        """A worker whose push is refused ends, as it would live; the others go on.

        Raises:
            NodeError: there are no others.
        """
        self.journal.rejected(worker, reason, now=self.agenda.now)
        self._ended += 1
        if self._ended == len(self.seats):
            self._flush()
            raise NodeError("every worker has ended before the run did.")
        self._release(self.server.leave(worker, self.agenda.now))

    def _carry(
        self, transfer: Transfer, bucket: Bucket, link: FairLink, *, done: Callable[[float], None]
    ) -> None:
        """Move bytes through the worker's link and the PS's, then let the latency pass."""
        delay = transfer.delay_seconds

        def sent(now: float) -> None:
            self.agenda.at(now + delay, done)

        bucket.send(transfer.wire_bytes, link=link, done=sent if delay else done)

    def _tick(self, now: float) -> None:
        self._release(self.server.tick(now)[1])

    def _examine_by_time(self, now: float) -> None:
        assert self.examination.seconds is not None
        self._examine(now)
        self.agenda.at(now + self.examination.seconds, self._examine_by_time)

    def _examine(self, now: float) -> None:
        """Evaluate a snapshot, which costs no virtual time, and let the server know."""
        if self.examination.updates is not None:
            self._due = self.server.version + self.examination.updates
        if self.server.finished:
            return
        evaluation = self._evaluate(self.examination.images)
        _, releases = self.server.tick(now, loss=evaluation.loss, accuracy=evaluation.top1)
        self._release(releases)

    def _evaluate(self, images: Any) -> Evaluation:
        """Evaluate the model as it is, on some images or (None) on all."""
        evaluation = self.pool.examine(self.server.half.parameters, images=images)
        self.journal.evaluated(
            evaluation,
            now=self.agenda.now,
            version=self.server.version,
            payload=self._payload,
            final=images is None,
        )
        return evaluation

    def _flush(self) -> None:
        self.journal.updates(np.array(self._rows, UPDATE))
        self._rows.clear()
