"""Seconds of coding on the virtual clock, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from testbed.algorithms import Bsp, QuantDp, ScaDles, SlimDp
from testbed.algorithms.frame.stop import StopRule

World = Callable[..., Any]
Resumed = Callable[..., Any]
SLIM = SlimDp(name="slim-dp", alpha=0.5, epsilon=0.2, core_rounds=2)
CODEC = {
    # The model has 18 parameters: 10,000 s for a million of them are .18 s for it.
    "worker": {"select": "20000s", "extract": "10000s", "merge": "30000s", "add": "5000s"},
    "ps": {"select": "4000s", "extract": "2000s", "merge": "1000s"},
}


def at_once(worker: int) -> Callable[[], float]:
    return lambda: 0.0


def applied(book: Any) -> list[float]:
    """When each round of three updates was applied."""
    return [row["time_seconds"].item() for row in book.rows][::3]


def test_coding_takes_time_at_both_ends(world: World) -> None:
    """A message takes .01 s, a step 1 s.

    The first model arrives at .01, and is decoded until .10. Step until 1.10, selection (.36) and
    extraction (.18) until 1.64, at the server at 1.65. It merges three pushes, one after the other,
    .018 each: the round is over at 1.704. Selection (.072) and extraction (.036) once, until 1.812;
    with the workers at 1.822, merged (.54) at 2.362. Step until 3.362, extraction until 3.542, at
    the server at 3.552, merged at 3.606.
    """
    _, book = world(SLIM, StopRule(updates=6), think=at_once, codec=CODEC)
    assert applied(book) == pytest.approx([1.704, 3.606])
    second = book.rows[3]
    # The first call was from 1.10 to 2.362, and it was held at the server from 1.65 to 1.812.
    assert second["blocked_seconds"] == pytest.approx(0.162)
    assert second["transfer_seconds"] == pytest.approx(1.262 - 0.162)
    assert second["compute_seconds"] == pytest.approx(1.0)


def test_quantising_takes_time(world: World) -> None:
    """Step until 1.01, quantised (.18) until 1.19, at the server at 1.20.

    Three times dequantised and added (.027): 1.281. Quantised (.036) until 1.317, with the workers
    at 1.327, dequantised (.09) at 1.417. Step and coding until 2.597, at the server at 2.607, and
    2.688.
    """
    codec = {
        "worker": {"quantise": "10000s", "dequantise": "5000s"},
        "ps": {"quantise": "2000s", "dequantise": "1000s", "add": "500s"},
    }
    _, book = world(QuantDp(name="quant-dp"), StopRule(updates=6), think=at_once, codec=codec)
    assert applied(book) == pytest.approx([1.281, 2.688])


@pytest.mark.parametrize(
    ("options", "pushed"),
    [
        ({"delta": 1.0}, 1.01 + 0.36 + 0.18),
        ({"delta": 0.0}, 1.01 + 0.36),
        ({"delta": 0.0, "decide": "majority"}, 1.03 + 0.36),  # the vote takes .02
        ({"ratio": None}, 1.01),
    ],
)
def test_a_gradient_sent_whole_was_selected_from(
    world: World, options: dict[str, Any], pushed: float
) -> None:
    """Step until 1.01; selection takes .36 and extraction .18: an update arrives .01 later."""
    config = ScaDles.model_validate({"name": "scadles", "ratio": 0.1, **options})
    codec = {"worker": {"select": "20000s", "extract": "10000s"}}
    _, book = world(config, StopRule(updates=3), think=at_once, codec=codec)
    assert applied(book) == pytest.approx([pushed + 0.01])


def test_bytes_and_models_are_the_same_as_without_coding_times(world: World) -> None:
    stop = StopRule(updates=18)
    (plain, before), (coded, after) = (
        world(SLIM, stop, think=at_once, codec=codec) for codec in (None, CODEC)
    )
    assert coded.server.half.parameters.tobytes() == plain.server.half.parameters.tobytes()
    for column in ("payload_up_bytes", "payload_down_bytes", "sequence"):
        assert sorted(after.column(column)) == sorted(before.column(column))


def test_only_the_sum_of_dense_gradients_takes_time(world: World) -> None:
    """1.02 s, then .018 s for each of three; the reply costs nothing: 1.074, and 1.074 more."""
    codec = {"ps": {"add": "1000s", "extract": "9h", "quantise": "9h"}}
    _, book = world(Bsp(name="bsp"), StopRule(updates=6), think=at_once, codec=codec)
    assert applied(book) == pytest.approx([1.074, 2.148])


def test_a_worker_frozen_while_coding_is_delayed_by_that_time(world: World) -> None:
    """Frozen at 1.3 s, while coding, for .5 s: everything after that is .5 s later."""
    faults = [{"freeze": {"at": {"time": "1300ms"}, "workers": ("w1",), "for": "500ms"}}]
    _, book = world(SLIM, StopRule(updates=3), think=at_once, codec=CODEC, faults=faults)
    # The other two are merged by then; w1's push arrives at 2.15, and is merged in .018.
    assert applied(book) == pytest.approx([2.168])


def test_a_checkpoint_during_coding_is_resumed(world: World, resumed: Resumed) -> None:
    _, (_, rest) = resumed(partial(world, SLIM, StopRule(updates=12), codec=CODEC), slice(1, 2))
    assert len(rest.rows) == 6
