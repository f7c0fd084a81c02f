"""A process of the pool on another node of a Ray cluster: it answers the same messages.

An actor of Ray's forks it, as one that has imported everything can do for all processes of its
node. It shares no memory with the clock's process: what a message takes of each row that it refers
to travels with it, and that of the results with the answer. They take a connection of their own, as
a call of Ray's per message would cost more than a small gradient.
"""

from __future__ import annotations

import gc
import hmac
import multiprocessing
import os
import pickle
import socket
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from testbed.datasets import Prepared
from testbed.errors import HostError, TestbedError
from testbed.payloads import Vector, zeros
from testbed.runtimes.ray_cluster import lacks
from testbed.scenario.experiment import Experiment
from testbed.simulation.build import build
from testbed.simulation.messages import Answer, Begin, Restart, Result, Task, used
from testbed.simulation.process import ProcessWorkers, become_pool_process, restore
from testbed.simulation.wire import Message, Peer
from testbed.values.user_code import own_failures

USED = ("torch", __name__)
"""What an actor imports before it forks."""

FORKS = multiprocessing.get_context("fork")

MOST_SAID = 4096
"""Characters of an error: a pipe that is not read yet has room for them."""

KEY_BYTES = 32
KEY_SECONDS = 10.0  # within which a peer says the key

EVALUATED = -2
"""The row with the model of an evaluation."""


@dataclass(frozen=True)
class ActorRequest:
    """What an actor needs to build its workers, apart from the data set."""

    files: Mapping[str, bytes]  # of the run's folder: the scenario, and the user's own files
    number: int  # of the actor
    processes: int  # number of all actors
    size: int  # of a row, in float32 values
    releases: Mapping[str, str]  # see ``releases``
    key: bytes  # said first by a peer that may send messages


@dataclass(frozen=True)
class Seat:
    """Where an actor's process listens."""

    host: str  # its name
    address: tuple[str, int]


@dataclass(frozen=True)
class Ended:
    """How an actor's process has ended, other than by an error of ours."""

    how: str
    failed: bool = False  # by an exception: another process would not do better


class Rows(dict[int, Vector]):
    """The rows that this actor's workers own at the moment."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._of_worker: dict[int, int] = {}
        self._free: list[Vector] = []

    def __missing__(self, row: int) -> Vector:
        """Add a row; that of a worker restored from a snapshot did not come with a message."""
        self[row] = self.room()
        return self[row]

    def room(self) -> Vector:
        """Return a row that is not in use."""
        return self._free.pop() if self._free else zeros(self._size)

    def take(self, tasks: Sequence[Task], sent: Mapping[int, Vector]) -> None:
        """Take the rows that came with tasks; forget those of restarted workers first."""
        for task in tasks:
            if isinstance(task, Restart):
                self._release(self._of_worker.pop(task.worker, EVALUATED))
        for task in tasks:
            if isinstance(task, Begin):
                self._of_worker[task.worker] = task.row
                if task.row in sent:
                    self._release(task.row)
                    self[task.row] = sent[task.row]

    def results(self, tasks: Sequence[Task], answers: Sequence[Answer]) -> dict[int, Vector]:
        """Return what results take of their rows, which are valid until there is room in them."""
        sent = {}
        for task, answer in zip(tasks, answers, strict=True):
            if isinstance(answer, Result) and not isinstance(task, Restart):
                row = self[task.row]
                self._release(task.row)
                sent[task.row] = row[: used(answer.stored)]
        return sent

    def _release(self, row: int) -> None:
        if (owned := self.pop(row, None)) is not None:
            self._free.append(owned)


def compute(request: ActorRequest, data: Prepared, snapshot: bytes) -> Iterator[bytes]:
    """Fork the process that computes a share of the workers, and wait until it has ended.

    Yields:
        Pickles: of a Seat, or of the error for which there is none; then of an Ended.
    """
    import ray

    if lacking := lacks(request.releases):  # the node may have joined just now
        yield pickle.dumps(HostError(f"{socket.gethostname()}: {lacking}."))
        return
    for module in USED:  # another thread of this actor may not have finished with them
        import_module(module)
    host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    yield from in_fork(host, request, data, snapshot)


def in_fork(host: str, *built_from: Any) -> Iterator[bytes]:
    """Fork a process that listens at an address of this host; see ``compute``."""
    ours, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_work, args=(theirs, host, *built_from), daemon=True)
    process.start()
    theirs.close()
    assert process.pid is not None, "it was started"
    ended = os.pidfd_open(process.pid)
    with ours:
        wait([ours, ended])
        yield from _waiting(ours)
        process.join()
        os.close(ended)
        yield from _waiting(ours)
    status = process.exitcode or 0
    how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
    yield pickle.dumps(Ended(f"its process {how}"))


def _waiting(pipe: Connection) -> Iterator[bytes]:
    """Yield what a process has sent."""
    with suppress(EOFError):
        while pipe.poll():
            yield pipe.recv_bytes()


def _work(pipe: Connection, host: str, *built_from: Any) -> None:
    """Run the forked process. Nothing of Ray's is used or released in it: its threads are gone."""
    gc.freeze()
    become_pool_process()
    try:
        actor = WorkerActor(host)
        pipe.send_bytes(actor.build(*built_from))
        if actor.listens:
            actor.serve()
    except Exception as error:
        said = "".join(traceback.format_exception_only(error)).strip()
        pipe.send_bytes(pickle.dumps(Ended(said[-MOST_SAID:], failed=True)))
        raise


