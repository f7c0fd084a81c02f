"""A process of the pool as an actor on a node of a Ray cluster: it answers the same messages.

It shares no memory with the clock's process: what a message takes of each row that it refers to
travels with it, and that of the results with the answer. They take a connection of their own, as a
call of Ray's per message would cost more than a small gradient.
"""

from __future__ import annotations

import gc
import hmac
import os
import pickle
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

from testbed.datasets import Prepared
from testbed.errors import TestbedError
from testbed.host.allocation import keep_freed_memory
from testbed.payloads import Vector, zeros
from testbed.scenario.experiment import Experiment
from testbed.simulation.build import build
from testbed.simulation.messages import Answer, Begin, Restart, Result, Task, used
from testbed.simulation.process import ProcessWorkers, restore
from testbed.values.user_code import own_failures

KEY_BYTES = 32
KEY_SECONDS = 10.0  # within which a peer says the key

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
    key: bytes  # said first by a peer that may send messages


@dataclass(frozen=True)
class Seat:
    """Where an actor listens."""

    host: str  # its name
    address: tuple[str, int]


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
    """Computes a share of the workers."""

    def build(self, request: ActorRequest, data: Prepared, snapshot: bytes) -> bytes:
        """Build the workers, restored from an answer to ``save`` if there is one, and listen.

        Returns:
            The pickle of a Seat, or of an error.
        """
        import ray

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
        self._key = request.key
        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._server = socket.create_server((host, 0))
        return pickle.dumps(Seat(socket.gethostname(), self._server.getsockname()[:2]))

    def serve(self) -> None:
        """Answer the messages of one connection until its other end is closed."""
        with self._server, accept(self._server, self._key) as connection:
            try:
                for message in received(connection):
                    answer = self.answer(message)
                    with suppress(OSError):  # then no message comes either
                        connection.send_bytes(answer)
            finally:
                shut_down(connection)  # the other end waits, and so does the reading thread

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
        """Carry out a message of ``ActorChannel``; return the pickle of the answer or an error."""
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


def accept(server: socket.socket, key: bytes) -> Connection:
    """Return the first connection whose peer says the key."""
    while True:
        peer, _ = server.accept()
        peer.settimeout(KEY_SECONDS)
        with suppress(OSError):
            if hmac.compare_digest(peer.recv(len(key), socket.MSG_WAITALL), key):
                peer.settimeout(None)
                return connection_over(peer)
        peer.close()


def connection_over(peer: socket.socket) -> Connection:
    """Return a connection that sends small messages at once, and takes over the socket."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(peer.detach())


def shut_down(connection: Connection) -> None:
    """End a connection both ways; to close it would not while a thread reads."""
    with socket.socket(fileno=os.dup(connection.fileno())) as peer, suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)


def received(connection: Connection) -> Iterator[bytes]:
    """Yield messages until the other end is closed.

    They are read as they arrive: the peer may send many before it reads an answer.
    """
    messages = SimpleQueue[bytes]()

    def read() -> None:
        try:
            with suppress(OSError, EOFError):
                while True:
                    messages.put(connection.recv_bytes())
        finally:
            messages.put(b"")

    threading.Thread(target=read, daemon=True).start()
    while message := messages.get():
        yield message
