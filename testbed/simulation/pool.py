"""Processes that compute the simulated workers' gradients in parallel on all cores.

The virtual clock's process hands out replies on arrival, and collects a worker's push when the push
is due; the pool processes compute in between. A worker always belongs to the same process, and its
results depend only on its replies, so the number of processes and the host's load affect only the
real time.

Models and updates are transferred through rows of shared memory. A row holds the model lent to a
worker, then the worker's update, and is free once the update has been taken out; the row freed last
is lent first, as it is most likely still in a cache.

While a process has other work, it is sent a few tasks at a time, and answers them together. So the
clock wakes up once for several updates, and finds its own memory in the caches for all but the
first. The two sides never block on full pipes at the same time: a process that may be writing is
sent no more than its pipe holds.
"""

from __future__ import annotations

import gc
import mmap
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Reply
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.host.allocation import heap_frozen
from testbed.models import Evaluation
from testbed.payloads import VALUE_BYTES, Vector
from testbed.payloads.base import CACHE_LINE_BYTES
from testbed.simulation.channels import PoolProcess, Start
from testbed.simulation.messages import (
    Begin,
    Restart,
    Result,
    Resume,
    Stored,
    Task,
    Unchanged,
    load,
    store,
)
from testbed.simulation.process import (
    ControlRequest,
    Rows,
    evaluate,
    one_by_one,
    restore,
    save,
)
from testbed.simulation.worker import TO_THE_END, Course, Cycle, Paused
from testbed.values.state import PlainState, fitting, pack, put_back, unpack

BATCH = 16
"""Maximum number of tasks in one message to a process, which answers them in one message."""

LINE = CACHE_LINE_BYTES // VALUE_BYTES
"""float32 values per cache line. Every row of the shared memory starts at a cache line."""


class Loan(NamedTuple):
    """A reply lent to a worker, and the row that the worker owns until its push is taken out."""

    row: int
    reply: Stored
    standing: StandingOrders


