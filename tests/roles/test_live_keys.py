"""Slim-DP and Quant-DP over real sockets: bytes, models and misses match the simulation."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from testbed.algorithms import PlumpDp, QuantDp, SlimDp
from testbed.algorithms.base import AlgorithmConfig, Stream, Update
from testbed.algorithms.frame.compute import OwnCompute
from testbed.algorithms.frame.record import Timing
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.service_queue import ServiceQueue
from testbed.algorithms.frame.stop import Schedule, StopRule
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.datasets import Prepared
from testbed.errors import RejectedError
from testbed.models import Mlp
from testbed.payloads import Keyed, Payload, Quantized, Vector
from testbed.payloads.core_explorer import sizes
from testbed.payloads.keyed import KeyCaches, UnknownKeysError, signature_of
from testbed.roles.clock import EmulatedClock
from testbed.roles.device import Device
from testbed.roles.worker import drive
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import encode_push
from testbed.rpc.messages import PushMessage
from testbed.simulation.channels import forked
from testbed.simulation.device import DeviceModel
from testbed.simulation.engine import Engine
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.keys import KeyedLinks
from testbed.simulation.learner import Learner
from testbed.simulation.links import Bucket, FairLink
from testbed.simulation.model import Hop
from testbed.simulation.model import Path as LinkPath
from testbed.simulation.pool import Pool
from testbed.simulation.run import SLACK, virtual_clock
from testbed.simulation.worker import SimulatedWorker
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import Rows
from testbed.telemetry.sink import Sink
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
SIZE = NETWORK.layout.size
ROUNDS = 12


class Book(Sink):
    """The rows of a simulation."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def updates(self, rows: Rows, *, now: float) -> None:
        self.rows.extend(rows)


def made(config: AlgorithmConfig, index: int) -> Worker:
    """A worker in its initial state."""
    half = config.worker(NETWORK.layout, 2, rng=np.random.default_rng(10 + index))
    shard = Shard(np.arange(20 * index, 20 * index + 20), np.random.default_rng(index))
    return Worker(half, Stream(2), shard, think=lambda: 0.0)


def work(stage: Any, index: int, meddle: Callable[[int, KeyCaches], None]) -> None:
    """A worker as in its process, to the end of training; ``meddle`` runs before every step."""
    worker, keys, steps = made(stage.config, index), KeyCaches(), count()

    def step() -> float:
        meddle(next(steps), keys)
        return 0.0

    with stage.connect(f"w{index}") as connection:
        device = Device(
            index=index,
            compute=OwnCompute(DATA, worker.half.parameters, NETWORK.bind(worker.half.parameters)),
            parameters=worker.half.parameters,
            data=DATA,
            fingerprint=NETWORK.layout.fingerprint,
            size=SIZE,
            step=step,
            connection=connection,
            clock=EmulatedClock(1.0),
            keys=keys if stage.config.SENDS_KEYS else None,
        )
        device.join()
        drive(worker.loop(), device)


