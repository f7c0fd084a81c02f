"""States as plain data: values survive a round trip, and shared parts stay shared."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.frame.effects import StandingOrders
from testbed.algorithms.frame.worker_session import WorkerSession
from testbed.errors import AlgorithmError, TestbedError
from testbed.simulation.links import Bucket
from testbed.simulation.worker import Paused
from testbed.values.state import PlainState, pack, unpack
from testbed.values.units import Duration


def written(state: PlainState) -> PlainState:
    """The state as read back from a file."""
    return PlainState(json.loads(json.dumps(state.tree)), state.arrays)


def again(value: object, **known: object) -> Any:
    return unpack(written(pack(value, known)), known)


@pytest.mark.parametrize(
    "value",
    [
        [None, True, 2**80, -0.1, inf, "text"],
        {1: "one", (2, 3): {4}, None: frozenset((5, 6))},
        deque([1, 2, 3], maxlen=3),
        Counter(a=2),
        [slice(0, 4), range(3)],
        WorkerSession(3, sequence=7, pulled=5),
        Paused(2, 0.5),
        StandingOrders(1),
    ],
)
def test_builtin_values_survive_a_round_trip(value: object) -> None:
    found = again(value)
    assert (found, type(found)) == (value, type(value))


def test_a_quantity_keeps_its_unit() -> None:
    assert repr(again([Duration(0.03)])) == "[Duration('30ms')]"


def test_arrays_keep_shape_and_type_and_are_copies() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    state = pack({"array": array, "scalar": np.float32(0.1)})
    array[:] = 0
    found = unpack(written(state))
    assert found["array"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["array"].dtype == np.int32
    assert (found["scalar"], found["scalar"].dtype) == (np.float32(0.1), np.float32)


def test_a_generator_continues_where_it_was() -> None:
    rng = np.random.default_rng(7)
    rng.uniform(size=5)
    assert again(rng).uniform() == rng.uniform()


def test_a_default_factory_is_kept() -> None:
    counts: defaultdict[int, int] = defaultdict(int, {1: 2})
    found = again(counts)
    assert (found[1], found[9]) == (2, 0)


def test_a_shared_object_stays_shared() -> None:
    shared = [1]
    ring: list[object] = [shared, shared]
    ring.append(ring)
    found = again(ring)
    assert found[0] is found[1]
    assert found[2] is found


def test_known_objects_are_referenced() -> None:
    model = np.zeros(3)
    found = again([model, model[:]], model=model)
    assert found[0] is model
    assert found[1] is not model


@dataclass
class Foreign:
    """A class that is not in the list."""


CALLS = (partial(WorkerSession.heard, WorkerSession(3)), WorkerSession(3).heard)


@pytest.mark.parametrize(
    "value", [Foreign(), lambda: 0, open, np.array([None]), iter([1]), Bucket(8.0, 100.0), *CALLS]
)
def test_values_that_cannot_be_packed_are_named(value: object) -> None:
    with pytest.raises(AlgorithmError, match=r"state\['here'\]"):
        pack({"here": value})


@pytest.mark.parametrize(
    "tree",
    [
        ["object", "os", "system", {}],
        ["object", "testbed.values.state", "pack", {}],
        ["object", "testbed.nowhere", "WorkerSession", {}],
        ["object", "testbed.values.user_code", "UserCode", {}],
        ["object", "testbed.algorithms.frame.worker_session", "WorkerSession", {"worker": 3}],
        ["object", "testbed.values.units", "Duration", {}],
        ["method", ["list"], "append"],
        ["method", ["known", "other"], "upper"],
        ["partial", ["known", "other"], ["tuple"], ["dict"]],
        ["planned", "pull", 0],
        ["defaultdict", ["testbed.values.user_code", "UserCode"]],
        ["deque", 2**80],
        ["generator", ["dict", ["bit_generator", "default_rng"]]],
        ["array", 3],
        ["again", 9],
        ["unheard of"],
        ["known", "model"],
    ],
)
def test_malformed_states_are_refused(tree: object) -> None:
    with pytest.raises(TestbedError, match="not a state"):
        unpack(PlainState(["list", tree], ()), {"other": "text"})
