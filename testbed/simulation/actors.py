"""The processes of the pool as actors of a Ray cluster, each of which may be lost.

When an actor's node dies, a new actor is restored from a snapshot of the workers and carries out
the messages since. As results depend on the messages only, they are those of the lost one.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from testbed.errors import UNKNOWN_FILE, HostError, NodeError, Problem, ScenarioError
from testbed.runtimes import RayPool, Simulated
from testbed.runtimes.ray_cluster import alive_nodes, check_nodes, connected, releases, summary
from testbed.scenario.experiment import Experiment
from testbed.scenario.own_code import COPIES
from testbed.scenario.schema import Scenario
from testbed.simulation.actor import EVALUATED, ActorRequest, WorkerActor
from testbed.simulation.channels import answers_in
from testbed.simulation.journal import Journal
from testbed.simulation.messages import Begin, Task, used
from testbed.simulation.outline import actor_bytes
from testbed.simulation.process import ControlRequest, Rows, save
from testbed.telemetry.event_kinds import ProcessReplaced

MOST_LOSSES = 3
"""How often an actor is replaced while it carries out one message, which may be what ends it."""

PLACEMENT_SECONDS = 300.0
"""How long the cluster may take to start an actor."""


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
    memory = actor_bytes(scenario.workers.count, parameters, processes=processes)
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
    _pending: deque[Any] = field(default_factory=deque)  # references to answers
    _ready: deque[bytes] = field(default_factory=deque)  # answers taken before a snapshot
    _losses: int = 0
    _host: str = ""  # where the actor is, once it has answered

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
            self._ready.extend([self._next() for _ in range(len(self._pending))])
            self._send(self.message(save))
            snapshot = self._next()
            answers_in(snapshot)
            self._journal.close()
            self._journal = Journal(snapshot)
        self._send(message)

    def _send(self, message: bytes) -> None:
        self._journal.append(message)
        self._pending.append(self._actor.answer.remote(message))

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
        self._journal.close()

    def _next(self) -> bytes:
        """Wait for the next answer, of another actor if this one is lost.

        Raises:
            HostError: the cluster has no room for an actor.
            NodeError: an actor has failed, or several were lost in a row.
        """
        import ray

        lost = ""
        while True:
            try:
                if lost:
                    self._replay(lost)
                elif not self._host:
                    self._await_built()
                data: bytes = ray.get(self._pending[0])
            except ray.exceptions.GetTimeoutError:
                raise HostError(
                    f"the Ray cluster has not started process {self.request.number} of the "
                    f"simulation within {PLACEMENT_SECONDS:g} s.",
                    hint="`ray status` shows what it is busy with.",
                ) from None
            except ray.exceptions.RayTaskError as error:
                raise NodeError(f"{self._name()} has failed: {summary(error)}") from None
            except ray.exceptions.RayError as error:
                lost = self._lost(error)
                continue
            self._pending.popleft()
            self._losses = 0
            return data

    def _name(self) -> str:
        return f"process {self.request.number} of the simulation, on {self._host or 'no host yet'},"

    def _await_built(self) -> None:
        import ray

        self._host = answers_in(ray.get(self._built, timeout=PLACEMENT_SECONDS))

    def _lost(self, error: BaseException) -> str:
        """Note that the actor was lost; return how."""
        self._losses += 1
        if self._losses > MOST_LOSSES:
            raise NodeError(
                f"{self._name()} was lost {self._losses} times in a row: {summary(error)}",
                hint="`ray logs` shows its output; your own code may end it.",
            ) from None
        return summary(error)

    def _replay(self, lost: str) -> None:
        """Let another actor take the place of the lost one."""
        import ray

        ray.kill(self._actor)  # it may be alive, but out of reach
        before = self._host
        snapshot, messages = self._journal.read()
        self._actor, self._built = self.actors.place(self.request, snapshot)
        self._await_built()
        answered, pending = len(self._journal) - len(self._pending), deque[Any]()
        for index, message in enumerate(messages):
            answer = self._actor.answer.remote(message)
            if index < answered:
                ray.get(answer)
            else:
                pending.append(answer)
        self._pending = pending
        self.actors.replaced(
            ProcessReplaced(self.request.number, before, self._host, answered, lost)
        )
