"""Messages before an update over real sockets: bit-identical to a training without sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import ScaDles
from testbed.algorithms.base import AlgorithmConfig, Stream
from testbed.algorithms.frame.actions import Arrived, Computed, Push, Step
from testbed.algorithms.frame.compute import OwnCompute
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.stop import StopRule
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.datasets import Prepared
from testbed.models import Mlp
from testbed.payloads import Vector
from testbed.roles.clock import EmulatedClock
from testbed.roles.device import Device
from testbed.roles.worker import drive
from testbed.telemetry.spool import SpoolReader

RNG = np.random.default_rng(0)
DATA = Prepared(
    RNG.standard_normal((40, 1, 2, 2), dtype=np.float32),
    RNG.integers(0, 3, 40),
    RNG.standard_normal((6, 1, 2, 2), dtype=np.float32),
    RNG.integers(0, 3, 6),
    classes=3,
    source={},
)
NETWORK = Mlp(name="mlp", hidden=(5,)).build((1, 2, 2), 3, folder=Path())
UPDATES = 20


def voting(delta: float) -> ScaDles:
    return ScaDles(name="scadles", ratio=0.1, delta=delta, base_batch=8, decide="majority")


def worker(config: AlgorithmConfig, index: int) -> Worker:
    half = config.worker(NETWORK.layout, 2, rng=np.random.default_rng(index))
    shard = Shard(np.arange(20 * index, 20 * index + 20), np.random.default_rng(index))
    return Worker(half, Stream(8), shard, think=lambda: 0.0)


def work(stage: Any, index: int) -> None:
    """A worker as in its process, to the end of training."""
    subject = worker(stage.config, index)
    at = subject.half.parameters
    with stage.connect(f"w{index}") as connection:
        device = Device(
            index=index,
            compute=OwnCompute(DATA, at, NETWORK.bind(at)),
            parameters=at,
            data=DATA,
            fingerprint=NETWORK.layout.fingerprint,
            size=NETWORK.layout.size,
            step=None,
            connection=connection,
            clock=EmulatedClock(1.0),
        )
        device.join()
        drive(subject.loop(), device)


def without_sockets(config: AlgorithmConfig) -> Vector:
    """The final model of the same workers, run one after the other in one process."""
    rng = np.random.default_rng(1)
    initial = rng.normal(size=NETWORK.layout.size).astype(np.float32)
    half = config.server(NETWORK.layout, 2, parameters=initial, rng=rng)
    server = Server(half, StopRule(updates=UPDATES))
    workers = [worker(config, index) for index in range(2)]
    bound = [NETWORK.bind(one.half.parameters) for one in workers]
    loops = [one.loop() for one in workers]
    arrived: dict[int, Arrived] = {}
    for index, loop in enumerate(loops):
        server.join(index)
        next(loop)
        for release in server.pull(index, 0.0).releases:
            arrived[release.worker] = Arrived(0.0, release.reply)
    while not server.finished:
        index = next(iter(arrived))
        action = loops[index].send(arrived.pop(index))
        while isinstance(action, Step):
            _, gradient = bound[index].loss_and_gradient(*DATA.batch(action.samples))
            action = loops[index].send(Computed(0.0, gradient))
        assert isinstance(action, Push)
        effects = server.push(index, action.sequence, update=action.update, now=0.0)
        for release in effects.releases:
            arrived[release.worker] = Arrived(0.0, release.reply)
    return half.parameters


@pytest.mark.parametrize(("delta", "compressed"), [(0.99, 1), (0.0, 0)])
def test_votes_over_sockets_give_the_same_model(
    begin: Callable[..., Any], tmp_path: Path, delta: float, compressed: int
) -> None:
    """A vote before every update: one message per row, with its outcome and the step's time."""
    stage = begin(NETWORK.layout, updates=UPDATES, config=voting(delta))
    threads = [threading.Thread(target=work, args=(stage, index)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(stage.half.parameters, without_sockets(voting(delta)))
    stage.server.training.record.spool.flush()
    rows = SpoolReader(tmp_path / "updates.bin").read()
    assert len(rows) == UPDATES
    assert (rows["messages"] == 1).all()
    assert (rows["compressed"] == compressed).all()
    assert (rows["rho_mean"] > 0).all()
    assert (rows["compute_seconds"] > 0).all()  # of the step before the vote
