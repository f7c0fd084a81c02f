"""One process of the pool: computes its workers on request, and evaluates models."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Reply, Samples
from testbed.errors import TestbedError
from testbed.host import syscalls
from testbed.host.allocation import keep_freed_memory
from testbed.host.isolation import CLOSED
from testbed.models import Evaluation
from testbed.payloads import Vector
from testbed.simulation.messages import Answer, Begin, Restart, Result, Task, Unchanged, load
from testbed.simulation.worker import Cycle, Learner, Paused, SimulatedWorker
from testbed.values.state import PlainState
from testbed.values.user_code import own_failures

Rows = NDArray[np.float32]
Workers = Mapping[int, SimulatedWorker]
Build = Callable[[int, Vector], tuple[Workers, Learner]]
"""Builds the workers of one process, from its number and the vector to bind its network to."""

ControlRequest = Callable[[Workers, Learner, Vector], Any]
"""``evaluate``, ``save`` or ``restore``: sent alone, and its answer is sent alone too."""


@dataclass(frozen=True)
class ProcessWorkers:
    """The workers of one process, what they compute with, and the rows that messages refer to.

    Attributes:
        rows: of the memory shared by all processes; or those that came with messages.
        parameters: receives the model of an evaluation.
    """

    workers: Workers
    learner: Learner
    rows: Rows | Mapping[int, Vector]
    parameters: Vector

    def answer(self, request: Sequence[Task] | ControlRequest) -> Any:
        """Carry out tasks, and return their answers; or a control request, and return its."""
        process = os.getpid()
        if callable(request):
            answers = request(self.workers, self.learner, self.parameters)
        else:
            answers = []
            for task in request:
                with own_failures(f"w{task.worker}"):
                    answers.append(self._carry_out(task))
        if os.getpid() != process:  # a copy of the process that the user's code forked
            os._exit(0)
        return answers

    def _carry_out(self, task: Task) -> Answer:
        worker = self.workers[task.worker]
        reached: Cycle | Paused | None
        if isinstance(task, Restart):
            worker.restart()
            return Unchanged(task.worker)
        row = self.rows[task.row]
        if isinstance(task, Begin):
            worker.next_think, reply = task.think, load(Reply, task.reply, row)
            reached = worker.advance(
                reply,
                now=task.now,
                learner=self.learner,
                course=task.course,
                standing=task.standing,
            )
        else:
            reached = worker.resume(task.course, learner=self.learner)
        if isinstance(reached, Cycle):
            return Result.of(reached, row)
        return Unchanged(task.worker) if reached is None else reached


def serve(pipe: Connection, build: Build, number: int, rows: Rows, workers: int) -> None:
    """Run a process of the pool; it exits with its parent.

    An error is sent in place of an answer. Signals that stop the run, such as Ctrl-C, are handled
    by the parent, which then ends this process.
    """
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    keep_freed_memory()
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        try:
            _answer(pipe, build, number, rows, workers)
        except TestbedError as error:
            pipe.send_bytes(pickle.dumps(error))
            with suppress(EOFError):
                while True:  # the clock may send more before it reads the error
                    pipe.recv_bytes()
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        os._exit(CLOSED)


def _answer(pipe: Connection, build: Build, number: int, rows: Rows, workers: int) -> None:
    parameters, bound = rows[workers + 2 * number : workers + 2 * number + 2]
    with own_failures(f"w{number}"):
        its = ProcessWorkers(*build(number, bound), rows, parameters)
    gc.freeze()
    while True:
        try:
            request = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        pipe.send_bytes(pickle.dumps(its.answer(request)))


def evaluate(
    images: Samples | None, workers: Workers, learner: Learner, parameters: Vector
) -> Evaluation:
    """Evaluate the model in the process's last row, on these test images (all if None)."""
    with own_failures("evaluator"):
        return learner.evaluate(parameters, images)


def save(workers: Workers, learner: Learner, parameters: Vector) -> Mapping[int, PlainState]:
    """Return the states of all workers of the process."""
    saved = {}
    for number, worker in workers.items():
        with own_failures(f"w{number}"):
            saved[number] = worker.state()
    return saved


def restore(
    states: Mapping[int, PlainState], workers: Workers, learner: Learner, parameters: Vector
) -> None:
    """Restore workers from saved states, by number."""
    for number, state in states.items():
        with own_failures(f"w{number}"):
            workers[number].restore(state)
