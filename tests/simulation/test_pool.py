"""Processes that compute: a worker's result is independent of other users of the rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.algorithms.asgd import Asgd, AsgdServer, AsgdWorker
from testbed.algorithms.base import AlgorithmConfig, Halves, Reply, Stream, Update
from testbed.algorithms.comp_asgd import CompAsgd
from testbed.algorithms.frame.compute import OwnCompute
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.datasets import Prepared
from testbed.models import BoundModel, Mlp, Network
from testbed.payloads import Dense, Sparse, Vector
from testbed.simulation.channels import MAX_AHEAD_BYTES, MESSAGE_BYTES, forked
from testbed.simulation.learner import Learner
from testbed.simulation.pool import BATCH, Pool
from testbed.simulation.worker import Cycle, SimulatedWorker

WORKERS = BATCH * MAX_AHEAD_BYTES // MESSAGE_BYTES
"""More than one process is sent ahead."""

NO_NOTE: Mapping[str, float] = {}
LONG_NOTE = {str(number): 1.0 for number in range(20_000)}

RNG = np.random.default_rng(0)
DATA = Prepared(
    RNG.standard_normal((WORKERS, 1, 2, 2), dtype=np.float32),
    RNG.integers(0, 3, WORKERS),
    RNG.standard_normal((6, 1, 2, 2), dtype=np.float32),
    RNG.integers(0, 3, 6),
    classes=3,
    source={},
)


@pytest.fixture(scope="module")
def network() -> Network:
    """A small network for the images above."""
    return Mlp(name="mlp", hidden=(5,)).build((1, 2, 2), 3, folder=Path())


class NotedWorker(AsgdWorker):
    """Pushes a note with its gradient."""

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        return replace(super().step(gradient, samples, now), note={"loss": 1.0})


class Noted(Asgd):
    """An algorithm with such workers."""

    def halves(self) -> Halves:
        return NotedWorker, AsgdServer


CONFIGS = {
    "dense": Asgd(name="asgd"),
    "noted": Noted(name="asgd"),
    "sparse": CompAsgd(name="comp-asgd", ratio=0.5),
}


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> AlgorithmConfig:
    """Algorithms that push whole gradients, also with a note, and one that pushes half."""
    return CONFIGS[request.param]


@pytest.fixture(params=[1, 2])
def pool(
    request: pytest.FixtureRequest, network: Network, config: AlgorithmConfig
) -> Iterator[Pool]:
    """Worker w has only training image w."""
    with start_pool(network, config, workers=WORKERS, processes=request.param) as made:
        yield made


def start_pool(network: Network, config: AlgorithmConfig, *, workers: int, processes: int) -> Pool:
    """A partition in which worker w has only training image w."""
    layout = network.layout

    def build(number: int, parameters: Vector) -> tuple[Mapping[int, SimulatedWorker], Learner]:
        torch.set_num_threads(1)  # a forked process lacks its parent's threads
        simulated = {}
        for index in range(number, workers, processes):
            half = config.worker(layout, workers, rng=np.random.default_rng(0))
            shard, rng = np.array([index]), np.random.default_rng(0)
            worker = Worker(half, Stream(1), Shard(shard, rng), think=lambda: 0.0)
            simulated[index] = SimulatedWorker(index, worker, draw_step=lambda: 0.5)
        return simulated, Learner(DATA, OwnCompute(DATA, parameters, network.bind(parameters)))

    start = forked(build, workers=workers)
    return Pool(start, workers=workers, size=layout.size, processes=processes)


@pytest.fixture
def bound(network: Network) -> BoundModel:
    """The network with all values one, in this process."""
    return network.bind(np.ones(network.layout.size, np.float32))


def lend(
    pool: Pool, worker: int, values: Vector, version: int, note: Mapping[str, float] = NO_NOTE
) -> None:
    """Lend a model that the server changes afterwards."""
    model = values.copy()
    pool.lend(worker, Reply(Dense(model), version, note=note))
    model[:] = np.nan


def entries(pool: Pool, worker: int, *, size: int, version: int) -> Vector:
    """The push of a worker, as a vector with zeros for entries that are not sent."""
    cycle = pool.finish(worker)
    assert isinstance(cycle, Cycle)
    assert cycle.worker == worker
    assert cycle.update.version == version
    payload = cycle.update.payload
    if isinstance(payload, Dense):
        return payload.values
    assert isinstance(payload, Sparse)
    values = np.zeros(size, np.float32)
    values[payload.indices] = payload.values
    return values


@pytest.mark.slow
def test_every_worker_computes_at_the_model_it_was_lent(
    pool: Pool, network: Network, config: AlgorithmConfig
) -> None:
    """More workers than are sent ahead, queried in a different order, twice."""
    size, rng = network.layout.size, np.random.default_rng(1)
    note = {"round": 3.0} if isinstance(config, Noted) else NO_NOTE
    own = np.zeros(size, np.float32)
    bound = network.bind(own)
    for version in (0, 7):
        models = rng.standard_normal((WORKERS, size), dtype=np.float32)
        for worker in range(WORKERS):
            lend(pool, worker, models[worker], version, note)
            pool.begin(worker, now=1.0, think=0.0)
        for worker in rng.permutation(WORKERS):
            own[:] = models[worker]
            images, labels = DATA.train_images[[worker]], DATA.train_labels[[worker]]
            gradient = bound.loss_and_gradient(images, labels)[1]
            pushed = entries(pool, worker, size=size, version=version)
            sent = pushed != 0
            np.testing.assert_array_equal(pushed[sent], gradient[sent])
            assert sent.sum() == (gradient != 0).sum() or isinstance(config, CompAsgd)


def test_an_update_that_is_not_due_survives_replies_to_others(pool: Pool, network: Network) -> None:
    """Worker 0 has computed; its row must not be reused before its push is read."""
    size = network.layout.size
    ones, noise = np.ones(size, np.float32), np.full(size, 1e9, np.float32)
    lend(pool, 0, ones, 0)
    pool.begin(0, now=0.0, think=0.0)
    first = entries(pool, 0, size=size, version=0).copy()
    for worker in (0, 2):
        lend(pool, worker, ones, 1)
        pool.begin(worker, now=1.0, think=0.0)
    pool.finish(2)  # of the same process, which answers in order: worker 0's result has arrived too
    for worker in range(3, 60):
        lend(pool, worker, noise, 1)
    np.testing.assert_array_equal(entries(pool, 0, size=size, version=1), first)


def test_a_model_is_evaluated_while_orders_are_in_transit(
    pool: Pool, network: Network, bound: BoundModel
) -> None:
    size = network.layout.size
    for worker in range(WORKERS // 2):
        lend(pool, worker, np.zeros(size, np.float32), 0)
        pool.begin(worker, now=0.0, think=0.0)
    images = np.array([1, 4, 5])
    ones = np.ones(size, np.float32)
    some = bound.evaluate(DATA.test_images[images], DATA.test_labels[images])
    assert pool.evaluate(ones, images=images) == some
    assert pool.evaluate(ones, images=None) == bound.evaluate(DATA.test_images, DATA.test_labels)


class LongNoted(Asgd):
    """An algorithm whose notes exceed the capacity of a pipe."""

    def halves(self) -> Halves:
        return LongNotedWorker, AsgdServer


class LongNotedWorker(AsgdWorker):
    """Pushes a long note with its gradient."""

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        return replace(super().step(gradient, samples, now), note=LONG_NOTE)


def test_messages_larger_than_a_pipe_do_not_block(network: Network) -> None:
    assert len(pickle.dumps(LONG_NOTE)) > 2**18
    workers, model = 40, np.ones(network.layout.size, np.float32)
    config = LongNoted(name="asgd")
    with start_pool(network, config, workers=workers, processes=1) as pool:
        for version in (0, 1):
            for worker in range(workers):
                lend(pool, worker, model, version, LONG_NOTE)
                pool.begin(worker, now=1.0, think=0.0)
            for worker in range(workers):
                cycle = pool.finish(worker)
                assert isinstance(cycle, Cycle)
                assert (cycle.update.version, cycle.update.note) == (version, LONG_NOTE)


def test_a_cycle_takes_the_emulated_time_of_step_and_think(pool: Pool, network: Network) -> None:
    lend(pool, 5, np.ones(network.layout.size, np.float32), 3)
    pool.begin(5, now=2.0, think=0.0)
    cycle = pool.finish(5)
    assert isinstance(cycle, Cycle)
    assert (cycle.sequence, cycle.push_at) == (1, 2.5)
    assert (cycle.compute_seconds, cycle.think_seconds) == (0.5, 0.0)
    assert cycle.update.samples == 1
