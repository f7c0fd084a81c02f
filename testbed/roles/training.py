"""The training as its participants see it: joins, waits, pushes, and how it ends.

Around ``frame.Server``, which decides everything, stand the calls that wait for its replies, the
clock, and the record. One event loop runs all of it, so between two awaits nothing else happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from testbed.errors import RejectedError, TestbedError
from testbed.frame.server import Release, Server
from testbed.frame.turns import Turns
from testbed.roles.clock import Clock
from testbed.roles.journal import Journal
from testbed.roles.record import Record
from testbed.roles.snapshots import Moment, Snapshots
from testbed.rpc.codec import encode_delivery
from testbed.rpc.messages import Delivery, Push
from testbed.rpc.service import SupersededError

TICK_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class _Waiting:
    answer: asyncio.Future[bytes]
    since: float  # steady


class Training:
    """The one thing that talks to ``frame.Server``.

    Attributes:
        ended: set when training has ended.
        drained: set when, after that, every worker that has not left was told so.

    Args:
        server: the frame's loop.
        turns: the queue of requests in front of it.
        workers: how many must join before the training starts.
        fingerprint: of the model's layout.
        clock: started when all have joined.
        journal: the events.
        record: of what becomes of pushes.
        snapshots: looked after whenever the model has changed.
    """

    def __init__(
        self,
        server: Server,
        *,
        turns: Turns,
        workers: int,
        fingerprint: int,
        clock: Clock,
        journal: Journal,
        record: Record,
        snapshots: Snapshots,
    ) -> None:
        self.ended = asyncio.Event()
        self.drained = asyncio.Event()
        self._server = server
        self._turns = turns
        self._workers = workers
        self._fingerprint = fingerprint
        self._clock = clock
        self._journal = journal
        self._record = record
        self._snapshots = snapshots
        self._started = asyncio.Event()
        self._end: float | None = None  # when the training ended, emulated
        self._present: set[int] = set()  # joined and not left
        self._removed: set[int] = set()  # and not joined again
        self._told: set[int] = set()  # of the end
        self._waiting: dict[int, _Waiting] = {}
        self._latest: dict[int, tuple[int, int]] = {}  # sequence and attempt of the newest call

    @property
    def version(self) -> int:
        """Updates applied so far."""
        return self._server.version

    @property
    def started(self) -> bool:
        """Whether all workers have joined."""
        return self._started.is_set()

    @property
    def untold(self) -> list[int]:
        """Workers that have not left and do not know that the training has ended."""
        return sorted(self._present - self._told)

    def node(self, worker: int) -> str | None:
        """A worker's name; None if the scenario has no such worker."""
        return f"w{worker}" if worker < self._workers else None

    def join(self, worker: int, fingerprint: int) -> int:
        """A worker takes part; the last one starts the training. Returns the version.

        Raises:
            RejectedError: the scenario has no such worker, or it trains another model.
        """
        self._check_number(worker)
        self._check_fingerprint(worker, fingerprint)
        self._server.join(worker)
        self._latest.pop(worker, None)
        self._removed.discard(worker)
        if worker not in self._present:
            self._present.add(worker)
            self._told.discard(worker)
            self._journal.write("joined", node=self.node(worker))
        if len(self._present) == self._workers and not self._started.is_set():
            self._clock.start()
            self._journal.write("started")
            self._started.set()
            self._snapshots.begin(self._moment())
            self.look()
        return self.version

    async def pull(self, worker: int, attempt: int = 0) -> bytes:
        """A ModelReply, as soon as the training has started and the worker may go on.

        Raises:
            RejectedError: the worker has not joined.
            SupersededError: a newer call of the worker's has overtaken this one, or its removal.
        """
        self._check_order(worker, (0, attempt))
        if worker not in self._present:
            raise RejectedError(f"worker {worker} is unknown: it has not joined")
        self._latest[worker] = (0, attempt)
        with self._wait(worker) as answer:
            await self._started.wait()
            await self._take_turn()
            self._check_order(worker, (0, attempt))
            self._deliver(self._server.pull(worker, self._clock.now))
            return await answer

    async def exchange(self, push: Push) -> bytes:
        """Apply a push, once; then as ``pull``.

        Raises:
            RejectedError: the push does not fit; nothing was applied.
            SupersededError: a newer call of the worker's has overtaken this one, or its removal.
        """
        came, call = self._clock.steady(), (push.sequence, push.attempt)
        self._check_fingerprint(push.worker, push.fingerprint)
        self._check_order(push.worker, call)
        await self._take_turn()
        self._check_order(push.worker, call)
        applied, releases = self._server.push(
            push.worker, push.sequence, update=push.update, now=self._clock.now
        )
        self._latest[push.worker] = call
        if applied is None:
            self._record.ignored(push, late=bool(self._server.finished))
        else:
            self._record.applied(push, applied)
        with self._wait(push.worker, since=came) as answer:
            self._deliver(releases)
            self.look()
            return await answer

    def leave(self, worker: int, *, reason: str | None = None) -> None:
        """A worker takes no part any more. Leaving twice is harmless.

        Args:
            worker: which.
            reason: why, of one that did not say so itself.
        """
        releases = self._server.leave(worker, self._clock.now)
        self._supersede(worker)
        self._latest.pop(worker, None)
        if worker in self._present:
            self._present.discard(worker)
            self._journal.write("left", node=self.node(worker), reason=reason)
        self._deliver(releases)
        self.look()

    def remove(self, worker: int, reason: str) -> None:
        """A worker's process has ended without a word, for this reason: it leaves.

        What of its calls is still on its way changes nothing, until it joins again.

        Raises:
            RejectedError: the scenario has no such worker.
        """
        self._check_number(worker)
        self._removed.add(worker)
        self.leave(worker, reason=reason)

    def tick(self, *, loss: float | None = None, accuracy: float | None = None) -> None:
        """Time has passed, or the evaluator has measured."""
        if not self._started.is_set():
            return
        orders, releases = self._server.tick(self._clock.now, loss=loss, accuracy=accuracy)
        if orders:
            raise TestbedError("this algorithm sends orders between replies, which has no way yet")
        self._deliver(releases)
        self.look()

    def seconds_to_tick(self) -> float:
        """Real seconds until the next ``tick`` is wanted."""
        end = self._server.stop.time
        if end is None or not self._started.is_set() or self.ended.is_set():
            return TICK_SECONDS
        return max(0.0, min(TICK_SECONDS, self._clock.real(end - self._clock.now)))

    def look(self) -> None:
        """See whether the training has ended, and whether somebody wants a snapshot."""
        final = bool(self._server.finished)
        if final and not self.ended.is_set():
            self._record.spool.flush()
            self._end = self._clock.now
            self._journal.write("finished", reason=self._server.finished, version=self.version)
            self.ended.set()
        if final and not self.untold:
            self.drained.set()
        if not self._snapshots.waiting or not self._started.is_set():
            return
        if self._snapshots.due(self.version, self._clock.now, final=final):
            self._snapshots.look(self._moment())

    def _moment(self) -> Moment:
        return Moment(
            self.version,
            time=self._clock.now if self._end is None else self._end,
            final=self._end is not None,
            payload_up_bytes=self._record.tally.applied_bytes,
            parameters=self._server.half.parameters,
        )

    def _check_number(self, worker: int) -> None:
        if worker >= self._workers:
            raise RejectedError(f"worker {worker}: the scenario has {self._workers}, from 0 on")

    def _check_fingerprint(self, worker: int, fingerprint: int) -> None:
        if fingerprint != self._fingerprint:
            raise RejectedError(
                f"worker {worker}: its model has fingerprint {fingerprint:016x}, expected "
                f"{self._fingerprint:016x}: names or shapes of its tensors differ"
            )

    def _check_order(self, worker: int, call: tuple[int, int]) -> None:
        """A call may arrive after its repetition or its sender's end, and must change nothing."""
        if worker in self._removed:
            raise SupersededError(f"worker {worker} was removed: its process has ended")
        if call < self._latest.get(worker, call):
            raise SupersededError(f"worker {worker} has made a newer call")

    async def _take_turn(self) -> None:
        """Be served after those that came before; the end of the training ends all waiting."""
        if not self._turns.service_seconds or self.ended.is_set():
            return
        served = self._turns.take(self._clock.now)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._clock.real(served - self._clock.now)):
                await self.ended.wait()
        self._record.served(late=self._clock.now - served > self._turns.service_seconds)

    @contextmanager
    def _wait(self, worker: int, *, since: float | None = None) -> Iterator[asyncio.Future[bytes]]:
        """The answer to a worker's call, which takes the place of an older one that still waits.

        Args:
            worker: who called.
            since: when, on the steady clock; now by default.
        """
        self._supersede(worker)
        began = self._clock.steady() if since is None else since
        waiting = _Waiting(asyncio.get_running_loop().create_future(), began)
        self._waiting[worker] = waiting
        try:
            yield waiting.answer
        finally:
            if self._waiting.get(worker) is waiting:
                del self._waiting[worker]

    def _supersede(self, worker: int) -> None:
        older = self._waiting.pop(worker, None)
        if older is not None and not older.answer.done():
            older.answer.set_exception(SupersededError(f"worker {worker} has called again or left"))
            older.answer.exception()  # seen, even if nobody waits for the answer any more

    def _deliver(self, releases: Iterable[Release]) -> None:
        """Answer the calls whose replies may go out; the model in them is lent only now.

        A reply for a worker whose connection is lost goes nowhere: it will call again.
        """
        for release in releases:
            waiting = self._waiting.pop(release.worker, None)
            if waiting is None or waiting.answer.done():
                continue
            held = self._clock.emulated(self._clock.steady() - waiting.since)
            reply = encode_delivery(Delivery(release.reply, time=self._clock.now, blocked=held))
            waiting.answer.set_result(reply.data)
            if release.reply is None:
                self._told.add(release.worker)
            else:
                self._record.replied(release.worker, reply.payload_bytes)
