"""A training without a network, with time advanced by hand, and one behind real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.base import AlgorithmConfig, ServerHalf, Update
from testbed.algorithms.bsp import Bsp
from testbed.algorithms.frame.record import Timing
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.service_queue import ServiceQueue
from testbed.algorithms.frame.stop import StopRule
from testbed.payloads import Dense
from testbed.payloads.encodings import Encoding
from testbed.payloads.layout import Layout
from testbed.roles.clock import EmulatedClock
from testbed.roles.keys import ServerKeys
from testbed.roles.process import TerminatedError
from testbed.roles.ps import MAX_EVENTS, ParameterServer
from testbed.roles.record import Record
from testbed.roles.snapshots import Snapshots
from testbed.roles.training import Training
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.client import Connection
from testbed.rpc.codec import decode_delivery
from testbed.rpc.limits import MessageLimits
from testbed.rpc.messages import Delivery, PushMessage
from testbed.rpc.tokens import token_of
from testbed.telemetry.events import EventLog
from testbed.telemetry.spool import SpoolReader, SpoolWriter

LAYOUT = Layout(("weight",), ((2, 2),))
SCALE = 10.0  # emulated seconds per real one


class Bench:
    """A training, with the objects that a test inspects."""

    def __init__(
        self,
        folder: Path,
        half: ServerHalf,
        *,
        workers: int,
        stop: StopRule,
        service_seconds: float,
    ) -> None:
        self.seconds = 0.0  # real
        self.clock = EmulatedClock(SCALE, steady=lambda: self.seconds)
        self.spool = SpoolWriter(folder / "updates.bin")
        self.log = EventLog(
            folder / "events.jsonl", elapsed=lambda: self.clock.elapsed, wall=lambda: 1e9
        )
        self.record = Record(self.spool, self.clock, self.log)
        self.snapshots = Snapshots()
        self.half = half
        self.training = Training(
            server=Server(half, stop),
            queue=ServiceQueue(service_seconds),
            workers=workers,
            fingerprint=LAYOUT.fingerprint,
            clock=self.clock,
            log=self.log,
            record=self.record,
            snapshots=self.snapshots,
        )
        self._folder = folder

    async def settle(self) -> None:
        """Let every task run as far as it can."""
        for _ in range(5):
            await asyncio.sleep(0)

    def join(self, *workers: int) -> None:
        """Let workers join."""
        for worker in workers:
            self.training.join(worker, LAYOUT.fingerprint)

    async def pull(self, worker: int) -> Delivery:
        """Pull and decode."""
        return decode_delivery(await self.training.pull(worker))

    async def push(
        self, worker: int, sequence: int, version: int, attempt: int = 0, **changes: Any
    ) -> Delivery:
        """Push four ones, and decode the reply."""
        payload = changes.pop("payload", Dense(np.ones(4, np.float32)))
        update = Update(payload, version=version, samples=10)
        values = {
            "worker": worker,
            "sequence": sequence,
            "fingerprint": LAYOUT.fingerprint,
            "update": update,
            "timing": Timing(),
            "attempt": attempt,
            "payload_bytes": 16,
        }
        return decode_delivery(await self.training.exchange(PushMessage(**(values | changes))))

    def events(self) -> list[dict[str, Any]]:
        """The events in the log."""
        lines = (self._folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def rows(self) -> np.ndarray[Any, Any]:
        """The rows in the spool."""
        return SpoolReader(self._folder / "updates.bin").read()


Play = Callable[[Bench], Awaitable[None]]
Run = Callable[..., Bench]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a coroutine on a bench."""

    def begin(
        play: Play,
        *,
        half: ServerHalf | None = None,
        workers: int = 2,
        stop: StopRule | None = None,
        service_seconds: float = 0.0,
    ) -> Bench:
        asgd = Asgd(name="asgd", learning_rate=1.0).server(
            LAYOUT, workers, parameters=np.zeros(4, np.float32), rng=np.random.default_rng(0)
        )

        async def main() -> Bench:
            bench = Bench(
                *(tmp_path, half or asgd),
                workers=workers,
                stop=stop or StopRule(updates=100),
                service_seconds=service_seconds,
            )
            with closing(bench.spool), closing(bench.log):
                await play(bench)
            return bench

        return asyncio.run(main())

    return begin


