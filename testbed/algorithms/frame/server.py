"""The server's loop: joins, pushes, releases and the stop rule, around an algorithm's server half.

Single-threaded and non-blocking: a call returns its Effects, and a worker that must wait is not
among the releases.

Training that diverges never recovers, so it ends: when the evaluator finds a loss that is not
finite, or when more than half of the workers have pushed values that are not. It also ends when no
worker can push any more: all have left, are silent, or wait for such a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any

from testbed.algorithms.base import NO_ORDERS, Applied, Measured, Orders, ServerHalf, Ticked, Update
from testbed.algorithms.frame.breach import breach, checked_applied, checked_orders, checked_reply
from testbed.algorithms.frame.effects import (
    NO_STANDING,
    NOTHING,
    Effects,
    Release,
    StandingOrders,
)
from testbed.algorithms.frame.stop import DIVERGED, StopRule, stall
from testbed.algorithms.frame.worker_session import NoCrashes, NotFiniteError, WorkerSession
from testbed.algorithms.parts.state import pack_half, restore_half
from testbed.errors import RejectedError
from testbed.values.state import PlainState, pack, put_back, unpack

SUCCESSION = 2**20
"""More than the number of orders to one worker between two checkpoints."""

_NONE = {"no standing": NO_STANDING}
"""Restored as the same object, since orders are compared by identity."""


@dataclass
class Server:
    """Keeps the order of pushes and passes each to the algorithm exactly once.

    Attributes:
        crashes: decides for every accepted push whether its worker crashes with it: the push
            counts, its reply is never released, and the algorithm is not notified.
        dead_after: seconds without a message until a worker is removed; see WorkerSession.since.
        to_come: workers that planned faults will make join, one entry for each time.
        returning: workers that rejoin whenever they have left, by their recording.
        finished: why training ended; empty while it is running.
        stalled: whether it ended because no worker could push any more.
        steps: training steps in the model.
    """

    half: ServerHalf[Any]
    stop: StopRule
    crashes: Callable[[int], bool] = field(default_factory=NoCrashes)
    dead_after: float = inf
    to_come: list[int] = field(default_factory=list)
    returning: set[int] = field(default_factory=set)
    finished: str = ""
    stalled: bool = False
    steps: int = 0
    _begun: bool = field(default=False, init=False)
    _sessions: dict[int, WorkerSession] = field(default_factory=dict, init=False)
    _waiting: dict[int, None] = field(default_factory=dict, init=False)  # in order of asking
    _pending: dict[int, list[int]] = field(default_factory=dict, init=False)  # see _account
    _named: float = field(default=inf, init=False)  # the half's last requested tick
    _measuring: float | None = field(default=None, init=False)  # when a loss was requested
    _diverged: set[int] = field(default_factory=set, init=False)  # workers with non-finite pushes
    _unheard: set[int] = field(default_factory=set, init=False)  # since the last server died
    _counted: int = field(default=0, init=False)  # applied updates, to compare the version with

    def __post_init__(self) -> None:
        self._counted = self.half.version

    @property
    def sends_orders(self) -> bool:
        """Whether orders may be sent to workers between replies."""
        return bool(self.half.config.SENDS_ORDERS)

    @property
    def version(self) -> int:
        """Number of updates in the model."""
        return self.half.version

    def state(self) -> PlainState:
        """Pack the half, the sessions and the waiting workers; raises as ``pack_half`` does."""
        own = {name: getattr(self, name) for name in _OWN}  # all that changes
        return pack({"half": pack_half(self.half), "own": own}, _NONE)

    def restore(self, packed: PlainState) -> None:
        """Continue from the state of another server of the same scenario.

        Raises:
            DataError: the state belongs to another scenario.
        """
        whole = unpack(packed, _NONE)
        restore_half(self.half, whole["half"])
        put_back(self, whole["own"], _OWN)
        self._counted = self.half.version

    def take_over(self) -> None:
        """Take over from the server that saved the restored state; its later work is lost.

        Workers may have pushed to it, and pulled models that this server never had. Their orders
        are numbered far above all numbers that they may have received.
        """
        self._unheard = set(self._sessions)
        self._measuring = None  # a pending measurement answers the old server
        for session in self._sessions.values():
            number = session.standing.number + SUCCESSION
            session.standing = replace(session.standing, number=number)

    def begin(self, now: float) -> None:
        """Begin training, once all workers have joined."""
        self._begun = True
        self._check_tick(now)

    def join(self, worker: int) -> None:
        """Add a worker; one that rejoins keeps its session."""
        if self._begun and worker not in self._sessions and worker in self.to_come:
            self.to_come.remove(worker)
        self._sessions.setdefault(worker, WorkerSession(worker))
        self.half.join(worker)

    def leave(self, worker: int, now: float) -> Effects:
        """Remove a worker. Its pushes are in the model, or will be unless training ends."""
        self._watch_clock(now)
        there = worker in self._sessions
        return self._effects(now, Effects(applied=self._drop(worker, now))) if there else NOTHING

    def silence(self, worker: int, now: float) -> Effects:
        """Mark a worker as silent without notifying the algorithm: it may be frozen.

        It gets no reply, and the end of training does not wait for it.
        """
        if worker in self._sessions:
            self._sessions[worker].silent = True
        return self._effects(now)

    def wake(self, worker: int, now: float) -> Effects:
        """Mark a silent worker as active again."""
        if worker in self._sessions:
            self._sessions[worker].heard()
        return self._effects(now)

    def standing(self, worker: int) -> StandingOrders:
        """Return a worker's current orders."""
        return self._sessions[worker].standing if worker in self._sessions else NO_STANDING

    def is_silent(self, worker: int) -> bool:
        """Whether a worker is silent."""
        return worker in self._sessions and self._sessions[worker].silent

    def pull(self, worker: int, now: float) -> Effects:
        """Handle a worker's request for the model without a push."""
        self._session(worker).heard()
        self._watch_clock(now)
        self._waiting[worker] = None
        return self._effects(now)

    def check(self, worker: int, sequence: int, update: Update) -> None:
        """Refuse an update that must not be applied. Changes nothing.

        Raises:
            RejectedError: the worker is unknown, or as in WorkerSession. After training has ended,
                payloads are not checked, as nothing is applied any more.
        """
        session = self._session(worker)
        session.check_order(sequence, update, version=self.version)
        if sequence != session.sequence and not self.finished:
            session.check_payload(update, size=self.half.parameters.size)

    def push(self, worker: int, sequence: int, *, update: Update, now: float) -> Effects:
        """Handle an update and return the effects.

        A repeated sequence number, or any push after the end, is not accepted.

        Raises:
            RejectedError: see ``check``; nothing was accepted.
            AlgorithmError: the algorithm broke its contract.
        """
        if lost := self._lost(worker, sequence, update):
            self._session(worker).lost(sequence)
            self.half.join(worker)  # its model is not one that this half sent
            self._watch_clock(now)
            self._waiting[worker] = None
            return self._effects(now, Effects(lost=lost))
        try:
            self.check(worker, sequence, update)
        except NotFiniteError:
            self._watch_divergence(worker)
            if not self.finished:
                raise
        self._watch_clock(now)
        session = self._session(worker)
        applied: Sequence[Applied] = ()
        accepted = not self.finished and sequence == session.sequence + 1
        if accepted:
            applied = checked_applied(self.half, self.half.push(worker, update, now))
            session.sequence, session.pulled = sequence, None
            if update.steps:
                self._pending.setdefault(worker, []).append(update.steps)
            if update.steps and self.crashes(worker):
                session.crashed, session.since = True, now
                self.to_come = [one for one in self.to_come if one != worker]
                self.returning.discard(worker)
        session.heard()
        self._waiting[worker] = None
        crashed = accepted and session.crashed
        return self._effects(now, Effects(accepted, crashed, applied=applied))

    def _lost(self, worker: int, sequence: int, update: Update) -> int:
        """Return how many pushes of a worker were lost with the previous server.

        The worker's first push here is lost too, unless it is its only one since the checkpoint and
        builds on a model from before it.
        """
        if worker not in self._unheard:
            return 0
        self._unheard.discard(worker)
        session = self._session(worker)
        goes_on = sequence == session.sequence + 1 and update.version == session.pulled
        return 0 if goes_on else max(0, sequence - session.sequence)

    def next_tick(self, now: float) -> float:
        """Return when to call ``tick``; infinite for never."""
        if self.finished or not self._begun:
            return inf
        end = inf if self.stop.time is None else self.stop.time
        heard = [inf] if self.dead_after == inf else [one.since for one in self._sessions.values()]
        return min(self.half.next_tick(now), end, min(heard, default=inf) + self.dead_after)

    def tick(self, now: float) -> Effects:
        """Handle the time that ``next_tick`` returned."""
        self._watch_clock(now)
        ticked = Ticked()
        if not self.finished and self.half.next_tick(now) <= now:
            ticked = self.half.tick(now)
            if not self.half.next_tick(now) > now:
                wanted = f"its next tick is at {self.half.next_tick(now)}, expected after {now}"
                raise breach(self.half, "next_tick", wanted)
        orders = {worker: self._order(worker, new, now) for worker, new in ticked.orders.items()}
        if orders and not self.sends_orders:
            unannounced = "it sends orders between replies, but its config lacks SENDS_ORDERS"
            raise breach(self.half, "tick", unannounced)
        removed = self._dead(now)
        applied = ticked.applied
        for worker in removed:
            applied = [*applied, *self._drop(worker, now)]
        return self._effects(now, Effects(applied=applied, orders=orders, removed=removed))

    def _dead(self, now: float) -> tuple[int, ...]:
        """Return the workers that sent nothing for too long."""
        if self.finished or self.dead_after == inf:
            return ()
        return tuple(
            w for w, session in self._sessions.items() if session.since + self.dead_after <= now
        )

    def _drop(self, worker: int, now: float) -> Sequence[Applied]:
        """Remove a worker; return the updates that this applies.

        After the end the half is not notified, or it would apply a round that waits for the worker.
        """
        del self._sessions[worker]
        self._waiting.pop(worker, None)
        return () if self.finished else self.half.leave(worker, now)

    def measured(
        self, measured: Measured, *, metrics: Mapping[str, float | None], now: float
    ) -> Effects:
        """Handle the evaluator's result for a model, with the values of its metrics by name."""
        self._watch_clock(now)
        self.finished = self.finished or self.stop.by_evaluation(measured, metrics)
        if not self.finished:
            self.half.measured(measured)
        if self._measuring is not None and measured.time >= self._measuring:
            self._measuring = None
        return self._effects(now)

    def _effects(self, now: float, call: Effects = NOTHING) -> Effects:
        """Apply the stop rule, check progress and return all effects of a call."""
        if call.applied or self.version != self._counted:
            self._account(call.applied)
        if not self.finished:
            self.finished = self.stop.by_progress(self.version, self.steps)
            self._check_tick(now)
        releases = self._releases(now)
        if not self.finished and self._is_stalled(now):
            waiting = [worker for worker in self._waiting if not self._sessions[worker].silent]
            silent = sum(session.silent for session in self._sessions.values())
            self.finished = stall(len(waiting), self.half.awaited(), silent=silent)
            self.stalled = True
            releases += self._releases(now)
        orders = {} if self.finished else call.orders
        return replace(call, releases=releases, orders=orders, measure=self._measures(now))

    def _measures(self, now: float) -> bool:
        """Whether the algorithm requests the loss of the current model, with no request pending."""
        if self.finished or self._measuring is not None or not self.half.wants_loss():
            return False
        self._measuring = now
        return True

    def _account(self, applied: Sequence[Applied]) -> None:
        """Check that every update is applied once, the oldest pending of its worker first.

        The version rises with each, or a training that ends at a version would not end.
        """
        self._counted += len(applied)
        if self.version != self._counted:
            found = f"its version is {self.version} after {self._counted} applied updates"
            raise breach(self.half, "push", found)
        for place, one in enumerate(applied):
            pending = self._pending.get(one.worker)
            if not pending:
                twice = f"it applied an update of w{one.worker} that is not pending"
                raise breach(self.half, "push", twice)
            steps = pending.pop(0)
            self.steps += steps if one.step_scale else 0  # else dropped, for being late
            version = self.version - len(applied) + place
            if one.version != version:
                other = f"it applied an update at version {one.version}, expected {version}"
                raise breach(self.half, "push", other)

    def _check_tick(self, now: float) -> None:
        """Check the half's next tick: it may be late, but must not be requested for the past."""
        at = self.half.next_tick(now)
        if not at >= now and at != self._named:
            past = f"its next tick is at {at}, expected {now} or later"
            raise breach(self.half, "next_tick", past)
        self._named = at

    def _is_stalled(self, now: float) -> bool:
        """Whether no possible event lets a worker push again."""
        if not self._begun or self.to_come or not self.returning <= self._sessions.keys():
            return False
        sessions = self._sessions.items()  # usually the first is not waiting
        if any(not session.silent and worker not in self._waiting for worker, session in sessions):
            return False
        removals = self.dead_after < inf and any(one.since < inf for one in self._sessions.values())
        hopes = removals or self.half.next_tick(now) < inf or self.half.wants_loss()
        return not (hopes and any(not session.silent for _, session in sessions))

    def _order(self, worker: int, new: Orders, now: float) -> StandingOrders:
        """Merge new orders for a worker; return its current orders."""
        if new is NO_ORDERS:
            return self._sessions[worker].standing
        if worker not in self._sessions:
            raise breach(self.half, "tick", f"it sends orders to w{worker}, which is absent")
        return self._sessions[worker].order(checked_orders(self.half, new), now)

    def _watch_clock(self, now: float) -> None:
        self.finished = self.finished or self.stop.by_time(now)

    def _watch_divergence(self, worker: int) -> None:
        """Count workers with non-finite gradients: one may have bad data, but not the majority."""
        self._diverged.add(worker)
        refused, workers = len(self._diverged), len(self._diverged | self._sessions.keys())
        if 2 * refused > workers and not self.finished:
            self.finished = (
                f"{DIVERGED}: pushes of {refused} of {workers} workers are NaN or infinite at "
                f"version {self.version}"
            )

    def _session(self, worker: int) -> WorkerSession:
        try:
            return self._sessions[worker]
        except KeyError:
            raise RejectedError(f"worker {worker} is unknown: it has not joined") from None

    def _releases(self, now: float) -> list[Release]:
        """Return all replies that may be sent now, built before any further push is handled."""
        heard = [worker for worker in self._waiting if not self._sessions[worker].silent]
        if self.finished:
            released = [Release(worker, None) for worker in heard]
        else:
            released = [self._reply(worker, now) for worker in heard if self.half.ready(worker)]
        for release in released:
            del self._waiting[release.worker]
        return released

    def _reply(self, worker: int, now: float) -> Release:
        reply = checked_reply(self.half, self.half.pull(worker, now))
        self._sessions[worker].pulled, self._sessions[worker].since = reply.version, now
        return Release(worker, reply, self._order(worker, reply.orders, now))


_OWN = [one.name for one in fields(Server) if one.name not in ("half", "stop", "_counted")]
