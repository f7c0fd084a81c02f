"""Checkpoints that were damaged or edited: none is executed, and the file is named."""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import AdaComp, SlimDp
from testbed.algorithms.base import AlgorithmConfig, Stream
from testbed.algorithms.frame.stop import StopRule
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.errors import DataError
from testbed.payloads.layout import Layout
from testbed.scenario.experiment import Constant
from testbed.simulation.checkpoint import restore, state_of
from testbed.simulation.engine import Engine
from testbed.simulation.plans import EnginePlans
from testbed.simulation.worker import SimulatedWorker
from testbed.telemetry.checkpoints import About, read_checkpoint, write_checkpoint
from testbed.values.state import PlainState, pack, unpack

World = Callable[..., Any]
LAYOUT = Layout(("weight", "bias"), ((5, 3), (3,)))  # as in the made-up world
FAULTS: tuple[dict[str, Any], ...] = (
    {"freeze": {"at": {"time": "2s"}, "workers": ("w1",), "for": "3s", "every": "6s"}},
    {"partition": {"at": {"time": "1s"}, "workers": ("w0", "w1"), "for": "2500ms"}},
    {"link": {"at": {"time": "5s"}, "workers": ("w2",), "up": {"rate": "4kbit", "delay": "1s"}}},
)
ADACOMP, SLIM_DP = AdaComp(name="adacomp", ratio=0.2), SlimDp(name="slim-dp", core_rounds=3)


class Over(Exception):  # noqa: N818 - not an error
    """Ends an attack, and with it the world that it used."""


def state_in(world: World, config: AlgorithmConfig) -> PlainState:
    states: list[PlainState] = []
    stop = StopRule(updates=18)
    world(config, stop, faults=FAULTS, save=lambda one: states.append(state_of(one)))
    return states[len(states) // 2]


class Watch:
    """Asserts that this process executes, imports and opens nothing while it is on.

    Its hook cannot be removed, and slows all later tests of the process: there is none before the
    first use.
    """

    def __init__(self) -> None:
        self.on, self.seen, self.hooked = False, list[str](), False

    def _receive_orders(self, event: str, _: object) -> None:
        if self.on and event.startswith(("exec", "compile", "import", "open", "os.", "subprocess")):
            self.seen.append(event)

    @contextmanager
    def watching(self) -> Iterator[None]:
        if not self.hooked:
            sys.addaudithook(self._receive_orders)
        self.on = self.hooked = True
        try:
            yield
        finally:
            self.on = False
        assert self.seen == []


WATCH = Watch()

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 10**30, float("nan"), "os", "", [], {}, ["list"], ["dict"]),
    ["object", "os", "system", {}],
    ["object", "testbed.values.user_code", "UserCode", {"path": "/tmp/x.py", "sees": []}],
    [
        "object",
        "testbed.algorithms.frame.worker_session",
        "WorkerSession",
        {"worker": 1, "__class__": 3},
    ],
    ["object", "testbed.simulation.event_queue", "ScheduledEvent", {"callback": "exit"}],
    ["method", ["known", "engine"], "run"],
    ["partial", ["known", "engine"], ["tuple"], ["dict"]],
    ["planned", "run"],
    ["planned", "pull", 99],
    ["planned", "push", ["known", "engine"]],
    ["planned", "latency", ["known", "uplink"], 1.0, ["known", "engine"]],
    ["planned", "all-sent", ["known", "uplink"], ["planned", "look"]],
    ["named", "testbed.simulation.worker", "Cycle", 0],
    ["plain", "testbed.values.units", "Duration", "1s"],
    ["generator", ["dict", ["bit_generator", "default_rng"]]],
    ["defaultdict", "exec"],
    ["deque", 10**30, 1],
    ["array", 10**9],
    ["again", 0],
    ["packed", None, 0, 1],
)


