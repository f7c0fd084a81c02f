"""The processes of the pool as actors of a Ray cluster, each of which may be lost.

When an actor's node dies, a new actor is restored from a snapshot of the workers and carries out
the messages since. As results depend on the messages only, they are those of the lost one.
"""

from __future__ import annotations

import pickle
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from testbed.errors import UNKNOWN_FILE, HostError, NodeError, Problem, ScenarioError
from testbed.runtimes import RayPool, Simulated
from testbed.runtimes.ray_cluster import alive_nodes, check_nodes, connected, releases, summary
from testbed.runtimes.ray_processes import OTHERS, PLACEMENT_SECONDS, Reservation, reserve
from testbed.scenario.experiment import Experiment
from testbed.scenario.own_code import COPIES
from testbed.scenario.schema import Scenario
from testbed.simulation.actor import (
    EVALUATED,
    KEY_BYTES,
    USED,
    ActorRequest,
    Ended,
    Seat,
    compute,
)
from testbed.simulation.channels import Channel, Start, answers_in
from testbed.simulation.journal import Journal
from testbed.simulation.messages import Begin, Task, used
from testbed.simulation.outline import actor_bytes, gradients_at_once
from testbed.simulation.process import ControlRequest, Rows, save
from testbed.simulation.wire import Message, Peer
from testbed.telemetry.event_kinds import ProcessReplaced

MOST_LOSSES = 3
"""How often an actor is replaced while it carries out one message, which may be what ends it."""

LOOK_SECONDS = 5.0
"""How often Ray is asked whether an actor lives from which nothing comes."""

LOSS_SECONDS = 30.0
"""How long Ray may take to notice that an actor is lost."""


