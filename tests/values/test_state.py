"""States as plain data: what goes in comes out, the same parts are the same again."""

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
    """As a file gives it back."""
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
def test_what_python_has_comes_back(value: object) -> None:
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


def test_a_generator_goes_on_where_it_was() -> None:
    rng = np.random.default_rng(7)
    rng.uniform(size=5)
    assert again(rng).uniform() == rng.uniform()


def test_a_default_goes_on_to_be_made() -> None:
    counts: defaultdict[int, int] = defaultdict(int, {1: 2})
    found = again(counts)
    assert (found[1], found[9]) == (2, 0)


def test_one_object_in_two_places_is_one_again() -> None:
    shared = [1]
    ring: list[object] = [shared, shared]
    ring.append(ring)
    found = again(ring)
    assert found[0] is found[1]
    assert found[2] is found


def test_what_is_known_is_referred_to() -> None:
    model = np.zeros(3)
    found = again([model, model[:]], model=model)
    assert found[0] is model
    assert found[1] is not model


@dataclass
class Foreign:
    """Of no file of ours."""


CALLS = (partial(WorkerSession.heard, WorkerSession(3)), WorkerSession(3).heard)


@pytest.mark.parametrize(
    "value", [Foreign(), lambda: 0, open, np.array([None]), iter([1]), Bucket(8.0, 100.0), *CALLS]
)
def test_what_cannot_be_packed_is_named(value: object) -> None:
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
def test_what_nobody_has_packed_is_refused(tree: object) -> None:
    with pytest.raises(TestbedError, match="not a state"):
        unpack(PlainState(["list", tree], ()), {"other": "text"})
