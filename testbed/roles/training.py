"""The training as its participants see it: joins, waits, pushes, and the end.

It adds the calls that wait for replies, the clock and the record to ``frame.Server``, which makes
all decisions. It runs on one event loop, so code between two awaits is atomic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Never

from testbed.algorithms.base import Measured
from testbed.algorithms.frame.effects import Effects, Release
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.service_queue import ServiceQueue
from testbed.algorithms.frame.stop import silence_reason
from testbed.errors import RejectedError
from testbed.payloads import Dense
from testbed.roles.calls import OrderStreams, WaitingCalls
from testbed.roles.clock import EmulatedClock, wait
from testbed.roles.frozen import FrozenWorkers
from testbed.roles.heartbeat import LOGGED_GAP_SECONDS
from testbed.roles.keys import ServerKeys
from testbed.roles.record import Record
from testbed.roles.snapshots import Snapshots, TrainingState
from testbed.rpc.codec import encode_delivery
from testbed.rpc.messages import Delivery, PushMessage
from testbed.rpc.service import SupersededError
from testbed.rpc.shared import Exchanged
from testbed.telemetry.events import EventLog
from testbed.telemetry.ps_events import Crashed, Finished, Gap, Joined, Left, Silent, Started
from testbed.values.state import PlainState, fitting, pack, put_back, unpack


@dataclass(kw_only=True, eq=False)
class Training:
    """The only caller of ``frame.Server``.

    Attributes:
        queue: the request queue of the server.
        workers: number of workers in the scenario.
        exchanged: the samples that workers share with each other.
        keys: caches of the core keys that workers know, if the algorithm sends keys.
        streamed: whether workers have streams, and report on them before they leave.
        first: number of workers that must join before the training starts; 0 for all.
        fingerprint: fingerprint of the model's layout.
        clock: started when all have joined.
        started: set when all workers have joined.
        ended: set when training has ended.
        drained: set when every worker that has not left was then notified of the end; with
            streams, when it has left.
    """

    STATE: ClassVar = ("_present", "_removed")
    server: Server
    queue: ServiceQueue
    workers: int
    fingerprint: int
    clock: EmulatedClock
    log: EventLog
    record: Record
    snapshots: Snapshots = field(default_factory=Snapshots)
    streamed: bool = False
    first: int = 0
    exchanged: Exchanged = field(default_factory=lambda: Exchanged(0))
    keys: ServerKeys | None = None

    def __post_init__(self) -> None:
        self.started, self.ended, self.drained = (asyncio.Event() for _ in range(3))
        self._end: float | None = None  # when the training ended, emulated
        self._present: set[int] = set()  # joined and not left
        self._removed: set[int] = set()  # and not joined again
        self._notified: set[int] = set()  # workers notified of the end
        self._calls = WaitingCalls()
        self._latest: dict[int, tuple[int, int]] = {}  # sequence and attempt of the newest call
        self._orders = OrderStreams(self.server)
        self._frozen = FrozenWorkers()
        self._tick_at = inf  # emulated
        self._rescheduled = asyncio.Event()

    def state(self) -> PlainState:
        """Pack everything that the next training needs to continue, except open calls."""
        parts = [{name: vars(part)[name] for name in part.STATE} for part in self._parts]
        return pack({"server": self.server.state(), "parts": parts})

    def restore(self, packed: PlainState) -> None:
        """Continue from the state of a training whose process has died.

        Raises:
            DataError: the state belongs to another scenario.
        """
        whole = unpack(packed)
        with fitting():
            self.server.restore(whole["server"])
            for part, values in zip(self._parts, whole["parts"], strict=True):
                put_back(part, values, part.STATE)
        self.server.take_over()
        self.snapshots.take_over()
        self.started.set()

    @property
    def _parts(self) -> tuple[Any, ...]:
        """The parts that a checkpoint holds in addition to the server."""
        return self, self.clock, self.exchanged, self.queue, self.record

    @property
    def waiting(self) -> int:
        """Number of calls that wait for their reply, except those of silent or frozen workers."""
        calls = (worker for worker in self._calls if worker not in self._frozen)
        return sum(not self.server.is_silent(worker) for worker in calls)

    @property
    def unnotified(self) -> list[int]:
        """Workers that could be notified of the end of training, and were not."""
        return [worker for worker in self._staying if worker not in self._notified]

    @property
    def _staying(self) -> list[int]:
        """Workers that could leave, and have not."""
        return [one for one in sorted(self._present) if not self.server.is_silent(one)]

    def join(self, worker: int, fingerprint: int) -> int:
        """Add a worker; the last one starts the training. Return the version.

        Raises:
            RejectedError: the scenario has no such worker, or it trains another model.
        """
        self._check_number(worker)
        self._check_fingerprint(worker, fingerprint)
        self.server.join(worker)
        self._latest.pop(worker, None)
        self._removed.discard(worker)
        self._frozen.discard(worker)  # of the process before this one
        if worker not in self._present:
            self._present.add(worker)
            self._notified.discard(worker)
            self.log.write(Joined(f"w{worker}"))
        if len(self._present) == (self.first or self.workers) and not self.started.is_set():
            self.clock.start()
            self.log.write(Started())
            self.started.set()
            self.server.begin(self.clock.now)
            self.snapshots.want(self._training_state())
            self._carry_out(Effects())
        return self.server.version

    async def pull(self, worker: int, attempt: int = 0) -> bytes:
        """Return a ModelReply, once the training has started and the worker may continue.

        Raises:
            RejectedError: the worker has not joined.
            SupersededError: superseded by a newer call of the worker, or by its removal.
        """
        self._check_order(worker, (0, attempt))
        self._check_joined(worker)
        self._latest[worker] = (0, attempt)
        with self._calls.wait(worker, self.clock.steady()) as answer:
            await self.started.wait()
            await self._take_turn()
            self._check_order(worker, (0, attempt))
            self._catch_up()
            self._carry_out(self.server.pull(worker, self.clock.now))
            return await answer

    async def exchange(self, push: PushMessage) -> bytes:
        """Apply a push once; then as ``pull``.

        Raises:
            RejectedError: the push is invalid; nothing was applied.
            SupersededError: superseded by a newer call of the worker, or by its removal.
        """
        came, call = self.clock.steady(), (push.sequence, push.attempt)
        self._check_fingerprint(push.worker, push.fingerprint)
        self._check_order(push.worker, call)
        self.record_pause(f"w{push.worker}", push.gap_seconds)
        await self._take_turn()
        self._check_order(push.worker, call)
        self._catch_up()
        self.exchanged.check(push.shared)
        now = self.clock.now
        if self.keys is not None:
            push = self.keys.complete(push, missed=self.record.reply_bytes(push.worker))
        effects = self.server.push(push.worker, push.sequence, update=push.update, now=now)
        self._latest[push.worker] = call
        if self.keys is not None:
            self.keys.accepted(push)
        if effects.crashed:
            self.log.write(Crashed(f"w{push.worker}", push.sequence, now))
        if effects.accepted:
            self.record.accepted(push, push.timing)
            self.exchanged.keep(push.worker, push.shared)
        elif effects.lost:
            self.record.lost(push, effects.lost)
        else:
            self.record.ignored(push, late=bool(self.server.finished))
        with self._calls.wait(push.worker, came) as answer:
            self._carry_out(effects)
            return await answer

    def follow_orders(self, worker: int, after: int) -> AsyncIterator[bytes]:
        """Return the stream of a worker's orders newer than number ``after``.

        Raises:
            RejectedError: the worker has not joined.
        """
        self._check_joined(worker)
        return self._orders.follow(worker, after)

    def leave(self, worker: int, *, reason: str | None = None) -> None:
        """Remove a worker; ``reason`` is given if it did not leave by itself. Idempotent."""
        self._catch_up()
        effects = self.server.leave(worker, self.clock.now)
        self._orders.end(worker)
        self._frozen.discard(worker)
        self._calls.supersede(worker)
        self._latest.pop(worker, None)
        if worker in self._present:
            self._present.discard(worker)
            self.log.write(Left(f"w{worker}", reason))
        self._carry_out(effects)

    def remove(self, worker: int, reason: str) -> None:
        """Remove a worker whose process has died; its calls still under way become void.

        Raises:
            RejectedError: the scenario has no such worker.
        """
        self._check_number(worker)
        self._removed.add(worker)
        self.leave(worker, reason=reason)

    def silence(self, worker: int, *, silent: bool, thaws: bool = False) -> None:
        """Record that a worker's process is stopped or running again; the stop may be brief.

        One that a fault ``thaws`` never counts as silent.

        Raises:
            RejectedError: the scenario has no such worker.
        """
        self._check_number(worker)
        if silent:
            self._frozen.add(worker, self.clock.steady(), thaws=thaws)
        else:
            self._frozen.discard(worker)
            if self.server.is_silent(worker):
                self._carry_out(self.server.wake(worker, self.clock.now))
        self._rescheduled.set()

    def record_pause(self, node: str, seconds: float) -> None:
        """Record a node's longest pause (real seconds) since the last report."""
        self.record.largest_gap_seconds = max(self.record.largest_gap_seconds, seconds)
        if seconds >= LOGGED_GAP_SECONDS:
            self.log.write(Gap(node, seconds))

    async def snapshot(self, least_version: int, least_time: float) -> bytes:
        """Return a SnapshotReply, once both are reached or the training has ended."""
        answer = self.snapshots.ask(least_version, least_time)
        try:
            self.check_progress()
            self._plan_tick()
            return await answer
        finally:
            self.snapshots.withdraw(answer)

    def measured(self, measured: Measured, *, metrics: Mapping[str, float | None]) -> None:
        """Handle the evaluator's result for a snapshot."""
        if self.started.is_set():
            self._catch_up()
            self._carry_out(self.server.measured(measured, metrics=metrics, now=self.clock.now))

    async def keep_time(self) -> Never:
        """Call ``tick`` on schedule."""
        while True:
            self._rescheduled.clear()
            if not await wait(self._rescheduled, self._seconds_to_tick()):
                self.tick()

    def tick(self) -> None:
        """Handle all that is due: the algorithm's tick, the end, silent workers, due snapshots."""
        for worker in self._frozen.take_silent(self.clock.steady()):
            self.log.write(Silent(f"w{worker}"))
            self._carry_out(self.server.silence(worker, self.clock.now))
        if self.started.is_set():
            self._carry_out(self.server.tick(self.clock.now))

    def _catch_up(self) -> None:
        """Run a due tick before any later event, even if the event loop is late."""
        if self._tick_at <= self.clock.now:
            self.tick()

    def _seconds_to_tick(self) -> float | None:
        """Return the real seconds until the next tick; None if none is planned."""
        silent = self._frozen.next_silent - self.clock.steady()
        soonest = min(silent, self.clock.real(self._tick_at - self.clock.now))
        return None if soonest == inf else max(0.0, soonest)

    def _carry_out(self, effects: Effects) -> None:
        """Apply the effects of a call to the server."""
        self.record.enter_all(effects.applied)
        for worker in effects.removed:
            self.remove(worker, silence_reason(self.server.dead_after))
        self._deliver(effects.releases)
        for worker in effects.orders:
            self._orders.notify(worker)
        if effects.measure:
            self.snapshots.want(self._training_state())
        self.check_progress()
        self._plan_tick()

    def _plan_tick(self) -> None:
        """Schedule the next time at which the server or the evaluator needs a tick."""
        tick_at = self.server.next_tick(self.clock.now)
        if self.started.is_set():
            tick_at = min(tick_at, self.snapshots.next_time(self.server.version))
        if tick_at != self._tick_at:
            self._tick_at = tick_at
            self._rescheduled.set()

    def check_progress(self) -> None:
        """Check whether the training has ended, and whether a snapshot is due."""
        final = bool(self.server.finished)
        if final and not self.ended.is_set():
            self.record.spool.flush()
            self._end = self.clock.now
            for worker, since in self._frozen.since.items():  # they cannot report it themselves
                self.record_pause(f"w{worker}", self.clock.steady() - since)
            server = self.server
            self.log.write(Finished(server.finished, server.version, stalled=server.stalled))
            self._orders.end()
            self.ended.set()
        if final and not (self._staying if self.streamed else self.unnotified):
            self.drained.set()
        if self.snapshots.waiting and self.started.is_set():
            self.snapshots.answer_due(self._training_state())

    def _training_state(self) -> TrainingState:
        return TrainingState(
            self.server.version,
            time=self.clock.now if self._end is None else self._end,
            final=self._end is not None,
            model=Dense(self.server.half.parameters),
            payload_up_bytes=self.record.applied_bytes,
            clients=self.record.clients,
        )

    def _check_number(self, worker: int) -> None:
        if worker >= self.workers:
            raise RejectedError(f"worker {worker}: expected a number from 0 to {self.workers - 1}")

    def _check_joined(self, worker: int) -> None:
        if worker not in self._present:
            raise RejectedError(f"worker {worker} is unknown: it has not joined")

    def _check_fingerprint(self, worker: int, fingerprint: int) -> None:
        if fingerprint != self.fingerprint:
            raise RejectedError(
                f"worker {worker}: its model has fingerprint {fingerprint:016x}, expected "
                f"{self.fingerprint:016x}: names or shapes of its tensors differ"
            )

    def _check_order(self, worker: int, call: tuple[int, int]) -> None:
        """Refuse a call that arrives after its repetition or its worker's removal."""
        if worker in self._removed:
            raise SupersededError(f"worker {worker} was removed: its process has ended")
        if call < self._latest.get(worker, call):
            raise SupersededError(f"worker {worker} has made a newer call")

    async def _take_turn(self) -> None:
        """Wait in the queue for earlier requests; the end of training ends all waiting."""
        if not self.queue.service_seconds or self.ended.is_set():
            return
        served = self.queue.take(self.clock.now)
        await wait(self.ended, self.clock.real(served - self.clock.now))
        self.record.served(late=self.clock.now - served > self.queue.service_seconds)

    def _deliver(self, releases: Iterable[Release]) -> None:
        """Answer the calls with a reply to send; the model in it is lent only now.

        A reply to a worker without a connection is dropped: the worker will call again.
        """
        for release in releases:
            if (call := self._calls.take(release.worker)) is None:
                continue
            held = self.clock.emulated(self.clock.steady() - call.since)
            sent = release.reply if self.keys is None else self.keys.shorten(release)
            shared = self.exchanged.of(release.reply)
            reply = encode_delivery(Delivery(sent, self.clock.now, held, release.standing, shared))
            call.answer.set_result(reply.data)
            if release.reply is None:
                self._notified.add(release.worker)
            else:
                self.record.replied(release.worker, reply.payload_bytes)