def live(
    stage: Any, meddle: Callable[[int, KeyCaches], None] = lambda step, keys: None
) -> dict[tuple[int, int], tuple[int, int]]:
    """Trains over real sockets; returns the bytes in each update's row. ``meddle`` is w0's."""
    nothing = lambda step, keys: None  # noqa: E731
    threads = [
        threading.Thread(target=work, args=(stage, index, nothing if index else meddle))
        for index in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stage.server.training.record.spool.flush()
    return volumes(SpoolReader(stage.folder / "updates.bin").read())


def simulated(
    config: AlgorithmConfig, *, updates: int
) -> tuple[Vector, dict[tuple[int, int], tuple[int, int]]]:
    """The same training on a virtual clock: the final model, and the bytes."""
    events, book = EventQueue(), Book()
    path = LinkPath(Bucket(inf, 0), (Hop(0.01, 0.0, "normal"), Hop(0.0, 0.0, "normal")), 0.0, 0.02)

    def build(number: int, vector: Vector) -> tuple[Mapping[int, SimulatedWorker], Learner]:
        torch.set_num_threads(1)  # those of the parent are not in a forked process
        bound = NETWORK.bind(vector[:SIZE])
        workers = {
            index: SimulatedWorker(index, made(config, index), lambda: 1.0) for index in range(2)
        }
        return workers, Learner(DATA, OwnCompute(DATA, vector[:SIZE], bound))

    rng = np.random.default_rng(1)  # as in the stage
    initial = rng.normal(size=SIZE).astype(np.float32)
    half = config.server(NETWORK.layout, 2, parameters=initial, rng=rng)
    with Pool(forked(build, workers=2), workers=2, size=2 * SIZE + SLACK, processes=1) as pool:
        engine = Engine(
            server=Server(half, StopRule(updates=updates)),
            workers=pool,
            devices=[
                DeviceModel(
                    *(1.0, path, path),
                    draw_think=lambda: 0.0,
                    rng=np.random.default_rng(0),
                    keys=KeyedLinks() if config.SENDS_KEYS else None,
                )
                for _ in range(2)
            ],
            events=events,
            uplink=FairLink(events, inf),
            downlink=FairLink(events, inf),
            queue=ServiceQueue(0.0),
            schedule=Schedule(updates=None, seconds=1e6),
            images=np.arange(1),
            recorder=Recorder([book], time_scale=1.0, clock=virtual_clock(events)),
        )
        engine.run()
    return half.parameters, volumes(np.array(book.rows))


def volumes(rows: Any) -> dict[tuple[int, int], tuple[int, int]]:
    """Payload up and down of each update, by worker and number."""
    names = ("worker", "sequence", "payload_up_bytes", "payload_down_bytes")
    columns = [rows[name].tolist() for name in names]
    return {(w, n): (up, down) for w, n, up, down in zip(*columns, strict=True)}


@pytest.mark.parametrize(
    "config",
    [
        PlumpDp(name="plump-dp"),
        QuantDp(name="quant-dp", bucket=16),
        SlimDp(name="slim-dp", core_rounds=1),
        SlimDp(name="slim-dp", core_rounds=10),
        SlimDp(name="slim-dp", core_rounds=50),
    ],
    ids=lambda config: f"{config.name}-{getattr(config, 'core_rounds', '')}",
)
def test_bytes_and_models_match_a_simulation(
    begin: Callable[..., Any], config: AlgorithmConfig
) -> None:
    stage = begin(NETWORK.layout, updates=2 * ROUNDS, config=config)
    model, expected = simulated(config, updates=2 * ROUNDS)
    assert len(expected) == 2 * ROUNDS
    assert live(stage) == expected
    assert stage.half.parameters.tobytes() == model.tobytes()


def test_slim_dp_of_all_coordinates_is_bit_identical_to_plump_dp(begin: Callable[..., Any]) -> None:
    """With momentum and weight decay; live, and compared with a simulated Plump-DP."""
    options = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    slim = SlimDp(name="slim-dp", alpha=1.0, epsilon=0.0, **options)
    stage = begin(NETWORK.layout, updates=2 * ROUNDS, config=slim)
    live(stage)
    plump, _ = simulated(PlumpDp(name="plump-dp", **options), updates=2 * ROUNDS)
    assert stage.half.parameters.tobytes() == plump.tobytes()
    assert simulated(slim, updates=2 * ROUNDS)[0].tobytes() == plump.tobytes()


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_dropped_cache_costs_one_miss(begin: Callable[..., Any], direction: str) -> None:
    """The server's cache of pushes, or the worker's of replies; both in mid-training."""
    config = SlimDp(name="slim-dp")
    stage = begin(NETWORK.layout, updates=2 * ROUNDS, config=config)

    def drop(step: int, keys: KeyCaches) -> None:
        if step == 5:
            cache = stage.server.training.keys.caches[0].up if direction == "up" else keys.down
            cache.drop()

    found = live(stage, drop)
    model, expected = simulated(config, updates=2 * ROUNDS)
    assert stage.half.parameters.tobytes() == model.tobytes()
    lines = (stage.folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    (missed,) = [one for line in lines if (one := json.loads(line))["event"] == "keys_missed"]
    assert (missed["node"], missed["direction"]) == ("w0", direction)
    different = {key for key in expected if found[key] != expected[key]}
    core = sizes(SIZE, 0.3, 0.15).core
    ((worker, number),) = different
    place = 0 if direction == "up" else 1
    # Its keys were sent once more; a reply is in the row of the update that builds on it.
    assert (worker, number) == (0, 6 + place)
    assert found[0, 6 + place][place] - expected[0, 6 + place][place] == 4 * core


def keyed(core: list[int], explorer: list[int], *, signed: list[int] | None = None) -> Keyed:
    """A payload of ones; ``signed``: the keys of its signature, by default those of the core."""
    keys, others = (np.array(one, np.int32) for one in (core, explorer))
    signature = signature_of(keys if signed is None else np.array(signed, np.int32))
    ones = np.ones(len(core) + len(explorer), np.float32)
    return Keyed(signature, keys, ones[: len(core)], others, ones[len(core) :])


def quantized(*scales: float) -> Quantized:
    """Levels of one in each of five buckets: tensors of 20, 5, 15 and 3 entries, 16 per bucket."""
    return Quantized(np.array(scales, np.float32), np.ones(SIZE, np.int8))


SLIM = SlimDp(name="slim-dp")
QUANT = QuantDp(name="quant-dp", bucket=16)
REFUSED = [
    (SLIM, keyed([1, SIZE], []), "core keys must increase"),
    (SLIM, keyed([-1, 1], []), "core keys must increase"),
    (SLIM, keyed([1, 1], []), "core keys must increase"),
    (SLIM, keyed([2, 1], []), "core keys must increase"),
    (SLIM, keyed([1, 2], [4, 3]), "explorer keys must increase"),
    (SLIM, keyed([1, 2], [3, 3]), "explorer keys must increase"),
    (SLIM, keyed([1, 2], [SIZE]), "explorer keys must increase"),
    (SLIM, keyed([1, 2], [2, 3]), "1 keys are in the core and in the explorer"),
    (SLIM, keyed([1, 2], [], signed=[1, 3]), "the signature is not that"),
    (QUANT, quantized(1, 1, 1, 1), "4 scales, expected one for each of 5 buckets"),
    (QUANT, quantized(1, 1, 1, 1, 1, 1), "6 scales, expected one for each of 5 buckets"),
    (QUANT, quantized(1, 1, -1, 1, 1), "a scale is negative"),
    (QUANT, quantized(1, 1, np.nan, 1, 1), "NaN or infinite"),
    (QUANT, quantized(1, 1, np.inf, 1, 1), "NaN or infinite"),
]


@pytest.mark.parametrize("config", [SLIM, QUANT], ids=lambda config: config.name)
def test_refused_payloads_are_counted_and_change_nothing(
    begin: Callable[..., Any], config: AlgorithmConfig
) -> None:
    """Afterwards a push without its keys is refused too: no keys of the others were kept."""
    refused = [one[1:] for one in REFUSED if one[0] is config]
    stage = begin(NETWORK.layout, updates=10, config=config)
    before = stage.half.parameters.copy()

    def pushed(payload: Payload) -> bytes:
        update = Update(payload, 0, samples=2)
        return encode_push(PushMessage(0, 1, NETWORK.layout.fingerprint, update, Timing())).data

    with stage.connect("w0") as first, stage.connect("w1") as second:
        for worker, connection in enumerate((first, second)):
            request = ps_pb2.JoinRequest(worker=worker, fingerprint=NETWORK.layout.fingerprint)
            connection.call(methods.JOIN, request.SerializeToString())
        first.call(methods.PULL, ps_pb2.PullRequest(worker=0).SerializeToString())
        for payload, reason in refused:
            with pytest.raises(RejectedError, match=reason):
                first.call(methods.EXCHANGE, pushed(payload))
        whole = keyed([1, 2], [])
        with pytest.raises(RejectedError) as unknown:
            first.call(methods.EXCHANGE, pushed(replace(whole, core=whole.core[:0])))
    assert isinstance(unknown.value, UnknownKeysError) == (config is SLIM)
    assert stage.counts()["FAILED_PRECONDITION"] == len(refused) + (config is QUANT)
    assert stage.counts()["NOT_FOUND"] == (config is SLIM)
    assert stage.half.parameters.tobytes() == before.tobytes()
    assert stage.half.version == 0
