"""The processes of the pool as actors of a Ray cluster, each of which may be lost.

When an actor's node dies, a new actor is restored from a snapshot of the workers and carries out
the messages since. As results depend on the messages only, they are those of the lost one.
"""

from __future__ import annotations

import os
import pickle
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any, ClassVar, TypeVar

from testbed.errors import UNKNOWN_FILE, HostError, NodeError, Problem, ScenarioError
from testbed.runtimes import RayPool, Simulated
from testbed.runtimes.ray_cluster import alive_nodes, check_nodes, connected, releases, summary
from testbed.scenario.experiment import Experiment
from testbed.scenario.own_code import COPIES
from testbed.scenario.schema import Scenario
from testbed.simulation.actor import (
    EVALUATED,
    KEY_BYTES,
    ActorRequest,
    Seat,
    WorkerActor,
    connection_over,
)
from testbed.simulation.channels import answers_in
from testbed.simulation.journal import Journal
from testbed.simulation.messages import Begin, Task, used
from testbed.simulation.outline import actor_bytes, gradients_at_once
from testbed.simulation.process import ControlRequest, Rows, save
from testbed.telemetry.event_kinds import ProcessReplaced

Result = TypeVar("Result")

MOST_LOSSES = 3
"""How often an actor is replaced while it carries out one message, which may be what ends it."""

PLACEMENT_SECONDS = 300.0
"""How long the cluster may take to start an actor."""

LOOK_SECONDS = 5.0
"""How often Ray is asked whether an actor lives from which nothing comes."""

LOSS_SECONDS = 30.0
"""How long Ray may take to notice that an actor is lost."""

STUCK_SECONDS = 600
"""How long an actor may take nothing: the user's code may keep it from reading."""


@contextmanager
def joined(pool: RayPool) -> Iterator[None]:
    """Join the cluster of a pool, and check that all its nodes can compute.

    Raises:
        ScenarioError: there is no such cluster, or a node lacks something.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(connected(pool.address, asked_by="it"))
            check_nodes(releases(), entry=WorkerActor.__module__)
        except HostError as error:
            raise _refusal(str(error)) from None
        yield


def _refusal(text: str) -> ScenarioError:
    return ScenarioError([Problem(UNKNOWN_FILE, 0, "runtime.pool", "", "", text)])


def count_actors(pool: RayPool, workers: int) -> int:
    """Return how many actors compute a number of workers: by default one per CPU of the cluster."""
    cpus = sum(int(node["Resources"]["CPU"]) for node in alive_nodes())
    return min(pool.processes or cpus, workers)


def needed(scenario: Scenario, parameters: int, processes: int) -> dict[str, int]:
    """Return what each of the actors asks Ray for, by Ray's names."""
    on_gpu = isinstance(scenario.runtime, Simulated) and scenario.runtime.device == "cuda"
    at_once = gradients_at_once(scenario)
    memory = actor_bytes(scenario.workers.count, parameters, processes=processes, at_once=at_once)
    return {"CPU": 1, "memory": memory, "GPU": int(on_gpu)}