class WorkerActor:
    """Computes a share of the workers, and listens at an address of this host."""

    listens = False

    def __init__(self, host: str) -> None:
        self._host = host

    def build(self, request: ActorRequest, data: Prepared, snapshot: bytes) -> bytes:
        """Build the workers, restored from an answer to ``save`` if there is one, and listen.

        Returns:
            The pickle of a Seat, or of an error.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="testbed-") as place:
                self._build(request, Path(place), data)
            if snapshot:
                states = pickle.loads(snapshot)
                restore(states, self._its.workers, self._its.learner, self._its.parameters)
        except TestbedError as error:
            return pickle.dumps(error)
        gc.freeze()
        self._key = request.key
        self._server = socket.create_server((self._host, 0))
        self.listens = True
        return pickle.dumps(Seat(socket.gethostname(), self._server.getsockname()[:2]))

    def serve(self) -> None:
        """Answer the messages of one connection until its other end is closed."""
        with self._server, accept(self._server, self._key) as peer:
            clock = Peer(peer)
            while (message := self._next(clock)) is not None:
                answer = self.answer(message)
                with suppress(OSError):  # then no message comes either
                    clock.send(answer.parts)

    def _next(self, clock: Peer) -> Message | None:
        try:
            return clock.receive(self._room)
        except (OSError, EOFError):
            return None

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

    def _room(self, row: int) -> Vector:
        return self._its.parameters if row == EVALUATED else self._rows.room()

    def answer(self, message: Message) -> Message:
        """Carry out a message of ``ActorChannel``; return the answer or an error."""
        request, rows = pickle.loads(message.content), {}
        try:
            if callable(request):
                answers = self._its.answer(request)
            else:
                self._rows.take(request, message.rows)
                answers = self._its.answer(request)
                rows = self._rows.results(request, answers)
        except TestbedError as error:
            return Message(pickle.dumps(error))
        return Message(pickle.dumps(answers, pickle.HIGHEST_PROTOCOL), rows)  # fewer copies


def accept(server: socket.socket, key: bytes) -> socket.socket:
    """Return the first connection whose peer says the key."""
    while True:
        peer, _ = server.accept()
        peer.settimeout(KEY_SECONDS)
        with suppress(OSError):
            if hmac.compare_digest(peer.recv(len(key), socket.MSG_WAITALL), key):
                peer.settimeout(None)
                return peer
        peer.close()
