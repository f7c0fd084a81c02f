"""The training as its participants see it: joins, waits, pushes, and how it ends.

Around ``frame.Server``, which decides everything, stand the calls that wait for its replies, the
clock, and the record. One event loop runs all of it, so between two awaits nothing else happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Never

from testbed.algorithms.base import Measured
from testbed.errors import RejectedError
from testbed.events.kinds import Crashed, Finished, Gap, Joined, Left, Silent, Started
from testbed.frame.effects import Effects, Release
from testbed.frame.server import Server
from testbed.frame.service_queue import ServiceQueue
from testbed.frame.stop import unheard
from testbed.roles.calls import WaitingCalls
from testbed.roles.clock import EmulatedClock, wait
from testbed.roles.heartbeat import TOLD_SECONDS
from testbed.roles.keys import ServerKeys
from testbed.roles.orders import OrderStreams
from testbed.roles.parts import parts_of
from testbed.roles.record import Record
from testbed.roles.snapshots import Moment, Snapshots
from testbed.rpc.codec import encode_delivery
from testbed.rpc.messages import Delivery, PushMessage
from testbed.rpc.service import SupersededError
from testbed.rpc.shared import Exchanged
from testbed.telemetry.events import EventLog
from testbed.values.state import PlainState, fitting, pack, put_back, unpack

SILENT_SECONDS = 10.0
"""A worker that has stopped for so long (real) counts as silent; it may only have been paused."""


@dataclass(kw_only=True, eq=False)
class Training:
    """The one thing that talks to ``frame.Server``.

    Attributes:
        queue: of the requests in front of the server.
        workers: how many the scenario has.
        exchanged: the samples that workers share with one another.
        keys: what the workers know of core keys, where the algorithm sends them.
        first: how many must join before the training starts; 0 for all.
        fingerprint: of the model's layout.
        clock: started when all have joined.
        started: set when all workers have joined.
        ended: set when training has ended.
        drained: set when, after that, every worker that has not left was told so.
    """

    server: Server
    queue: ServiceQueue
    workers: int
    fingerprint: int
    clock: EmulatedClock
    log: EventLog
    record: Record
    snapshots: Snapshots = field(default_factory=Snapshots)
    first: int = 0
    exchanged: Exchanged = field(default_factory=lambda: Exchanged(0))
    keys: ServerKeys | None = None

    def __post_init__(self) -> None:
        self.started = asyncio.Event()
        self.ended, self.drained = asyncio.Event(), asyncio.Event()
        self._end: float | None = None  # when the training ended, emulated
        self._present: set[int] = set()  # joined and not left
        self._removed: set[int] = set()  # and not joined again
        self._told: set[int] = set()  # of the end
        self._calls = WaitingCalls()
        self._latest: dict[int, tuple[int, int]] = {}  # sequence and attempt of the newest call
        self._orders = OrderStreams(self.server)
        self._stopped: dict[int, float] = {}  # workers whose process stands, and since when, steady
        self._standing: dict[int, float] = {}  # likewise, those that count as silent too
        self._tick_at = inf  # emulated
        self._rescheduled = asyncio.Event()

    def state(self) -> PlainState:
        """All that a training after this one needs to go on, but the streams of calls."""
        parts = parts_of(self).items()
        kept = {name: {one: vars(part)[one] for one in names} for name, (part, names) in parts}
        return pack({"server": self.server.state(), **kept})

    def restore(self, packed: PlainState) -> None:
        """Continue where a training was whose process has died; time has passed meanwhile.

        Raises:
            DataError: this is another scenario's state.
        """
        whole = unpack(packed)
        with fitting():
            self.server.restore(whole["server"])
            for name, (part, names) in parts_of(self).items():
                put_back(part, whole[name], names)
        self.server.succeed()
        self.snapshots.succeed()
        self.started.set()

    @property
    def waiting(self) -> int:
        """Calls that wait for their reply."""
        return len(self._calls)

    @property
    def untold(self) -> list[int]:
        """Workers that could be told that the training has ended, and were not."""
        left = self._present - self._told
        return sorted(worker for worker in left if not self.server.is_silent(worker))

    def join(self, worker: int, fingerprint: int) -> int:
        """A worker takes part; the last one starts the training. Returns the version.

        Raises:
            RejectedError: the scenario has no such worker, or it trains another model.
        """
        self._check_number(worker)
        self._check_fingerprint(worker, fingerprint)
        self.server.join(worker)
        self._latest.pop(worker, None)
        self._removed.discard(worker)
        if worker not in self._present:
            self._present.add(worker)
            self._told.discard(worker)
            self.log.write(Joined(f"w{worker}"))
        if len(self._present) == (self.first or self.workers) and not self.started.is_set():
            self.clock.start()
            self.log.write(Started())
            self.started.set()
            self.server.begin(self.clock.now)
            self.snapshots.want(self._moment())
            self._carry_out(Effects())
        return self.server.version

    async def pull(self, worker: int, attempt: int = 0) -> bytes:
        """A ModelReply, as soon as the training has started and the worker may go on.

        Raises:
            RejectedError: the worker has not joined.
            SupersededError: a newer call of the worker's has overtaken this one, or its removal.
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
        """Apply a push, once; then as ``pull``.

        Raises:
            RejectedError: the push does not fit; nothing was applied.
            SupersededError: a newer call of the worker's has overtaken this one, or its removal.
        """
        came, call = self.clock.steady(), (push.sequence, push.attempt)
        self._check_fingerprint(push.worker, push.fingerprint)
        self._check_order(push.worker, call)
        self.stood_still(f"w{push.worker}", push.gap_seconds)
        await self._take_turn()
        self._check_order(push.worker, call)
        self._catch_up()
        self.exchanged.check(push.shared)
        now = self.clock.now
        if self.keys is not None:
            push = self.keys.complete(push, missed=self.record.updates.reply_bytes(push.worker))
        effects = self.server.push(push.worker, push.sequence, update=push.update, now=now)
        self._latest[push.worker] = call
        if self.keys is not None:
            self.keys.accepted(push)
        if effects.crashed:
            self.log.write(Crashed(f"w{push.worker}", push.sequence, now))
        if effects.accepted:
            self.record.accepted(push)
            self.exchanged.keep(push.worker, push.shared)
        elif effects.lost:
            self.record.lost(push, effects.lost)
        else:
            self.record.ignored(push, late=bool(self.server.finished))
        with self._calls.wait(push.worker, came) as answer:
            self._carry_out(effects)
            return await answer

    def follow_orders(self, worker: int, after: int) -> AsyncIterator[bytes]:
        """A worker's orders, whenever they are newer than those numbered ``after``.

        Raises:
            RejectedError: the worker has not joined.
        """
        self._check_joined(worker)
        return self._orders.follow(worker, after)

    def leave(self, worker: int, *, reason: str | None = None) -> None:
        """A worker takes no part any more, for a reason if it did not say so. Twice is harmless."""
        self._catch_up()
        effects = self.server.leave(worker, self.clock.now)
        self._orders.end(worker)
        self._stopped.pop(worker, None)
        self._standing.pop(worker, None)
        self._calls.supersede(worker)
        self._latest.pop(worker, None)
        if worker in self._present:
            self._present.discard(worker)
            self.log.write(Left(f"w{worker}", reason))
        self._carry_out(effects)

    def remove(self, worker: int, reason: str) -> None:
        """A worker's process has ended without a word: what of its calls is on its way is void.

        Raises:
            RejectedError: the scenario has no such worker.
        """
        self._check_number(worker)
        self._removed.add(worker)
        self.leave(worker, reason=reason)

    def silence(self, worker: int, *, silent: bool) -> None:
        """A worker's process stands still, or goes on; it may only be paused for a moment.

        Raises:
            RejectedError: the scenario has no such worker.
        """
        self._check_number(worker)
        if silent:
            now = self.clock.steady()
            self._stopped.setdefault(worker, now)
            self._standing.setdefault(worker, now)
        else:
            self._stopped.pop(worker, None)
            self._standing.pop(worker, None)
            self._carry_out(self.server.wake(worker, self.clock.now))
        self._rescheduled.set()

    def stood_still(self, node: str, seconds: float) -> None:
        """A node's own time stood still for so long (real) at most since this was last said."""
        self.record.largest_gap_seconds = max(self.record.largest_gap_seconds, seconds)
        if seconds >= TOLD_SECONDS:
            self.log.write(Gap(node, seconds))

    async def snapshot(self, least_version: int, least_time: float) -> bytes:
        """A SnapshotReply, once both are reached or the training has ended."""
        answer = self.snapshots.ask(least_version, least_time)
        try:
            self.look()
            self._plan_tick()
            return await answer
        finally:
            self.snapshots.withdraw(answer)

    def measured(self, measured: Measured, *, accuracy: float | None) -> None:
        """The evaluator has measured a snapshot; None where it has no accuracy."""
        if self.started.is_set():
            self._catch_up()
            self._carry_out(self.server.measured(measured, accuracy=accuracy, now=self.clock.now))

    async def keep_time(self) -> Never:
        """Call ``tick`` whenever it is due."""
        while True:
            self._rescheduled.clear()
            if not await wait(self._rescheduled, self._seconds_to_tick()):
                self.tick()

    def tick(self) -> None:
        """What is due by now: the algorithm's tick, the end, silent workers, snapshots by time."""
        since = self.clock.steady() - SILENT_SECONDS
        for worker in [one for one, began in self._stopped.items() if began <= since]:
            del self._stopped[worker]
            self.log.write(Silent(f"w{worker}"))
            self._carry_out(self.server.silence(worker, self.clock.now))
        if self.started.is_set():
            self._carry_out(self.server.tick(self.clock.now))

    def _catch_up(self) -> None:
        """A tick comes before whatever comes later, also where the event loop is late with it."""
        if self._tick_at <= self.clock.now:
            self.tick()

    def _seconds_to_tick(self) -> float | None:
        """Real seconds until then; None if nothing is planned."""
        silent = min(self._stopped.values(), default=inf) + SILENT_SECONDS - self.clock.steady()
        soonest = min(silent, self.clock.real(self._tick_at - self.clock.now))
        return None if soonest == inf else max(0.0, soonest)

    def _carry_out(self, effects: Effects) -> None:
        """Do what a call to the server has led to."""
        self.record.applied(effects.applied)
        for worker in effects.removed:
            self.remove(worker, unheard(self.server.dead_after))
        self._deliver(effects.releases)
        for worker in effects.orders:
            self._orders.tell(worker)
        if effects.measure:
            self.snapshots.want(self._moment())
        self.look()
        self._plan_tick()

    def _plan_tick(self) -> None:
        """Set when the server or the evaluator wants something though nothing has happened."""
        tick_at = self.server.next_tick(self.clock.now)
        if self.started.is_set():
            tick_at = min(tick_at, self.snapshots.next_time(self.server.version))
        if tick_at != self._tick_at:
            self._tick_at = tick_at
            self._rescheduled.set()

    def look(self) -> None:
        """See whether the training has ended, and whether somebody wants a snapshot."""
        final = bool(self.server.finished)
        if final and not self.ended.is_set():
            self.record.spool.flush()
            self._end = self.clock.now
            for worker, since in self._standing.items():  # they will not say so themselves
                self.stood_still(f"w{worker}", self.clock.steady() - since)
            server = self.server
            self.log.write(Finished(server.finished, server.version, stalled=server.stalled))
            self._orders.end()
            self.ended.set()
        if final and not self.untold:
            self.drained.set()
        if not self.snapshots.waiting or not self.started.is_set():
            return
        if self.snapshots.due(self.server.version, self.clock.now, final=final):
            self.snapshots.look(self._moment())

    def _moment(self) -> Moment:
        return Moment(
            self.server.version,
            time=self.clock.now if self._end is None else self._end,
            final=self._end is not None,
            payload_up_bytes=self.record.updates.applied_bytes,
            parameters=self.server.half.parameters,
        )

    def _check_number(self, worker: int) -> None:
        if worker >= self.workers:
            raise RejectedError(f"worker {worker}: the scenario has {self.workers}, from 0 on")

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
        """A call may arrive after its repetition or its sender's end, and must change nothing."""
        if worker in self._removed:
            raise SupersededError(f"worker {worker} was removed: its process has ended")
        if call < self._latest.get(worker, call):
            raise SupersededError(f"worker {worker} has made a newer call")

    async def _take_turn(self) -> None:
        """Be served after those that came before; the end of the training ends all waiting."""
        if not self.queue.service_seconds or self.ended.is_set():
            return
        served = self.queue.take(self.clock.now)
        await wait(self.ended, self.clock.real(served - self.clock.now))
        self.record.served(late=self.clock.now - served > self.queue.service_seconds)

    def _deliver(self, releases: Iterable[Release]) -> None:
        """Answer the calls whose replies may go out; the model in them is lent only now.

        A reply for a worker whose connection is lost goes nowhere: it will call again.
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
                self._told.add(release.worker)
            else:
                self.record.updates.replied(release.worker, reply.payload_bytes)
