"""SCAFFOLD, q-FedAvg and TERM, worked by hand. Most numbers are exact in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from vectors import floats

from testbed.algorithms import QFedAvg, Scaffold, Term
from testbed.algorithms.base import Stream, Update
from testbed.algorithms.optimizers import Adam
from testbed.errors import RejectedError
from testbed.payloads import Dense


def pushed(group: Any, index: int, *gradients: tuple[float, float], loss: float = 1.0) -> Update:
    """The update of a worker whose epoch has as many batches of ten."""
    worker, stream = group.workers[index], Stream(batch_size=10, own=10 * len(gradients))
    update = None
    for gradient in gradients:
        worker.next_batch_size(stream, 0.0)
        worker.loss = loss
        update = worker.step(floats(*gradient), 10, 0.0)
    assert update is not None
    return update


def test_scaffold_by_hand(group_of: Any) -> None:
    """η_l = 1/2, two steps: w0's gradients are (4, 0), w1's (0, 8), in both rounds.

    Round 1: x - y = (4, 0) and (0, 8); c_i = the gradient, x = (6, 12), c = (2, 4).
    Round 2: w0 steps by (4, 0) - (4, 0) + (2, 4), w1 by (0, 8) - (0, 8) + (2, 4): both by (2, 4),
    twice: x - y = (2, 4) each, x = (4, 8); c_i⁺ = c_i - c + (2, 4) = c_i, so c stays.
    """
    group = group_of(Scaffold(name="scaffold", learning_rate=0.5), 2)
    sent = [pushed(group, 0, (4, 0), (4, 0)), pushed(group, 1, (0, 8), (0, 8))]
    assert sent[0].note["control"].tolist() == [4, 0]
    for index, update in enumerate(sent):
        group.server.push(index, update, 0.0)
    assert group.server.parameters.tolist() == [6, 12]
    assert group.pull(0).note["control"].tolist() == [2, 4]
    group.pull(1)
    for index, gradient in enumerate(((4, 0), (0, 8))):
        update = pushed(group, index, gradient, gradient)
        assert update.payload.values.tolist() == [2, 4]
        assert update.note["control"].tolist() == [0, 0]
        group.server.push(index, update, 0.0)
    assert group.server.parameters.tolist() == [4, 8]
    assert group.pull(0).note["control"].tolist() == [2, 4]


def test_scaffold_takes_the_control_of_a_dropped_update_and_not_of_one_that_left(
    group_of: Any,
) -> None:
    """η_l = 1/2, one step each: w1's gradient (4, 0) comes a round late.

    Its c_1 is (4, 0), so c is (2, 0) until w1 leaves, although x never moved: w0's gradient is 0.
    """
    rules = {"deadline": "10s"}
    group = group_of(Scaffold.model_validate({"name": "scaffold", "rounds": rules}), 2)
    group.push(0, 0, 0, now=9.0)
    group.server.tick(10.0)
    group.pull(0, now=20.0)
    assert group.push(1, 4, 0, now=21.0) == ()
    applied = group.push(0, 0, 0, now=22.0)
    assert [one.step_scale for one in applied] == [1, 0]
    assert group.server.parameters.tolist() == [8, 16]
    assert group.pull(0, now=30.0).note["control"].tolist() == [2, 0]
    group.server.leave(1, 31.0)
    group.push(0, 0, 0, now=32.0)
    assert group.pull(0, now=40.0).note["control"].tolist() == [0, 0]


def test_scaffold_refuses_other_optimizers_and_updates_without_a_control(group_of: Any) -> None:
    with pytest.raises(ValidationError, match="SGD with a constant learning rate"):
        Scaffold(name="scaffold", optimizer=Adam(name="adam"))
    group = group_of(Scaffold(name="scaffold"), 1)
    for note in ({}, {"control": floats(1)}, {"control": 1.0}):
        with pytest.raises(RejectedError, match="no control variate of 2 values"):
            group.server.push(0, Update(Dense(floats(1, 2)), 0, 10, note=note), 0.0)


def test_qfedavg_by_hand(group_of: Any) -> None:
    """q = 1, L = 2: F = 1 and 3, Δw = (2, 0) and (0, 4): Σ F Δw = (2, 12).

    h = ‖Δw‖² + L F = 4 + 2 and 16 + 6: together 28.
    """
    group = group_of(QFedAvg(name="qfedavg", learning_rate=0.5), 2)
    group.server.push(0, pushed(group, 0, (2, 0), loss=1.0), 0.0)
    group.server.push(1, pushed(group, 1, (0, 4), loss=3.0), 0.0)
    expected = floats(8 - 2 / 28, 16 - 12 / 28)
    np.testing.assert_allclose(group.server.parameters, expected, rtol=1e-6)


def test_qfedavg_without_fairness_is_the_plain_mean(group_of: Any) -> None:
    """q = 0: Σ Δw / (2 L) = the mean of (1, 0) and (0, 2)."""
    group = group_of(QFedAvg(name="qfedavg", learning_rate=0.5, q=0), 2)
    group.server.push(0, pushed(group, 0, (2, 0), loss=0.0), 0.0)
    group.server.push(1, pushed(group, 1, (0, 4), loss=9.0), 0.0)
    assert group.server.parameters.tolist() == [7.5, 15]


def test_term_by_hand(group_of: Any) -> None:
    """t = ln 2, losses 1 and 3: weights 2 and 8 times 10 samples: 1/5 and 4/5.

    (1, 0) and (0, 2) off (8, 16): (8 - 1/5, 16 - 8/5). With t = -ln 2 it is 4/5 and 1/5, with 0 the
    mean.
    """
    for tilt, moved in ((np.log(2), (7.8, 14.4)), (-np.log(2), (7.2, 15.6)), (0.0, (7.5, 15))):
        group = group_of(Term(name="term", learning_rate=1.0, tilt=float(tilt)), 2)
        for index, (change, loss) in enumerate([((1, 0), 1.0), ((0, 2), 3.0)]):
            update = Update(Dense(np.array(change, np.float32)), 0, 10, note={"loss": loss})
            group.server.push(index, update, 0.0)
        np.testing.assert_allclose(group.server.parameters, moved, rtol=1e-6)


def test_term_with_large_losses_has_the_largest(group_of: Any) -> None:
    """e^1000 does not overflow: the weights are e^(-500) and 1."""
    group = group_of(Term(name="term", tilt=1.0), 2)
    for index, loss in enumerate((500.0, 1000.0)):
        update = Update(Dense(np.array([index + 1, 0], np.float32)), 0, 10, note={"loss": loss})
        group.server.push(index, update, 0.0)
    assert group.server.parameters.tolist() == [6, 16]


def test_term_refuses_an_update_without_a_loss(group_of: Any) -> None:
    group = group_of(Term(name="term"), 1)
    for note in ({}, {"loss": float("nan")}, {"loss": "high"}):
        with pytest.raises(RejectedError, match="expected a number"):
            group.server.push(0, Update(Dense(np.zeros(2, np.float32)), 0, 10, note=note), 0.0)


def test_qfedavg_refuses_an_update_without_a_loss(group_of: Any) -> None:
    group = group_of(QFedAvg(name="qfedavg"), 1)
    with pytest.raises(RejectedError, match="a loss of None"):
        group.server.push(0, Update(Dense(floats(1, 2)), 0, 10), 0.0)
