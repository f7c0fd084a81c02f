"""A process of the pool as an actor on a node of a Ray cluster: it answers the same messages.

It shares no memory with the clock's process: what a message takes of each row that it refers to
travels with it, and that of the results with the answer.
"""

from __future__ import annotations

import gc
import pickle
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.datasets import Prepared
from testbed.errors import TestbedError
from testbed.host.allocation import keep_freed_memory
from testbed.payloads import Vector, zeros
from testbed.scenario.experiment import Experiment
from testbed.simulation.build import build
from testbed.simulation.messages import Answer, Begin, Restart, Result, Task, used
from testbed.simulation.process import ProcessWorkers, restore
from testbed.values.user_code import own_failures

EVALUATED = -2
"""The row with the model of an evaluation."""

SentRows = Mapping[int, Vector]
"""The beginnings of rows, as far as they are used."""


@dataclass(frozen=True)
class ActorRequest:
    """What an actor needs to build its workers, apart from the data set."""

    files: Mapping[str, bytes]  # of the run's folder: the scenario, and the user's own files
    number: int  # of the actor
    processes: int  # number of all actors
    size: int  # of a row, in float32 values


class Rows(dict[int, Vector]):
    """The rows that this actor's workers own at the moment."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._of_worker: dict[int, int] = {}
        self._free: list[Vector] = []

    def __missing__(self, row: int) -> Vector:
        """Add a row; that of a worker restored from a snapshot did not come with a message."""
        self[row] = self._free.pop() if self._free else zeros(self._size)
        return self[row]

    def receive(self, tasks: Sequence[Task], sent: SentRows) -> None:
        """Take the rows that came with tasks; forget those of restarted workers first."""
        for task in tasks:
            if isinstance(task, Restart):
                self.pop(self._of_worker.pop(task.worker, EVALUATED), None)
        for task in tasks:
            if isinstance(task, Begin):
                self._of_worker[task.worker] = task.row
                self[task.row][: sent[task.row].size] = sent[task.row]

    def results(self, tasks: Sequence[Task], answers: Sequence[Answer]) -> SentRows:
        """Return the rows of results, which are valid until the next message."""
        sent = {}
        for task, answer in zip(tasks, answers, strict=True):
            if isinstance(answer, Result) and not isinstance(task, Restart):
                self._free.append(self.pop(task.row))
                sent[task.row] = self._free[-1][: used(answer.stored)]
        return sent


class WorkerActor:
    """Computes a share of the workers; its methods return pickles, after an error of the error."""

    def build(self, request: ActorRequest, data: Prepared, snapshot: bytes) -> bytes:
        """Build the workers, restored from an answer to ``save`` if there is one.

        Returns:
            The name of this host.
        """
        keep_freed_memory()
        try:
            with tempfile.TemporaryDirectory(prefix="testbed-") as place:
                self._build(request, Path(place), data)
            if snapshot:
                states, _ = pickle.loads(snapshot)
                restore(states, self._its.workers, self._its.learner, self._its.parameters)
        except TestbedError as error:
            return pickle.dumps(error)
        gc.freeze()
        return pickle.dumps(socket.gethostname())

    def _build(self, request: ActorRequest, folder: Path, data: Prepared) -> None:
        for name, content in request.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        with own_failures(f"w{request.number}"):
            experiment = Experiment.open(folder, data=data)
            workers, learner = build(
                experiment, request.number, zeros(request.size), processes=request.processes
            )
            learner.metrics.start(experiment.data.classes)  # reads the files of the user's metrics
        self._rows = Rows(request.size)
        self._its = ProcessWorkers(workers, learner, self._rows, zeros(request.size))

    def answer(self, message: bytes) -> bytes:
        """Carry out a message of ``ActorChannel``."""
        request, sent = pickle.loads(message)
        try:
            if callable(request):
                for values in sent.values():
                    self._its.parameters[: values.size] = values
                return pickle.dumps((self._its.answer(request), {}))
            self._rows.receive(request, sent)
            answers = self._its.answer(request)
            return pickle.dumps((answers, self._rows.results(request, answers)), protocol=5)
        except TestbedError as error:
            return pickle.dumps(error)