def mutations(state: PlainState, count: int) -> Iterator[None]:
    """Each with one part of its tree replaced: by a hostile value, or by another part of it."""
    places, rng = list(_places(state.tree)), random.Random(1)
    for _ in range(count):
        (holder, key), (other, its) = rng.choice(places), rng.choice(places)
        was, holder[key] = holder[key], rng.choice([rng.choice(HOSTILE), other[its]])
        yield
        holder[key] = was


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys: Any = range(len(tree)) if isinstance(tree, list) else tree.keys()
    for key in keys:
        yield tree, key
        if isinstance(tree[key], list | dict):
            yield from _places(tree[key])


@dataclass
class Alone:
    """The workers in this process, which read their states like those of a pool."""

    config: AlgorithmConfig

    def restore(self, packed: PlainState) -> None:
        for index, its in unpack(packed)["workers"].items():
            half = self.config.worker(LAYOUT, 3, rng=np.random.default_rng(10))
            shard = Shard(np.arange(20 * index, 20 * index + 20), np.random.default_rng(20))
            draws = np.random.default_rng(30)
            worker = Worker(half, Stream(2), shard, think=lambda: 0.0, draws=draws)
            SimulatedWorker(index, worker, Constant(1.0)).restore(its)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (ADACOMP, 200),
        (SLIM_DP, 200),
        pytest.param(ADACOMP, 1000, marks=pytest.mark.slow),
        pytest.param(SLIM_DP, 1000, marks=pytest.mark.slow),
        pytest.param(ADACOMP, 10_000, marks=pytest.mark.nightly),
        pytest.param(SLIM_DP, 10_000, marks=pytest.mark.nightly),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_an_edited_state_executes_nothing(
    world: World, config: AlgorithmConfig, count: int
) -> None:
    state, taken = state_in(world, config), 0
    state = replace(state, tree=json.loads(json.dumps(state.tree)))

    def attack(engine: Engine) -> None:
        nonlocal taken
        engine.workers = Alone(config)  # type: ignore[assignment]  # restored, but not run
        for _ in mutations(state, count):
            with WATCH.watching(), suppress(DataError):
                unpack(state, engine.parts, EnginePlans(engine))  # most fail here at once
                restore(copy.deepcopy(engine), state)
                taken += 1
        raise Over

    with pytest.raises(Over):
        world(config, StopRule(updates=9), faults=FAULTS, planned=attack)
    assert taken < count / 2  # numbers replaced by numbers, for example


def test_a_pool_refuses_it_too(world: World) -> None:
    """A worker's process reads its state: it reports the refusal, and exits."""
    state = state_in(world, ADACOMP)
    text = json.dumps(state.tree)
    assert text.count('"_obeyed"') == 3
    tree = json.loads(text.replace('"_obeyed"', '"_obeys"', 1))
    with pytest.raises(DataError, match="not a state of this run"):
        world(ADACOMP, StopRule(updates=18), faults=FAULTS, state=replace(state, tree=tree))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    about = About("simulation", "abc", version=9, time_seconds=1.0, note={"parts": 0})
    write_checkpoint(path, about, pack({"model": np.arange(9.0), "seen": [1, 2, "three"]}))
    return path


def changed(data: bytes, rng: random.Random) -> bytes:
    at, end = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    match rng.randrange(6):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data + bytes(rng.randrange(1, 100))
        case 3:
            return data[:at] + data[end + 1 :]
        case 4:
            return data[:at] + b"0" + data[at:]
    return data[:at] + bytes(255 - one for one in data[at : end + 1]) + data[end + 1 :]


def test_any_change_of_the_file_is_detected(file: Path) -> None:
    data, rng = file.read_bytes(), random.Random(2)
    assert read_checkpoint(file, kind="simulation", scenario="abc")[0].version == 9
    for _ in range(2000):
        file.write_bytes(changed(data, rng))
        with pytest.raises(DataError, match=file.name) as error:
            read_checkpoint(file, kind="simulation", scenario="abc")
        assert error.value.exit_code == 4