@contextmanager
def joined(pool: RayPool) -> Iterator[None]:
    """Join the cluster of a pool, and check that all its nodes can compute.

    Raises:
        ScenarioError: there is no such cluster, or a node lacks something.
    """
    with ExitStack() as stack:
        try:
            stack.callback(OTHERS.forget)
            stack.enter_context(connected(pool.address, asked_by="it", ask=OTHERS.ask))
            check_nodes(releases(), ask=OTHERS.ask)
            OTHERS.prepare(*USED)
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
        forked: starts a process on this node.
    """

    experiment: Experiment
    _: KW_ONLY
    processes: int
    size: int
    replaced: Callable[[ProcessReplaced], None]
    forked: Start

    @cached_property
    def _data(self) -> Any:
        """The reference to the data set, which Ray brings to each node once."""
        import ray

        return ray.put(replace(self.experiment.data, transform=None))  # made where it is used

    @cached_property
    def _reservation(self) -> Reservation:
        size = self.experiment.network.worker_layout.size
        needs = needed(self.experiment.scenario, size, self.processes)
        return reserve(needs, self.processes)

    def start(self, number: int, rows: Rows) -> Channel:
        """Start an actor, or fork a process on this node; it is ready when it has answered."""
        if self._reservation.is_here(number) and not self._reservation.needed["GPU"]:
            return self.forked(number, rows)  # with GPUs, Ray chooses that of each process
        folder = self.experiment.folder
        files = [folder / "scenario.yaml", *(folder / COPIES).glob("*")]
        request = ActorRequest(
            {str(one.relative_to(folder)): one.read_bytes() for one in files},
            number=number,
            processes=self.processes,
            size=self.size,
            releases=releases(),
            key=secrets.token_bytes(KEY_BYTES),
        )
        return ActorChannel(self, request, rows)

    def place(self, request: ActorRequest, snapshot: bytes) -> tuple[Any, Any]:
        """Return an actor for a process, and the references to what ``compute`` yields in it."""
        reserved, number = self._reservation, request.number
        kept = None if reserved.needed["GPU"] else OTHERS.of_node(reserved.nodes[number])
        actor = kept or reserved.start(number)
        stream = actor.iterate.options(num_returns="streaming")
        return actor, stream.remote(compute, request, self._data, snapshot)


@dataclass
class ActorChannel:
    """The way to an actor, and to the one that replaces it."""

    MAX_AHEAD_BYTES: ClassVar[int] = 64 * 2**20
    actors: Actors
    request: ActorRequest
    rows: Rows
    _journal: Journal = field(default_factory=Journal)
    _ready: deque[Message] = field(default_factory=deque)  # received, but not yet asked for
    _taken: int = 0  # answers to messages of the journal that were asked for
    _saving: int | None = None  # the place in the journal of the request for a snapshot
    _peer: Peer | None = None  # once the actor is built
    _losses: int = 0
    _host: str = ""  # where the actor is, once it is built

    def __post_init__(self) -> None:
        self._actor, self._yields = self.actors.place(self.request, b"")

    def message(self, request: list[Task] | ControlRequest) -> Message:
        """Return the message of a request, with the rows that it refers to."""
        rows: Mapping[int, Any] = {}
        if isinstance(request, list):
            begun = (task for task in request if isinstance(task, Begin))
            rows = {task.row: self.rows[task.row, : used(task.reply)] for task in begun}
        elif request is not save:
            workers = self.actors.experiment.scenario.workers.count
            rows = {EVALUATED: self.rows[workers + 2 * self.request.number]}
        return Message(pickle.dumps(request), rows)

    def send(self, message: Message) -> None:
        """Send a message, after a request for a snapshot if that is due."""
        if self._saving is None and self._journal.is_long:
            self._saving = len(self._journal)
            self._send(self.message(save))
        self._send(message)

    def _send(self, message: Message) -> None:
        parts = message.parts
        self._carry_out(lambda peer: peer.send(parts, on_readable=self._receive))
        self._journal.append(parts)

    def receive(self) -> Any:
        """Wait for the next answer; the rows of results are then in those of this process."""
        while not self._ready:
            self._carry_out(lambda peer: self._receive())
        answer = self._ready.popleft()
        answers = answers_in(answer.content)
        self._taken += 1
        if self._saving != self._taken - 1:
            return answers
        self._journal.replace(answer.content, self._taken)
        self._taken, self._saving = 0, None
        return self.receive()

    def close(self) -> None:
        """End the actor."""
        import ray

        ray.kill(self._actor)
        if self._peer is not None:
            self._peer.close()
        self._journal.close()

    @property
    def _answered(self) -> int:
        return self._taken + len(self._ready)

    def _receive(self) -> None:
        assert self._peer is not None
        self._ready.append(self._peer.receive(self.rows.__getitem__))
        self._losses = 0

    def _carry_out(self, act: Callable[[Peer], None]) -> None:
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
                act(self._peer or self._connect())
                break
            except (OSError, EOFError) as error:
                lost = self._lost(error)
        if lost:
            number = self.request.number
            self.actors.replaced(ProcessReplaced(number, before, self._host, self._answered, lost))

    def _look(self) -> None:
        """Check that the actor lives: a process that it forked may hold its connection."""
        if self._has_ended():
            raise EOFError

    def _has_ended(self) -> bool:
        import ray

        return bool(ray.wait([self._yields.completed()], timeout=0)[0])

    def _connect(self) -> Peer:
        """Wait until the actor is built, and connect to it."""
        import ray

        try:
            if not ray.wait([self._yields], timeout=PLACEMENT_SECONDS)[0]:
                raise HostError(
                    f"the Ray cluster has not started process {self.request.number} of the "
                    f"simulation within {PLACEMENT_SECONDS} s.",
                    hint="`ray status` shows what it is busy with.",
                )
            seat: Seat | Ended = answers_in(ray.get(next(self._yields)))
        except ray.exceptions.RayTaskError as error:
            raise self._failed(error) from None
        except ray.exceptions.RayError as error:
            raise ConnectionError(summary(error)) from None
        if isinstance(seat, Ended):
            raise self._ended(seat)
        self._host = seat.host
        try:
            peer = socket.create_connection(seat.address, timeout=LOSS_SECONDS)
        except OSError as error:
            if ray.wait([self._yields.completed()], timeout=LOSS_SECONDS)[0]:
                raise
            raise HostError(
                f"{self._name()} cannot be reached at {':'.join(map(str, seat.address))}: {error}.",
                hint="Its node must accept connections at all ports, as Ray's own processes do.",
            ) from None
        peer.settimeout(None)
        peer.sendall(self.request.key)
        self._peer = Peer(peer, self._look, LOOK_SECONDS)
        return self._peer

    def _lost(self, error: BaseException) -> str:
        """Note that the actor was lost; return how, as Ray has it.

        Raises:
            NodeError: it has failed, or was lost too often.
        """
        import ray

        said = str(error) or "its connection ended"
        if self._peer is not None:
            self._peer.close()
            self._peer = None
            try:
                ray.get(self._yields.completed(), timeout=LOSS_SECONDS)
                for last in self._yields:
                    said = str(self._ended(answers_in(ray.get(last))))
            except ray.exceptions.RayTaskError as failure:
                raise self._failed(failure) from None
            except ray.exceptions.GetTimeoutError:
                said = f"{said}; Ray takes it to be alive"
            except ray.exceptions.RayError as failure:
                said = summary(failure)
                OTHERS.drop(self._actor)
        self._losses += 1
        if self._losses > MOST_LOSSES:
            raise NodeError(
                f"{self._name()} was lost {self._losses} times in a row: {said}",
                hint="`ray logs` shows its output; your own code may end it.",
            ) from None
        return said

    def _failed(self, error: BaseException) -> NodeError:
        return NodeError(f"{self._name()} has failed: {summary(error)}")

    def _ended(self, ended: Ended) -> ConnectionError:
        """Return the error for a process that has ended; raise that by which it has failed."""
        if ended.failed:
            raise NodeError(f"{self._name()} has failed: {ended.how}")
        return ConnectionError(ended.how)

    def _name(self) -> str:
        return f"process {self.request.number} of the simulation, on {self._host or 'no host yet'},"

    def _replay(self) -> None:
        """Let another actor take the place of the lost one."""
        import ray

        if not self._has_ended():  # it may be alive, but out of reach
            ray.kill(self._actor)
            OTHERS.drop(self._actor)
        snapshot, messages = self._journal.read()
        self._actor, self._yields = self.actors.place(self.request, snapshot)
        peer, answered = self._connect(), self._answered
        unneeded = np.empty(self.rows.shape[1], np.float32)  # others have taken these rows
        for index, message in enumerate(messages):
            peer.send([memoryview(message)], on_readable=self._receive)
            if index < answered:
                peer.receive(lambda row: unneeded)
