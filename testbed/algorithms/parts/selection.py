"""A server whose rounds have some of the workers: those chosen train, the others wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import Any, TypeVar

from testbed.algorithms.base import Applied, Reply, Ticked, Update
from testbed.algorithms.parts.federated import FederatedRounds, TrainingServer, scaled
from testbed.algorithms.parts.rounds import weighted
from testbed.algorithms.selection import History
from testbed.algorithms.selection.custom import chosen
from testbed.payloads import Vector

F = TypeVar("F", bound=FederatedRounds)


class SelectingServer(TrainingServer[F]):
    """Runs each round with chosen workers; weighs their updates by their samples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._history, self._selection = History(), dict[str, Any]()
        self._out: dict[int, tuple[int, float]] = {}  # workers that train: round and time of pull
        self._late: list[tuple[int, Update, int]] = []  # worker, scaled update, rounds it is late
        self._chosen: set[int] = set()
        self._needed, self._deadline, self._over = 0, inf, False
        self._begin(range(self.workers))

    def join(self, worker: int) -> None:
        """Add a worker to choose from."""
        super().join(worker)
        if not self._chosen and self.config.rounds.min_available == 1:  # all had left
            self._chosen, self._needed = {worker}, 1
        elif not self._chosen:
            self._begin(sorted(self._members))

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Stop waiting for the worker."""
        self._out.pop(worker, None)
        return super().leave(worker, now)

    def pull(self, worker: int, now: float) -> Reply:
        """Return the model; the round's time starts with its first reply."""
        self._out[worker] = self._rounds, now
        if self._deadline == inf:
            self._deadline = now + float(self.config.rounds.deadline or inf)
        return super().pull(worker, now)

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Process an update of this round, or a late one."""
        self.check(update)
        began, pulled = self._out.get(worker, (self._rounds, None))
        late = self._rounds - began
        self._out.pop(worker, None)
        seconds = None if pulled is None else now - pulled
        self._history.arrived(worker, update, seconds=seconds)
        if not late:
            return super().push(worker, update, now)
        self._late.append((worker, scaled(update, self.config.rounds.scale(late)), late))
        return self._close(now)

    def ready(self, worker: int) -> bool:
        """Return True if the worker is in the current round, or its last reply was lost."""
        return (worker in self._chosen or worker in self._out) and super().ready(worker)

    def awaited(self) -> Collection[int]:
        """Return the workers that the round waits for; none if it has enough."""
        if self._over or 0 < self._needed <= len(self._pushed):
            return set()
        return self._chosen & self._members - self._pushed.keys()

    def next_tick(self, now: float) -> float:
        """Return the round's deadline."""
        return now if self._absent else max(now, self._deadline)

    def tick(self, now: float) -> Ticked:
        """End the round; without an update, extend it and choose further workers."""
        if self._absent:
            self._begin(sorted(self._members))
            return Ticked()
        if self._pushed:
            self._over = True
            return Ticked(self._close(now))
        self._deadline = now + float(self.config.rounds.deadline or inf)
        self._begin(sorted(self._members), further=True)
        return Ticked()

    @property
    def _absent(self) -> bool:
        """Whether none of the workers chosen before the training began has joined."""
        return bool(self._chosen and self._members) and not self._chosen & self._members

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Σ n_k U_k / Σ n_k."""
        return weighted(round_, self.parameters.size)

    def _close(self, now: float) -> Sequence[Applied]:
        """Apply the round if it is complete, and choose the workers of the next."""
        if self.awaited():
            return ()
        applied = self._apply() if self._pushed else ()
        self._begin(sorted(self._members))
        return applied

    def _apply(self) -> Sequence[Applied]:
        """Apply the round's updates and the late ones, in the order of their workers."""
        entries = [*self._late, *((*one, 0) for one in self._pushed.items())]
        entries.sort(key=lambda entry: entry[0])
        scales = [self.config.rounds.scale(late) for _, _, late in entries]
        self.parameters -= self.mean([one[1] for one, s in zip(entries, scales, strict=True) if s])
        self._history.end(sorted(self._pushed))
        self._late, self._pushed = [], {}
        version, self.version = self.version, self.version + len(entries)
        self._rounds += 1
        return [
            Applied(
                worker,
                version + place,
                staleness=version - update.version,
                sigma_mean=float(late),
                sigma_max=late,
                step_scale=scale,
            )
            for place, ((worker, update, late), scale) in enumerate(
                zip(entries, scales, strict=True)
            )
        ]

    def _begin(self, members: Sequence[int], *, further: bool = False) -> None:
        """S_t: max(C K, 1) of K, and more with over-selection; or ``further`` ones, if any wait."""
        rules, history = self.config.rounds, self._history
        busy = self._out.keys() | (self._chosen if further else set())
        waiting = [worker for worker in members if worker not in busy]
        if not further:
            self._chosen, self._needed, self._deadline, self._over = set(), 0, inf, False
        if not waiting or (not further and len(waiting) < rules.min_available):
            return
        if not further:
            history.begin(members)
            self._needed = min(len(waiting), max(1, round(self.config.fraction * len(members))))
        count = min(len(waiting), rules.chosen(self._needed))
        found = chosen(self.config.select, waiting, count, history, self._selection, self.rng)
        history.choose(found)
        self._chosen |= set(found)
