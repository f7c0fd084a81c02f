"""Processes that compute the simulated workers' gradients, in parallel over the cores.

The virtual clock's process hands out replies as they arrive and asks for what a worker pushes when
the push is due; in between, whatever has been handed out is computed. A worker always belongs to
the same process, and what it computes depends on its replies only, so the number of processes and
the host's load change nothing but the real time it takes.

Models and updates travel through shared memory, one row per worker, which first holds the model and
then what the worker makes of it. A process is sent at most ``IN_FLIGHT`` orders ahead, so that
neither side ever blocks on a full pipe while the other does.
"""

from __future__ import annotations

import gc
import mmap
import multiprocessing
from collections import deque
from collections.abc import Callable, Mapping
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
from testbed.simulate.messages import Examine, Order, Result, pack, unpack

IN_FLIGHT = 64

Rows = NDArray[np.float32]


@dataclass
class Member:
    """One process of the pool."""

    process: ForkProcess
    pipe: Connection
    queue: deque[Order | Examine] = field(default_factory=deque)
    in_flight: int = 0
    results: dict[int, Result] = field(default_factory=dict)
    evaluations: deque[Evaluation] = field(default_factory=deque)

    def feed(self) -> None:
        """Send what is waiting, as far as it may be sent ahead."""
        while self.queue and self.in_flight < IN_FLIGHT:
            self.pipe.send(self.queue.popleft())
            self.in_flight += 1

    def receive(self) -> None:
        """Take one result in.

        Raises:
            NodeError: the process has ended.
        """
        try:
            result = self.pipe.recv()
        except EOFError:
            raise NodeError(
                f"a process of the simulation (pid {self.process.pid}) ended unexpectedly.",
                hint="Its last words are above; was it out of memory?",
            ) from None
        self.in_flight -= 1
        self.feed()
        if isinstance(result, Result):
            self.results[result.worker] = result
        else:
            self.evaluations.append(result)


Furnish = Callable[[int, Vector], tuple[Mapping[int, Device], Laboratory]]
"""Builds the devices of one process: its number and its row for evaluations are given."""


class Pool:
    """The processes.

    Args:
        furnish: called in every process once it has started.
        workers: how many there are in all; worker w belongs to process w modulo ``processes``.
        size: parameters of the model.
        processes: how many.
    """

    def __init__(self, furnish: Furnish, *, workers: int, size: int, processes: int) -> None:
        shared = mmap.mmap(-1, (workers + processes) * size * 4)
        self._rows: Rows = np.frombuffer(shared, np.float32).reshape(workers + processes, size)
        self._workers = workers
        gc.collect()
        gc.freeze()  # what is there stays: collecting garbage need not look at it, nor copy it
        context = multiprocessing.get_context("fork")
        self._members: list[Member] = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            row = self._rows[workers + number]
            process = context.Process(
                target=_serve, args=(theirs, furnish, number, self._rows, row), daemon=True
            )
            process.start()
            theirs.close()
            self._members.append(Member(process, ours))

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
        gc.unfreeze()

    def lend(self, worker: int, reply: Reply) -> None:
        """Copy a reply's dense model into the worker's row, before the server changes it."""
        if isinstance(reply.model, Dense):
            self._rows[worker] = reply.model.values

    def begin(self, worker: int, reply: Reply, *, now: float, think: float) -> None:
        """The reply that was lent has arrived: compute what the worker does with it."""
        part = None if isinstance(reply.model, Dense) else reply.model
        member = self._members[worker % len(self._members)]
        member.queue.append(Order(worker, now, think, reply.version, reply.orders, part))
        member.feed()

    def finish(self, worker: int) -> Cycle:
        """What the worker did; waits for it."""
        member = self._members[worker % len(self._members)]
        while worker not in member.results:
            member.receive()
        return unpack(member.results.pop(worker), self._rows[worker])

    def examine(self, parameters: Vector, *, images: NDArray[np.int64] | None) -> Evaluation:
        """Evaluate a model on some test images (indices), or on all; waits for it."""
        member = min(self._members, key=lambda one: one.in_flight + len(one.queue))
        self._rows[self._workers + self._members.index(member)] = parameters
        member.queue.appendleft(Examine(images))
        member.feed()
        while not member.evaluations:
            member.receive()
        return member.evaluations.popleft()


def _serve(pipe: Connection, furnish: Furnish, number: int, rows: Rows, row: Vector) -> None:
    """The life of a process of the pool."""
    devices, laboratory = furnish(number, row)
    gc.freeze()
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            return
        if isinstance(order, Examine):
            data = laboratory.data
            chosen = slice(None) if order.images is None else order.images
            laboratory.parameters[:] = row
            images, labels = data.test_images[chosen], data.test_labels[chosen]
            pipe.send(laboratory.bound.evaluate(images, labels))
            continue
        device = devices[order.worker]
        device.next_think = order.think
        model = Dense(rows[order.worker]) if order.part is None else order.part
        reply = Reply(model, order.version, order.orders)
        cycle = device.advance(reply, now=order.now, laboratory=laboratory)
        pipe.send(pack(cycle, rows[order.worker]))
