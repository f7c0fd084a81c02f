"""Core keys on modelled links: exact bytes, and the cost of a lost cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testbed.algorithms import QuantDp, SlimDp
from testbed.algorithms.frame.stop import StopRule
from testbed.payloads.core_explorer import sizes
from testbed.simulation.engine import Engine

World = Callable[..., Any]
N = 18  # weight 5 x 3, bias 3
CORE, EXPLORER = sizes(N, 0.5, 0.2)
"""round(0.3 18) = round(5.4) = 5, and round(9) - 5 = 4."""

SENT = 8 + 4 * CORE + 8 * EXPLORER


def slim(q: int) -> SlimDp:
    return SlimDp(name="slim-dp", alpha=0.5, epsilon=0.2, core_rounds=q)


def in_rounds(column: list[int]) -> list[set[int]]:
    """The contents of each round of three updates."""
    return [set(column[start : start + 3]) for start in range(0, len(column), 3)]


@pytest.mark.parametrize("q", [1, 10, 50])
def test_core_keys_travel_once(world: World, q: int) -> None:
    _, book = world(slim(q), StopRule(updates=36))
    for name, rounds in (("payload_up_bytes", 12), ("payload_down_bytes", 11)):
        sent = in_rounds(book.column(name))
        down = name == "payload_down_bytes"
        if down:
            assert sent.pop(0) == {4 * N}  # the whole model
        assert len(sent) == rounds
        assert sent[0] == {SENT + 4 * CORE}
        for place, sizes_ in enumerate(sent):  # a new core may be the old one
            assert sizes_ <= ({SENT} if place % q else {SENT, SENT + 4 * CORE})
    assert book.missed == []


def test_quant_dp_sends_a_byte_per_value_and_four_per_bucket(world: World) -> None:
    _, book = world(QuantDp(name="quant-dp"), StopRule(updates=9))
    assert set(book.column("payload_up_bytes")) == {N + 4 * 2}  # two tensors
    assert in_rounds(book.column("payload_down_bytes")) == [{4 * N}, {N + 8}, {N + 8}]


def test_a_worker_that_rejoins_costs_one_miss(world: World) -> None:
    """Its first push has its own core; the server assumes that it knows the server's."""
    faults = [
        {"kill": {"at": {"time": "5s"}, "workers": ("w1",)}},
        {"join": {"at": {"time": "6s"}, "workers": ("w1",)}},
    ]
    engine, book = world(slim(50), StopRule(updates=36), faults=faults)
    (missed,) = book.missed
    assert (missed.node, missed.direction, missed.payload_bytes) == ("w1", "down", SENT)
    rows = [row for row in book.rows if row["worker"] == 1]
    up = [row["payload_up_bytes"].item() for row in rows]
    down = [row["payload_down_bytes"].item() for row in rows]
    again = down.index(4 * N, 1)
    assert up[0] == up[again] == SENT + 4 * CORE
    assert down[again + 1] == SENT + 4 * CORE  # repeated with its keys
    assert set(up[again + 1 :]) == set(down[again + 2 :]) == {SENT}
    assert engine.server.version >= 36


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_dropped_cache_costs_one_miss(world: World, direction: str) -> None:
    config, stop = slim(50), StopRule(updates=30)
    whole, _ = world(config, stop)

    def forget(engine: Engine) -> None:
        def drop(now: float) -> None:
            keys = engine.devices[0].keys
            assert keys is not None
            receiver = keys.server.up if direction == "up" else keys.worker.down
            receiver.drop()

        engine.events.at(5.0, drop)

    engine, book = world(config, stop, planned=forget)
    assert [(one.node, one.direction) for one in book.missed] == [("w0", direction)]
    assert engine.server.half.parameters.tobytes() == whole.server.half.parameters.tobytes()
