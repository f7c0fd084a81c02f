"""Bytes per push in every encoding, and the cost of coding: python tests/bench/encoded_pushes.py

The updates are real: the paper's CNN learns MNIST (in $TESTBED_DATA) for 500 steps of ten images,
and every 25th gradient goes through the worker half of each algorithm. Bytes are means over these
updates, microseconds medians of CPU time. With the argument ``rivals``, what other coders make of
the same planes stands below: those of Python's own library, and zstandard where it is installed.
"""

from __future__ import annotations

import bz2
import lzma
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from testbed.algorithms import AdaComp, Asgd
from testbed.algorithms.base import AlgorithmConfig, Update, WorkerHalf
from testbed.algorithms.frame.worker import Shard
from testbed.datasets import load as load_data
from testbed.payloads import Payload, Vector, encodings
from testbed.scenario import load
from testbed.scenario.schema import Scenario
from testbed.values.seeds import stream

SCENARIO = Path(__file__).parents[2] / "scenarios/adacomp/simulated.yaml"
CONFIGS: Mapping[str, AlgorithmConfig] = {
    "asgd": Asgd(name="asgd"),
    **{f"adacomp {c:g}": AdaComp(name="adacomp", ratio=c) for c in (0.1, 0.01, 0.001)},
}
STEPS, EVERY, LEARNING_RATE = 500, 25, 0.03


def gradients(scenario: Scenario, data_folder: Path) -> Iterator[Vector]:
    """Every n-th gradient of a training by one worker; borrowed until the next."""
    data = load_data(data_folder)
    network = scenario.model.build(data.image_shape, data.classes, folder=Path())
    parameters = network.initial(stream(scenario.seed, "model"))
    bound = network.bind(parameters)
    shard = Shard(np.arange(len(data.train_labels)), stream(scenario.seed, "order"))
    for step in range(STEPS):
        _, gradient = bound.loss_and_gradient(*data.batch(shard.take(10)))
        if step % EVERY == 0:
            yield gradient
        parameters -= LEARNING_RATE * gradient


def timed(call: Callable[[], object]) -> float:
    """CPU microseconds per call."""
    begun = time.thread_time()
    call()
    return (time.thread_time() - begun) * 1e6


def print_encodings(name: str, payloads: list[Payload]) -> None:
    """A row for every encoding of one algorithm's updates."""
    pickled = mean(payload.pickle9_bytes for payload in payloads)
    raw = mean(payload.size for payload in payloads)
    print(f"{name:14} {'raw':9} {raw:12,.0f}")
    for encoding in ("packed", "packed16"):
        width = encodings.value_bytes(encoding)
        sent = [encodings.as_sent(payload, encoding)[0] for payload in payloads]
        coded = [encodings.pack(payload, width) for payload in sent]
        pack = median(timed(partial(encodings.pack, one, width)) for one in sent)
        unpack = median(
            timed(
                partial(
                    encodings.unpack,
                    type(one),
                    memoryview(data),
                    entries=one.entries,
                    value_bytes=width,
                )
            )
            for data, one in zip(coded, sent, strict=True)
        )
        size = mean(map(len, coded))
        print(f"{'':14} {encoding:9} {size:12,.0f} {pack:10,.0f} {unpack:10,.0f}")
    print(f"{'':14} {'pickle9':9} {pickled:12,.0f}")


def rivals() -> dict[str, Callable[[bytes], bytes]]:
    """Coders of a plane, by name."""

    def deflate(level: int, strategy: int) -> Callable[[bytes], bytes]:
        def coded(plane: bytes) -> bytes:
            coder = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
            return coder.compress(plane) + coder.flush()

        return coded

    filters = [{"id": lzma.FILTER_LZMA2, "lc": 0, "lp": 0, "pb": 0, "dict_size": 2**20}]
    found: dict[str, Callable[[bytes], bytes]] = {
        "deflate, runs": deflate(6, zlib.Z_RLE),
        "deflate, Huffman": deflate(6, zlib.Z_HUFFMAN_ONLY),
        "deflate 6": deflate(6, zlib.Z_DEFAULT_STRATEGY),
        "deflate 9": deflate(9, zlib.Z_DEFAULT_STRATEGY),
        "bzip2": bz2.compress,
        "lzma": lambda plane: lzma.compress(plane, lzma.FORMAT_RAW, filters=filters),
    }
    if find_spec("zstandard"):
        import zstandard

        for level in (3, 19):
            found[f"zstandard {level}"] = zstandard.ZstdCompressor(level=level).compress
    return found


def print_rivals(name: str, payloads: list[Payload]) -> None:
    """The size from each coder; planes that it cannot compress are left as they are."""
    planes = [list(encodings.planes_of(payload, 4)) for payload in payloads]
    for rival, coder in rivals().items():
        sizes = [sum(min(len(p), len(coder(p))) for p in one) for one in planes]
        taken = median(timed(partial(_all, coder, one)) for one in planes)
        print(f"{name:14} {rival:18} {mean(sizes):12,.0f} {taken:10,.0f}")


def _all(coder: Callable[[bytes], bytes], planes: list[bytes]) -> list[bytes]:
    return [coder(plane) for plane in planes]


def main() -> None:
    scenario = load(SCENARIO)
    folder = scenario.dataset.prepare(
        Path.home() / ".cache/testbed", environment=os.environ, folder=SCENARIO.parent
    )
    halves: dict[str, WorkerHalf[Any]] = {}
    updates: dict[str, list[Payload]] = {name: [] for name in CONFIGS}
    for gradient in gradients(scenario, folder):
        for name, config in CONFIGS.items():
            if name not in halves:
                layout = scenario.model.build((1, 28, 28), 10, folder=Path()).layout
                halves[name] = config.worker(layout, 1, rng=np.random.default_rng(0))
            update = halves[name].step(gradient, 10, 0.0)
            assert isinstance(update, Update)
            updates[name].append(type(update.payload).of([a.copy() for a in update.payload.arrays]))
    print(
        f"{'algorithm':14} {'encoding':9} {'bytes a push':>12} {'pack, us':>10} {'unpack, us':>10}"
    )
    for name, payloads in updates.items():
        print_encodings(name, payloads)
    if sys.argv[1:] == ["rivals"]:
        for name, payloads in updates.items():
            print_rivals(name, payloads)


if __name__ == "__main__":
    main()
