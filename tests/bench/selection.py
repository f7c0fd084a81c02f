"""CPU milliseconds of AdaComp's parts on the paper's CNN: python tests/bench/selection.py

Selection happens once per gradient at the worker, push and pull once per update at the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from testbed.algorithms import AdaComp
from testbed.payloads.layout import Layout

SHAPES = ((32, 1, 3, 3), (32,), (32, 32, 3, 3), (32,), (128, 1568), (128,), (10, 128), (10,))
CNN = Layout(tuple(f"tensor{index}" for index in range(len(SHAPES))), SHAPES)
REPEATS = 300


def cpu_milliseconds(call: Callable[[], object]) -> float:
    """The median of many calls."""
    taken = []
    for _ in range(REPEATS):
        start = time.thread_time()
        call()
        taken.append(time.thread_time() - start)
    return median(taken) * 1e3


def main() -> None:
    rng = np.random.default_rng(0)
    gradient = rng.standard_normal(CNN.size).astype(np.float32)
    gradient[rng.random(CNN.size) < 0.3] = 0  # the share of exact zeros behind ReLUs
    print(f"{CNN.size} parameters, numpy {np.__version__}")
    for ratio in (0.1, 0.01, 0.001):
        config = AdaComp(name="adacomp", ratio=ratio)
        server = config.server(CNN, 1, parameters=np.zeros(CNN.size, np.float32), rng=rng)
        worker = config.worker(CNN, 1, rng=rng)
        worker.receive(server.pull(0, 0.0), 0.0)
        update = worker.step(gradient, 10, 0.0)
        assert update is not None
        select = cpu_milliseconds(partial(worker.step, gradient, 10, 0.0))
        push = cpu_milliseconds(partial(server.push, 0, update, 0.0))
        pull = cpu_milliseconds(partial(server.pull, 0, 0.0))
        sent = update.payload.entries
        print(f"c={ratio:<6} {sent:6} sent  {select=:.3f} ms  {push=:.3f} ms  {pull=:.3f} ms")


if __name__ == "__main__":
    main()