def require_room(scenario: Scenario, parameters: int, *, processes: int) -> None:
    """Refuse more actors than the cluster has room for, if it does nothing else.

    Raises:
        ScenarioError: it has less; says how much.
    """
    needs = needed(scenario, parameters, processes)
    room = sum(
        min(int(node["Resources"].get(one, 0) // count) for one, count in needs.items() if count)
        for node in alive_nodes()
    )
    if room < processes:
        gpu = " and a GPU" if needs["GPU"] else ""
        raise _refusal(
            f"the Ray cluster has room for {room} of {processes} processes with a CPU, "
            f"{needs['memory'] / 1e6:,.0f} MB{gpu} each. `ray status --verbose` shows what each "
            "node has; with more `processes`, each needs less memory."
        )


@dataclass(frozen=True)
class Actors:
    """Starts the actors of one run.

    Attributes:
        processes: number of actors.
        size: of a row, in float32 values.
        replaced: called when another actor has taken the place of a lost one.
    """

    experiment: Experiment
    _: KW_ONLY
    processes: int
    size: int
    replaced: Callable[[ProcessReplaced], None]

    @cached_property
    def _data(self) -> Any:
        """The reference to the data set, which Ray brings to each node once."""
        import ray

        return ray.put(replace(self.experiment.data, transform=None))  # made where it is used

    def start(self, number: int, rows: Rows) -> ActorChannel:
        """Start an actor; it is ready when it has answered."""
        folder = self.experiment.folder
        files = [folder / "scenario.yaml", *(folder / COPIES).glob("*")]
        request = ActorRequest(
            {str(one.relative_to(folder)): one.read_bytes() for one in files},
            number=number,
            processes=self.processes,
            size=self.size,
            key=secrets.token_bytes(KEY_BYTES),
        )
        return ActorChannel(self, request, rows)

    def place(self, request: ActorRequest, snapshot: bytes) -> tuple[Any, Any]:
        """Let Ray place an actor; return it, and the reference to the answer to ``build``."""
        import ray

        network, scenario = self.experiment.network, self.experiment.scenario
        needs = needed(scenario, network.worker_layout.size, self.processes)
        asked = {"num_cpus": needs["CPU"], "num_gpus": needs["GPU"], "memory": needs["memory"]}
        placed: Any = ray.remote(WorkerActor).options(**asked, scheduling_strategy="SPREAD")
        actor = placed.remote()
        return actor, actor.build.remote(request, self._data, snapshot)


@dataclass
class ActorChannel:
    """The way to an actor, and to the one that replaces it."""

    MAX_AHEAD_BYTES: ClassVar[int] = 64 * 2**20
    actors: Actors
    request: ActorRequest
    rows: Rows
    _journal: Journal = field(default_factory=Journal)
    _ready: deque[bytes] = field(default_factory=deque)  # answers taken before a snapshot
    _pending: int = 0  # messages without an answer
    _connection: Connection | None = None  # once the actor is built
    _losses: int = 0
    _host: str = ""  # where the actor is, once it is built

    def __post_init__(self) -> None:
        self._actor, self._built = self.actors.place(self.request, b"")

    def message(self, request: list[Task] | ControlRequest) -> bytes:
        """Return the message of a request, with the rows that it refers to."""
        rows: Mapping[int, Any] = {}
        if isinstance(request, list):
            begun = (task for task in request if isinstance(task, Begin))
            rows = {task.row: self.rows[task.row, : used(task.reply)] for task in begun}
        elif request is not save:
            workers = self.actors.experiment.scenario.workers.count
            rows = {EVALUATED: self.rows[workers + 2 * self.request.number]}
        return pickle.dumps((request, rows), protocol=5)

    def send(self, message: bytes) -> None:
        """Send a message, after a snapshot if that is due."""
        if self._journal.is_long:
            self._ready.extend([self._next() for _ in range(self._pending)])
            self._send(self.message(save))
            snapshot = self._next()
            answers_in(snapshot)
            self._journal.close()
            self._journal = Journal(snapshot)
        self._send(message)

    def _send(self, message: bytes) -> None:
        self._carry_out(lambda actor: actor.send_bytes(message))
        self._journal.append(message)
        self._pending += 1

    def receive(self) -> Any:
        """Wait for the next answer, and put the rows of results into those of this process."""
        answers, sent = answers_in(self._ready.popleft() if self._ready else self._next())
        for row, values in sent.items():
            self.rows[row, : values.size] = values
        return answers

    def close(self) -> None:
        """End the actor."""
        import ray

        ray.kill(self._actor)
        if self._connection is not None:
            self._connection.close()
        self._journal.close()

    def _next(self) -> bytes:
        data = self._carry_out(self._recv)
        self._pending -= 1
        self._losses = 0
        return data

    def _carry_out(self, act: Callable[[Connection], Result]) -> Result:
        """Send or receive; if the actor is lost, do so with another that has caught up with it.

        Raises:
            HostError: the cluster has no room for an actor.
            NodeError: an actor has failed, or several were lost in a row.
        """
        before, lost = self._host, ""
        while True:
            try:
                if lost:
                    self._replay()
                result = act(self._connection or self._connect())
                break
            except (OSError, EOFError) as error:
                lost = self._lost(error)
        if lost:
            number, answered = self.request.number, len(self._journal) - self._pending
            self.actors.replaced(ProcessReplaced(number, before, self._host, answered, lost))
        return result

    def _recv(self, connection: Connection) -> bytes:
        import ray

        while not connection.poll(LOOK_SECONDS):
            if ray.wait([self._serving], timeout=0)[0]:  # a process that it forked may be left
                raise EOFError
        return connection.recv_bytes()

    def _connect(self) -> Connection:
        """Wait until the actor is built, and connect to it."""
        import ray

        try:
            seat: Seat = answers_in(ray.get(self._built, timeout=PLACEMENT_SECONDS))
        except ray.exceptions.GetTimeoutError:
            raise HostError(
                f"the Ray cluster has not started process {self.request.number} of the "
                f"simulation within {PLACEMENT_SECONDS:g} s.",
                hint="`ray status` shows what it is busy with.",
            ) from None
        except ray.exceptions.RayTaskError as error:
            raise self._failed(error) from None
        except ray.exceptions.RayError as error:
            raise ConnectionError(summary(error)) from None
        self._host, self._serving = seat.host, self._actor.serve.remote()
        try:
            peer = socket.create_connection(seat.address, timeout=LOSS_SECONDS)
        except OSError as error:
            if ray.wait([self._serving], timeout=LOSS_SECONDS)[0]:
                raise
            raise HostError(
                f"{self._name()} cannot be reached at {':'.join(map(str, seat.address))}: {error}.",
                hint="Its node must accept connections at all ports, as Ray's own processes do.",
            ) from None
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * STUCK_SECONDS)
        self._connection = connection_over(peer)
        os.write(self._connection.fileno(), self.request.key)
        return self._connection

    def _lost(self, error: BaseException) -> str:
        """Note that the actor was lost; return how, as Ray has it.

        Raises:
            NodeError: it has failed, or was lost too often.
        """
        import ray

        said = str(error) or "its connection ended"
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            try:
                ray.get(self._serving, timeout=LOSS_SECONDS)
            except ray.exceptions.RayTaskError as failure:
                raise self._failed(failure) from None
            except ray.exceptions.GetTimeoutError:
                said = f"{said}; Ray takes it to be alive"
            except ray.exceptions.RayError as failure:
                said = summary(failure)
        self._losses += 1
        if self._losses > MOST_LOSSES:
            raise NodeError(
                f"{self._name()} was lost {self._losses} times in a row: {said}",
                hint="`ray logs` shows its output; your own code may end it.",
            ) from None
        return said

    def _failed(self, error: BaseException) -> NodeError:
        return NodeError(f"{self._name()} has failed: {summary(error)}")

    def _name(self) -> str:
        return f"process {self.request.number} of the simulation, on {self._host or 'no host yet'},"

    def _replay(self) -> None:
        """Let another actor take the place of the lost one."""
        import ray

        ray.kill(self._actor)  # it may be alive, but out of reach
        snapshot, messages = self._journal.read()
        self._actor, self._built = self.actors.place(self.request, snapshot)
        actor = self._connect()
        answered = len(self._journal) - self._pending
        for index, message in enumerate(messages):
            actor.send_bytes(message)
            if index < answered:
                self._recv(actor)
