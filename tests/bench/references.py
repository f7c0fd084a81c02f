"""Gradients per second of processes that do nothing else: the reference for whole runs.

    python tests/bench/references.py [--workers 200] [--seconds 8]

The paper's CNN, batches of 10, one thread a process, forked from one that has all imported:

    eager          autograd on layers in the paper's order (convolution, relu, pooling), with the
                   default memory format; one process a core
    tuned          the gradient that workers compute; one process a core
    tuned, many    the same in as many processes as there are workers
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from testbed.host.environment import agent_environment

BATCH = 10


def main(workers: int, seconds: float) -> None:
    """Measure and print one line of JSON."""
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((BATCH, 1, 28, 28)).astype(np.float32)
    labels = rng.integers(0, 10, BATCH)
    cores = len(os.sched_getaffinity(0))
    rates = {
        "eager": rate(lambda: eager(images, labels), cores, seconds),
        "tuned": rate(lambda: tuned(images, labels), cores, seconds),
        "tuned, many": rate(lambda: tuned(images, labels), workers, seconds),
    }
    print(json.dumps(rates))


def eager(images: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    """One gradient by autograd."""
    import torch
    from torch import nn

    network = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    x, y = torch.from_numpy(images), torch.from_numpy(labels)

    def gradient() -> None:
        network.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]

    return gradient


def tuned(images: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    """One gradient as a worker computes it."""
    from testbed.models import AdaCompCnn

    network = AdaCompCnn(name="adacomp-cnn").build((1, 28, 28), 10, folder=Path())
    bound = network.bind(network.initial(np.random.default_rng(0)))
    return lambda: bound.loss_and_gradient(images, labels)


def rate(make: Callable[[], Callable[[], object]], processes: int, seconds: float) -> float:
    """Calls per second of this many processes, each with its own model."""
    if os.fork() == 0:  # autograd starts threads, after which this process must not fork any more
        make()()
        os._exit(0)
    os.wait()
    counts = np.frombuffer(mmap.mmap(-1, 8 * processes), np.int64)
    begin = time.monotonic() + 1.0 + 0.04 * processes
    children = []
    for index in range(processes):
        child = os.fork()
        if child == 0:
            call = make()
            call()
            while time.monotonic() < begin:
                time.sleep(0.01)  # all start together
            while time.monotonic() < begin + seconds:
                call()
                counts[index] += 1
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return float(counts.sum() / seconds)


def take_environment() -> None:
    """Restart with the environment of nodes, unless it is set already."""
    wanted = agent_environment({})
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # forked children end with it too
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=8.0)
    take_environment()
    options = parser.parse_args()
    main(options.workers, options.seconds)