@pytest.fixture
def barrier() -> ServerHalf[Any]:
    """No worker continues before both have pushed; a round subtracts their mean from the model."""
    return Bsp(name="bsp").server(
        LAYOUT, 2, parameters=np.zeros(4, np.float32), rng=np.random.default_rng(0)
    )


class Stage:
    """A parameter server in a thread, training a model with AdaComp and two workers.

    Attributes:
        half: the algorithm's server half.
        server: see ParameterServer.
        limits: of its connections.
        address: of its endpoint for workers.
        socket: of its endpoint for the evaluator.
        secret: of the run.
        folder: of its record and its log.
    """

    secret = "secret"

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        *,
        updates: int,
        service_seconds: float,
        config: AlgorithmConfig,
        encoding: Encoding,
        steady: Callable[[], float],
    ) -> None:
        rng = np.random.default_rng(1)
        self.config, self.folder = config, folder
        self.half: ServerHalf = config.server(
            layout, 2, parameters=rng.normal(size=layout.size).astype(np.float32), rng=rng
        )
        self.limits = MessageLimits.of(layout.size)
        clock, streamed = EmulatedClock(1.0, steady), config.TAKES_STREAMS
        log = EventLog(folder / "events.jsonl", elapsed=lambda: clock.elapsed, most=MAX_EVENTS)
        training = Training(
            server=Server(self.half, StopRule(updates=updates)),
            queue=ServiceQueue(service_seconds),
            workers=2,
            fingerprint=layout.fingerprint,
            clock=clock,
            log=log,
            record=Record(SpoolWriter(folder / "updates.bin", streamed=streamed), clock, log),
        )
        if config.SENDS_KEYS:
            training.keys = ServerKeys(training.log)
        self.server = ParameterServer(
            training, limits=self.limits, secret=self.secret, encoding=encoding
        )
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{unused.getsockname()[1]}"
        self.socket = folder / "ps.sock"
        self._layout = layout
        self._loop = asyncio.new_event_loop()
        self._ended: Future[BaseException] = Future()
        self._thread = threading.Thread(target=self._serve)

    def start(self, *, pulled: bool) -> None:
        """Serve; both workers join and pull, unless a test does that itself."""
        self._thread.start()
        if not pulled:
            return
        with self.connect("w0") as first, self.connect("w1") as second:
            for worker, connection in enumerate((first, second)):
                request = ps_pb2.JoinRequest(worker=worker, fingerprint=self._layout.fingerprint)
                connection.call(methods.JOIN, request.SerializeToString())
            for worker, connection in enumerate((first, second)):
                connection.call(methods.PULL, ps_pb2.PullRequest(worker=worker).SerializeToString())

    def token(self, node: str) -> str:
        """The events of a node."""
        return token_of(self.secret, node)

    def connect(self, node: str, address: str = "") -> Connection:
        """Connect as a worker, or as a process that manages the run."""
        managing = node in ("evaluator", "controller")
        place = f"unix:{self.socket}" if managing else f"ipv4:{address or self.address}"
        return Connection(place, token=self.token(node), limits=self.limits)

    def counts(self) -> Counter[str]:
        """Calls by outcome, at both servers."""
        return self.server.gates[0].counts + self.server.gates[1].counts

    def stop(self) -> BaseException:
        """End it, if it has not ended, and return its result."""
        if not self._ended.done():
            self._loop.call_soon_threadsafe(self.server.end, TerminatedError())
        self._thread.join()
        return self._ended.result()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self.server.serve(self.address, self.socket))
            except BaseException as error:  # noqa: BLE001 - for the test to inspect
                self._ended.set_result(error)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Starts a parameter server for a model; fails on unexpected errors in it."""
    stages: list[Stage] = []

    def start(
        layout: Layout,
        *,
        updates: int = 10,
        service_seconds: float = 0.0,
        config: AlgorithmConfig | None = None,
        encoding: Encoding = "raw",
        steady: Callable[[], float] = time.monotonic,
    ) -> Stage:
        """With another config, the test starts the workers itself."""
        stage = Stage(
            *(tmp_path, layout),
            updates=updates,
            service_seconds=service_seconds,
            config=config or AdaComp(name="adacomp"),
            encoding=encoding,
            steady=steady,
        )
        stages.append(stage)
        stage.start(pulled=config is None)
        return stage

    yield start
    for stage in stages:
        assert isinstance(stage.stop(), TerminatedError)
