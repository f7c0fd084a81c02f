"""Selections, worked by hand."""

from __future__ import annotations

from math import inf, log, sqrt
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.base import Update
from testbed.algorithms.selection import ByAvailability, ByLoss, History, Oort, SelectionConfig
from testbed.algorithms.selection.base import by_weight
from testbed.algorithms.selection.custom import chosen
from testbed.errors import AlgorithmError
from testbed.payloads import Dense

RNG = np.random.default_rng(0)


def seen(worker: int, history: History, *, samples: int = 10, seconds: float = 1, loss: float = 1):
    """The worker's update has arrived."""
    note = {"loss": loss, "squared_loss": loss**2}
    update = Update(Dense(np.zeros(2, np.float32)), 0, samples, note=note)
    history.arrived(worker, update, seconds=seconds)


def test_a_history_has_what_a_server_sees() -> None:
    history = History()
    history.begin([0, 1])
    history.choose([1])
    seen(1, history, samples=4, seconds=2.5, loss=3)
    history.end([1])
    history.begin([1])
    assert (history.round, history.participants) == (2, [1])
    assert (history.connected, history.chosen, history.delivered) == ({0: 1, 1: 2}, {1: 1}, {1: 1})
    assert (history.samples, history.durations, history.losses) == ({1: 4}, {1: 2.5}, {1: 3})
    assert history.utility(1) == 12  # 4 √9
    seen(1, history, loss=inf)
    assert history.losses == {1: 3}  # a diverged loss says nothing


def test_a_choice_by_loss_has_the_highest_and_those_never_seen() -> None:
    history, config = History(), ByLoss(name="loss", candidates=4)
    for worker, loss in ((0, 0.5), (1, 2.0), (2, 1.0)):
        seen(worker, history, loss=loss)
    options: dict[str, Any] = {"history": history, "state": {}, "rng": RNG}
    assert config.choose([0, 1, 2, 3], 2, **options) == [3, 1]
    assert config.choose([0, 2], 1, **options) == [2]


def test_availability_counts_connections_and_updates() -> None:
    """Of ten rounds: w0 in all, delivered 1 of 4; w1 in 6, 3 of 3; w2 in 10, 1 of 1."""
    history = History(round=10, connected={0: 10, 1: 6, 2: 10}, chosen={0: 4, 1: 3, 2: 1})
    history.delivered |= {0: 1, 1: 3, 2: 1}  # 1 x 2/5, 0.6 x 4/4, 1 x 2/2
    options: dict[str, Any] = {"history": history, "state": {}, "rng": RNG}
    most, least = ByAvailability(name="availability"), {"name": "availability", "prefer": "least"}
    assert most.choose([0, 1, 2], 2, **options) == [2, 1]
    assert ByAvailability.model_validate(least).choose([0, 1, 2], 1, **options) == [0]


def test_oorts_utility_by_hand() -> None:
    """T = 4 s, α = 2: w0 has 10 x 1; w1 has 10 x 2, but took 8 s, twice as long: a quarter."""
    history, config = (
        History(),
        Oort(name="oort", exploration=0, least=0, pacer_step="4s", clip=100),
    )
    history.begin([0, 1])
    seen(0, history, loss=1, seconds=3)
    seen(1, history, loss=2, seconds=8)
    history.begin([0, 1])
    bonus = sqrt(0.1 * log(2) / 1)
    assert (20 + bonus) / 4 < 0.95 * (10 + bonus)  # so w1 is below the cut-off
    options: dict[str, Any] = {"history": history, "state": {}, "rng": RNG}
    assert [config.choose([0, 1], 1, **options) for _ in range(20)] == [[0]] * 20


def test_oort_explores_less_and_less() -> None:
    """ε = 0.5 at first, halved in each round, at least 0.1; of ten, so 5, 2 (of 2.5), 1."""
    config = Oort(name="oort", exploration=0.5, decay=0.5, least=0.1)
    for round_, expected in ((1, 5), (2, 2), (4, 1)):
        history = History()
        for worker in range(10):
            seen(worker, history)
        history.round, history.last = round_, dict.fromkeys(range(10), 1)
        found = config.choose(range(20), 10, history=history, state={}, rng=RNG)
        assert (len(set(found)), sum(one >= 10 for one in found)) == (10, expected)


def test_oorts_pacer_allows_slower_workers_when_utility_falls() -> None:
    """W = 1: 10 √4 = 20 fell to 10 √1 = 10, so T = 20 s + 20 s; then it rose to 30: no change."""
    history, state = History(), dict[str, Any]()
    config = Oort(name="oort", window=1)
    for loss, duration in ((2, 20), (1, 40), (3, 40)):
        history.begin([0])
        seen(0, history, loss=loss)
        history.end([0])
        config.choose([0], 1, history=history, state=state, rng=RNG)
        assert state["duration"] == duration


def test_a_draw_by_weight_follows_the_weights() -> None:
    drawn = [by_weight({0: 3.0, 1: 1.0, 2: 0.0}, 1, RNG)[0] for _ in range(2000)]
    assert drawn.count(0) / 2000 == pytest.approx(0.75, abs=0.04)  # four standard deviations
    assert 2 not in drawn
    assert by_weight({0: 0.0, 1: 1.0}, 2, RNG) == [1, 0]


@pytest.mark.parametrize(
    ("choice", "flaw"),
    [
        ([], "chose none"),
        ([9], "w9, which is not a candidate"),
        ([0, 0], "each once"),
        ([0, 1, 2], "at most 2"),
        (7, "expected a list"),
    ],
)
def test_a_choice_of_others_is_an_error(choice: Any, flaw: str) -> None:
    class Own(SelectionConfig):
        def choose(self, candidates: Any, count: int, **given: Any) -> Any:
            return choice

    with pytest.raises(AlgorithmError, match=flaw) as error:
        chosen(Own(), [0, 1, 2], 2, History(), {}, RNG)
    assert "test_selection.py:" in error.value.message
