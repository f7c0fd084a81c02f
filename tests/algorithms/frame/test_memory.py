"""The server's memory per worker."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.base import AlgorithmConfig, Update
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.stop import StopRule
from testbed.payloads import Dense, Payload, Sparse
from testbed.payloads.layout import Layout

SIZE = 50_000
LAYOUT = Layout(("weight",), ((SIZE,),))
WORKERS = 20
BYTES_OF_A_MODEL = 4 * SIZE


@pytest.mark.parametrize(
    ("config", "payload", "models"),
    [
        (
            AdaComp(name="adacomp", ratio=0.01),
            Sparse(np.arange(500, dtype=np.int32), np.ones(500, np.float32)),
            1.1,
        ),
        (Asgd(name="asgd"), Dense(np.ones(SIZE, np.float32)), 0.1),
    ],
    ids=["adacomp", "asgd"],
)
def test_a_worker_costs_the_server_at_most_its_counters(
    config: AlgorithmConfig, payload: Payload, models: float
) -> None:
    rng = np.random.default_rng(0)
    half = config.server(LAYOUT, WORKERS, parameters=np.zeros(SIZE, np.float32), rng=rng)
    server = Server(half, StopRule())
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for worker in range(WORKERS):
            server.join(worker)
            server.pull(worker, 0.0)
        for worker in range(WORKERS):
            server.push(worker, 1, update=Update(payload, version=0, samples=10), now=1.0)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= models * BYTES_OF_A_MODEL * WORKERS
