"""Rounds with over-selection, deadlines and late updates, worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from testbed.algorithms import FedAvg
from testbed.algorithms.base import Applied, Stream
from testbed.algorithms.parts.federated import RoundRules
from testbed.algorithms.selection import Oort

GroupOf = Any
"""Makes some workers and a server on two parameters that begin at 8 and 16; see conftest.py."""


def group(group_of: GroupOf, workers: int, *, fraction: float = 1.0, **rules: Any) -> Any:
    """Workers that push after one batch of ten, with a learning rate of 1/2."""
    options = {"fraction": fraction, "learning_rate": 0.5, "rounds": rules}
    made = group_of(FedAvg.model_validate({"name": "fedavg", **options}), workers, pulled=False)
    for worker in made.workers:
        worker.next_batch_size(Stream(batch_size=10, own=10), 0.0)
    return made


def ready(group: Any) -> list[int]:
    return [index for index in range(len(group.workers)) if group.server.ready(index)]


def test_the_first_of_those_chosen_end_the_round_and_the_last_is_dropped(group_of: Any) -> None:
    """K = 2 of M = 3 of four workers; the third arrives during the next round."""
    made = group(group_of, 4, fraction=0.5, over_selection=1.5)
    first, second, third = ready(made)
    for index in (first, second, third):
        made.pull(index)
    assert made.push(first, 4, 0) == ()
    assert set(made.server.awaited()) == {second, third}
    applied = made.push(second, 8, 0)
    assert [(one.worker, one.step_scale) for one in applied] == sorted([(first, 1), (second, 1)])
    assert made.server.parameters.tolist() == [5, 16]  # 8 - (4 + 8) / 2 / 2
    assert made.push(third, 100, 100) == ()
    now = ready(made)
    for index in now[:2]:
        made.pull(index)
        applied = made.push(index, 0, 0)
    (late,) = [one for one in applied if one.step_scale == 0]
    assert late == Applied(third, late.version, 2, sigma_mean=1.0, sigma_max=1, step_scale=0.0)
    assert made.server.version == 5
    assert made.server.parameters.tolist() == [5, 16]


def test_a_late_update_is_damped_by_hand(group_of: Any) -> None:
    """(1 + 3)^-0.5 = 1/2 of U = 8, three rounds late, and U = 2: (4 + 2) / 2 = 3 off."""
    made = group(group_of, 2, deadline="10s", late="damp", damping=0.5)
    for index in (0, 1):
        made.pull(index, now=0.0)
    assert made.push(0, 0, 0, now=9.0) == ()
    assert made.server.next_tick(9.0) == 10
    assert [one.worker for one in made.server.tick(10.0).applied] == [0]
    for now in (20.0, 25.0):  # w1 is still training: these rounds have w0 alone
        made.pull(0, now=now)
        assert len(made.push(0, 0, 0, now=now + 2)) == 1
    made.pull(0, now=30.0)
    assert made.push(1, 16, 0, now=31.0) == ()
    (mine, late) = made.push(0, 4, 0, now=32.0)
    assert mine == Applied(0, 3)
    assert late == Applied(1, 4, 3, sigma_mean=3.0, sigma_max=3, step_scale=0.5)
    assert made.server.parameters.tolist() == [5, 16]


def test_a_late_update_beyond_the_limit_is_dropped() -> None:
    rules = RoundRules(deadline="1s", late="damp", damping=1, max_staleness=2)
    assert [rules.scale(rounds) for rounds in range(4)] == [1, 1 / 2, 1 / 3, 0]


def test_a_deadline_without_an_update_chooses_further_workers(group_of: Any) -> None:
    made = group(group_of, 2, fraction=0.5, deadline="10s")
    (slow,) = ready(made)
    made.pull(slow, now=0.0)
    assert made.server.tick(10.0).applied == ()
    assert ready(made) == [0, 1]
    assert made.server.next_tick(10.0) == 20
    made.pull(1 - slow, now=10.0)
    (applied,) = made.push(slow, 4, 0, now=12.0)
    assert (applied.worker, applied.step_scale) == (slow, 1)  # the model has not changed meanwhile


def test_a_round_begins_once_enough_workers_wait(group_of: Any) -> None:
    made = group(group_of, 3, min_available=3)
    for index in range(3):
        made.pull(index)
    made.push(0, 0, 0)
    made.server.leave(2, 1.0)
    made.push(1, 0, 0)
    assert ready(made) == []
    made.server.join(2)
    assert ready(made) == [0, 1, 2]


def test_workers_report_losses_to_a_selection_that_takes_them(group_of: Any) -> None:
    """Losses 1 and 2 of 10 and 5 samples: a mean of 4/3, and of the squares 2."""
    made = group_of(FedAvg(name="fedavg", select=Oort(name="oort")), 1)
    worker = made.workers[0]
    for loss, samples in ((1.0, 10), (2.0, 5)):
        worker.next_batch_size(Stream(batch_size=10, own=15), 0.0)
        worker.loss = loss
        update = worker.step(np.zeros(2, np.float32), samples, 0.0)
    assert update.note == {"loss": pytest.approx(4 / 3), "squared_loss": 2}


@pytest.mark.parametrize("rules", [{"damping": 1}, {"max_staleness": 3}, {"late": "damp"}])
def test_rules_for_late_updates_need_such_updates(rules: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="late"):
        RoundRules.model_validate(rules)
