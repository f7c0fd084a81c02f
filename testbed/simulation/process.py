"""One process of the pool: computes its workers on request, and evaluates models."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Reply, Samples
from testbed.algorithms.frame.compute import Gradient
from testbed.errors import TestbedError, unforeseen
from testbed.host import syscalls
from testbed.host.allocation import keep_freed_memory
from testbed.host.isolation import CLOSED
from testbed.models import Evaluation
from testbed.payloads import Vector
from testbed.simulation.learner import Asked, Learner
from testbed.simulation.messages import Answer, Begin, Restart, Result, Task, Unchanged, load
from testbed.simulation.worker import Cycle, Paused, Progress, SimulatedWorker
from testbed.values.state import PlainState
from testbed.values.user_code import own_failures

Rows = NDArray[np.float32]
Workers = Mapping[int, SimulatedWorker]
Build = Callable[[int, Vector], tuple[Workers, Learner]]
"""Builds the workers of one process, from its number and the vector to bind its network to."""

ControlRequest = Callable[[Workers, Learner, Vector], Any]
"""A request such as ``evaluate`` or ``save``: sent alone, and its answer is sent alone too."""


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
            answers = self._carry_out(request)
        if os.getpid() != process:  # a copy of the process that the user's code forked
            os._exit(0)
        return answers

    def _carry_out(self, tasks: Sequence[Task]) -> list[Answer]:
        """Carry out tasks in their order; those whose gradients are computed at once, together."""
        answers: list[Answer] = []
        for some in _of_different_workers(tasks, at_most=self.learner.compute.together):
            begun: list[Progress | None] = []
            for task in some:
                with own_failures(f"w{task.worker}"):
                    begun.append(self._begin(task))
            for task, reached in zip(some, self._advance(some, begun), strict=True):
                if reached is None or isinstance(task, Restart):
                    answers.append(Unchanged(task.worker))
                elif isinstance(reached, Cycle):
                    answers.append(Result.of(reached, self.rows[task.row]))
                else:
                    answers.append(reached)
        return answers

    def _begin(self, task: Task) -> Progress | None:
        """Begin a task; return None if it is done."""
        worker = self.workers[task.worker]
        if isinstance(task, Restart):
            worker.restart(task.now)
            return None
        if not isinstance(task, Begin):
            return worker.resume(task.course, learner=self.learner)
        worker.next_think, reply = task.think, load(Reply, task.reply, self.rows[task.row])
        return worker.advance(
            reply,
            now=task.now,
            learner=self.learner,
            course=task.course,
            standing=task.standing,
        )

    def _advance(
        self, tasks: Sequence[Task], begun: Sequence[Progress | None]
    ) -> list[Cycle | Paused | None]:
        """Return what each worker reaches, given the gradients that it asks for; else None."""
        reached: list[Cycle | Paused | None] = [None] * len(tasks)
        waiting = {place: one for place, one in enumerate(begun) if one is not None}
        gradients = dict[int, Gradient]()
        while waiting:
            asked = dict[int, Asked]()
            for place, progress in waiting.items():
                given = gradients.get(place)
                with own_failures(f"w{tasks[place].worker}"):
                    try:
                        asked[place] = next(progress) if given is None else progress.send(given)
                    except StopIteration as ended:
                        reached[place] = ended.value
            waiting = {place: waiting[place] for place in asked}
            if asked:
                with own_failures(f"w{tasks[min(asked)].worker}"):
                    found = self.learner.gradients_at_once([*asked.values()])
                gradients = dict(zip(asked, found, strict=True))
        return reached


def _of_different_workers(tasks: Sequence[Task], *, at_most: int) -> Iterator[list[Task]]:
    """Split tasks into portions of at most this many, each for different workers."""
    some: list[Task] = []
    for task in tasks:
        if len(some) == at_most or task.worker in {one.worker for one in some}:
            yield some
            some = []
        some.append(task)
    yield some


def serve(pipe: Connection, build: Build, number: int, rows: Rows, workers: int) -> None:
    """Run a process of the pool; it exits with its parent.

    An error is sent in place of an answer. Signals that stop the run, such as Ctrl-C, are handled
    by the parent, which then ends this process.
    """
    become_pool_process()
    try:
        try:
            _answer(pipe, build, number, rows, workers)
        except TestbedError as error:
            _report(pipe, error)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - a user's code may cause any
            _report(pipe, unforeseen(error))
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        os._exit(CLOSED)


def become_pool_process() -> None:
    """Prepare a process that was forked to compute; from now on, it exits with its parent."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    keep_freed_memory()
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _report(pipe: Connection, error: TestbedError) -> None:
    pipe.send_bytes(pickle.dumps(error))
    with suppress(EOFError):
        while True:  # the clock may send more before it reads the error
            pipe.recv_bytes()


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


def one_by_one(workers: Workers, learner: Learner, parameters: Vector) -> str:
    """Return why gradients are computed one by one though the scenario asks for several."""
    return learner.compute.one_by_one


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
