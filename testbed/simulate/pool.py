"""Processes that compute the simulated workers' gradients, in parallel over the cores.

The virtual clock's process hands out replies as they arrive and asks for what a worker pushes when
the push is due; in between, whatever has been handed out is computed. A worker always belongs to
the same process, and what it computes depends on its replies only, so the number of processes and
the host's load change nothing but the real time it takes.

Models and updates travel through rows of shared memory. A row holds the model that a worker was
lent, then what the worker made of it, and is free once that has been taken out; the row freed last
is lent first, as it is the likeliest to be in a cache.

What a process is sent, it is sent a few orders at a time where it has others to compute until they
are there, and it answers them together. So the clock is woken once for several updates, and finds
its own memory in the caches for all but the first of them. At most ``IN_FLIGHT`` orders are sent
ahead, so that neither side ever blocks on a full pipe while the other does.
"""

from __future__ import annotations

import gc
import mmap
import multiprocessing
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Reply
from testbed.compress.payload import Dense, Vector
from testbed.errors import NodeError
from testbed.models import Evaluation
from testbed.simulate.device import Cycle, Device, Laboratory
from testbed.simulate.messages import (
    Examine,
    Loan,
    Order,
    Result,
    orders_bytes,
    orders_of,
    pack,
    results_bytes,
    results_of,
    unpack,
)

IN_FLIGHT = 64
BATCH = 16
"""At most so many orders are sent at once, and answered at once."""

LINE = 16
"""Numbers of four bytes in a cache line: a row begins with one."""

Rows = NDArray[np.float32]


@dataclass
class Member:
    """One process of the pool."""

    process: ForkProcess
    pipe: Connection
    batch: int
    queue: deque[Order] = field(default_factory=deque)
    in_flight: int = 0

    def add(self, order: Order) -> None:
        """Send an order, with others where the process has enough to do until they are there."""
        self.queue.append(order)
        if self.in_flight == 0 or len(self.queue) >= self.batch:
            self.send()

    def send(self) -> None:
        """Send what is waiting, as far as it may be sent ahead."""
        while self.queue and self.in_flight < IN_FLIGHT:
            orders = [self.queue.popleft() for _ in range(min(self.batch, len(self.queue)))]
            self.pipe.send_bytes(orders_bytes(orders))
            self.in_flight += len(orders)

    def examine(self, images: NDArray[np.int64] | None) -> None:
        """Let it evaluate the model in its row, after what it was sent."""
        self.pipe.send_bytes(orders_bytes(Examine(images)))
        self.in_flight += 1

    def receive(self) -> Sequence[Result] | Evaluation:
        """The next results; waits for them.

        Raises:
            NodeError: the process has ended.
        """
        self.send()
        try:
            data = self.pipe.recv_bytes()
        except EOFError:
            raise NodeError(
                f"a process of the simulation (pid {self.process.pid}) ended unexpectedly.",
                hint="Its last words are above; was it out of memory?",
            ) from None
        results = results_of(data)
        self.in_flight -= 1 if isinstance(results, Evaluation) else len(results)
        return results


Furnish = Callable[[int, Vector], tuple[Mapping[int, Device], Laboratory]]
"""Builds the devices of one process: its number and where its network is to be bound are given."""


class Pool:
    """The processes.

    Args:
        furnish: called in every process once it has started.
        workers: how many there are in all; worker w belongs to process w modulo ``processes``.
        size: parameters of the model.
        processes: how many.
    """

    def __init__(self, furnish: Furnish, *, workers: int, size: int, processes: int) -> None:
        width = -(-size // LINE) * LINE
        count = workers + 2 * processes
        shared = mmap.mmap(-1, count * width * 4)
        self._rows: Rows = np.frombuffer(shared, np.float32).reshape(count, width)[:, :size]
        self._free = list(range(workers - 1, -1, -1))  # the last is lent first
        self._loans: dict[int, Loan] = {}
        self._cycles: dict[int, Cycle] = {}
        self._in_rows: dict[int, Result] = {}
        self._evaluations: deque[Evaluation] = deque()
        self._workers = workers
        self._frozen = not gc.get_freeze_count()  # else somebody has seen to it, for longer than we
        gc.collect()
        gc.freeze()  # what is there stays: collecting garbage need not look at it, nor copy it
        context = multiprocessing.get_context("fork")
        batch = min(BATCH, 1 + workers // (8 * processes))
        self._members: list[Member] = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs, furnish, number, self._rows, workers), daemon=True
            )
            process.start()
            theirs.close()
            self._members.append(Member(process, ours, batch))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            member.process.kill()
            member.process.join()
            member.pipe.close()
        if self._frozen:
            gc.unfreeze()

    def lend(self, worker: int, reply: Reply) -> None:
        """Take a reply over; its dense model is copied, before the server changes it."""
        row, part = self._free.pop(), None
        if isinstance(reply.model, Dense):
            self._rows[row] = reply.model.values
        else:
            part = reply.model
        self._loans[worker] = Loan(row, reply.version, reply.orders, part)

    def begin(self, worker: int, *, now: float, think: float) -> None:
        """The reply that was lent has arrived: compute what the worker does with it."""
        member = self._members[worker % len(self._members)]
        member.add(Order(worker, now, think, self._loans[worker]))

    def finish(self, worker: int) -> Cycle:
        """What the worker did; waits for it."""
        member = self._members[worker % len(self._members)]
        while worker not in self._cycles and worker not in self._in_rows:
            self._receive(member)
        result = self._in_rows.pop(worker, None)
        return self._cycles.pop(worker) if result is None else self._taken_out(result)

    def examine(self, parameters: Vector, *, images: NDArray[np.int64] | None) -> Evaluation:
        """Evaluate a model on some test images (indices), or on all; waits for it."""
        member = min(self._members, key=lambda one: one.in_flight + len(one.queue))
        self._rows[self._workers + 2 * self._members.index(member)] = parameters
        member.examine(images)
        while not self._evaluations:
            self._receive(member)
        return self._evaluations.popleft()

    def _receive(self, member: Member) -> None:
        """Take results in. Sparse updates leave their rows now, dense ones when they are due."""
        results = member.receive()
        if isinstance(results, Evaluation):
            self._evaluations.append(results)
            return
        for result in results:
            if result.fills_row:
                self._in_rows[result.worker] = result
            else:
                self._cycles[result.worker] = self._taken_out(result)

    def _taken_out(self, result: Result) -> Cycle:
        """What a result says, out of its row, which is free from then on."""
        row = self._loans.pop(result.worker).row
        self._free.append(row)
        return unpack(result, self._rows[row])


def _serve(pipe: Connection, furnish: Furnish, number: int, rows: Rows, workers: int) -> None:
    """The life of a process of the pool."""
    examined, bound = rows[workers + 2 * number : workers + 2 * number + 2]
    devices, laboratory = furnish(number, bound)
    gc.freeze()
    while True:
        try:
            orders = orders_of(pipe.recv_bytes())
        except EOFError:
            return
        if isinstance(orders, Examine):
            pipe.send_bytes(results_bytes(laboratory.evaluate(examined, orders.images)))
            continue
        results = []
        for order in orders:
            device = devices[order.worker]
            device.next_think = order.think
            row, version, asked, part = order.loan
            model = Dense(rows[row]) if part is None else part
            reply = Reply(model, version, asked)
            cycle = device.advance(reply, now=order.now, laboratory=laboratory)
            results.append(pack(cycle, rows[row]))
        pipe.send_bytes(results_bytes(results))