class Pool:
    """The processes, each of which is started with its number.

    Worker w belongs to process w modulo ``processes``. A row of the shared memory holds ``size``
    float32 values. A process computes up to ``together`` gradients at once.
    """

    def __init__(
        self, start: Start, *, workers: int, size: int, processes: int, together: int = 1
    ) -> None:
        width = -(-size // LINE) * LINE
        count = workers + 2 * processes
        shared = mmap.mmap(-1, count * width * VALUE_BYTES)
        self._rows: Rows = np.frombuffer(shared, np.float32).reshape(count, width)[:, :size]
        self._free = list(range(workers - 1, -1, -1))  # the last is lent first
        self._loans: dict[int, Loan] = {}
        self._latest: dict[int, Cycle | Paused | Result] = {}  # a Result is still in its row
        self._asked: Counter[int] = Counter()  # unanswered tasks per worker
        self._answered: list[Any] = []
        self._workers = workers
        self._cleanup = ExitStack()
        gc.collect()
        self._cleanup.enter_context(heap_frozen())  # the collector need not scan or copy it
        batch = max(together, min(BATCH, 1 + workers // (8 * processes)))
        self._members = [
            PoolProcess(start(number, self._rows), batch) for number in range(processes)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.channel.close()
        self._cleanup.close()

    def lend(self, worker: int, reply: Reply, standing: StandingOrders = NO_STANDING) -> None:
        """Store a reply for a worker; copies its payload, as the server will change it."""
        row = self._free.pop()
        self._loans[worker] = Loan(row, store(reply, self._rows[row]), standing)

    def begin(self, worker: int, now: float, *, think: float, course: Course = TO_THE_END) -> None:
        """Start computing from the lent reply, which has arrived at the worker."""
        self._add(Begin(worker, now, think, *self._loans[worker], course))

    def resume(self, worker: int, course: Course) -> None:
        """Continue up to a new horizon, with the orders that came in between."""
        loan = self._loans.get(worker)  # None once its push was taken out: then it is not paused
        row = -1 if loan is None else loan.row
        self._add(Resume(worker, row, course))

    def discard(self, worker: int, now: float) -> None:
        """Restart a worker whose process ended at ``now``, and free its row."""
        member = self._members[worker % len(self._members)]
        while self._asked[worker]:
            self._receive(member)
        self._latest.pop(worker, None)
        loan = self._loans.pop(worker, None)
        if loan is not None:
            self._free.append(loan.row)
        self._add(Restart(worker, now))

    def finish(self, worker: int) -> Cycle | Paused:
        """Wait for a worker's result, or its pause at the horizon, and return it."""
        member = self._members[worker % len(self._members)]
        while self._asked[worker]:
            self._receive(member)
        latest = self._latest.pop(worker)
        return self._take_result(latest) if isinstance(latest, Result) else latest

    def _add(self, task: Task) -> None:
        self._asked[task.worker] += 1
        self._members[task.worker % len(self._members)].add(task)

    def evaluate(self, parameters: Vector, *, images: NDArray[np.int64] | None) -> Evaluation:
        """Evaluate a model on some test images (indices), or on all, and wait for the result."""
        member = min(self._members, key=lambda one: one.load)
        self._rows[self._workers + 2 * self._members.index(member), : parameters.size] = parameters
        member.ask(partial(evaluate, images))
        while not self._answered:
            self._receive(member)
        evaluation: Evaluation = self._answered.pop()
        return evaluation

    def one_by_one(self) -> str:
        """Return why gradients are computed one by one; empty if the scenario asks for that."""
        why: str = self._ask_all([one_by_one] * len(self._members))[0]
        return why

    def state(self) -> PlainState:
        """Return the state of all workers, including replies and results in transit; blocks.

        Each worker is first computed to its next push or its horizon, as it would be anyway.
        """
        saved = self._ask_all([save] * len(self._members))
        for worker, latest in self._latest.items():
            if isinstance(latest, Result):
                self._latest[worker] = self._take_result(latest)
        lent = {
            worker: (load(Reply, loan.reply, self._rows[loan.row]), loan.standing)
            for worker, loan in self._loans.items()
        }
        workers = {worker: state for one in saved for worker, state in one.items()}
        return pack({"lent": lent, "latest": self._latest, "workers": workers})

    def restore(self, packed: PlainState) -> None:
        """Restore the state of another pool, which may have had a different number of processes.

        Raises:
            DataError: this is another scenario's state.
        """
        whole = unpack(packed)
        with fitting():
            workers, count = whole["workers"], len(self._members)
            if workers.keys() != set(range(self._workers)):
                raise ValueError(f"states of {len(workers)} workers, expected {self._workers}")
            parts: list[dict[int, PlainState]] = [{} for _ in self._members]
            for worker, state in workers.items():
                parts[worker % count][worker] = state
            self._ask_all([partial(restore, part) for part in parts])
            for worker, (reply, standing) in whole["lent"].items():
                self.lend(worker, reply, standing)
            put_back(self, {"_latest": whole["latest"]}, ["_latest"])

    def _ask_all(self, requests: Sequence[ControlRequest]) -> list[Any]:
        """Send one control request to every process, and wait until everything is answered."""
        for member, request in zip(self._members, requests, strict=True):
            while member.load:
                self._receive(member)
            member.ask(request)
            self._receive(member)
        answers, self._answered = self._answered, []
        return answers

    def _receive(self, member: PoolProcess) -> None:
        """Receive answers. Small updates are copied out of their rows now, large ones when due."""
        answers = member.receive()
        if not isinstance(answers, list):
            self._answered.append(answers)
            return
        for answer in answers:
            self._asked[answer.worker] -= 1
            if isinstance(answer, Result) and not answer.fills(self._rows[0]):
                self._latest[answer.worker] = self._take_result(answer)
            elif not isinstance(answer, Unchanged):
                self._latest[answer.worker] = answer

    def _take_result(self, result: Result) -> Cycle:
        """Copy a result out of its row and free the row."""
        row = self._loans.pop(result.worker).row
        self._free.append(row)
        return result.cycle(self._rows[row])
