"""ASGD, worked by hand. All numbers are exact in float32 unless a test says otherwise."""

import numpy as np
import pytest
from vectors import floats

from testbed.algorithms import AdaComp, Asgd, CompAsgd
from testbed.algorithms.base import Applied, ServerHalf, Update
from testbed.errors import RejectedError
from testbed.payloads import Dense, Payload, Sparse
from testbed.payloads.layout import Layout

RNG = np.random.default_rng(0)
LAYOUT = Layout(("weight", "bias"), ((2,), (1,)))
W1, W2, W3 = 1, 2, 3


def server(*parameters: float, learning_rate: float = 0.5) -> ServerHalf:
    config = Asgd(name="asgd", learning_rate=learning_rate)
    return config.server(LAYOUT, 3, parameters=floats(*parameters), rng=RNG)


def dense(version: int, *values: float) -> Update:
    return Update(Dense(floats(*values)), version, samples=10)


def test_figure_2_of_the_paper() -> None:
    """w2 pulls at i - 3, two others push before it does: its staleness is 2."""
    half = server(8, 8, 8)
    j = half.pull(W2, 0.0).version
    half.push(W1, dense(j, 1, 0, 0), 1.0)
    half.push(W3, dense(j, 1, 0, 0), 2.0)
    (applied,) = half.push(W2, dense(j, 0, 4, 8), 3.0)
    assert applied == Applied(W2, 2, staleness=2, sigma_mean=2, sigma_max=2, step_scale=0.5)
    assert half.version - 3 == j
    # w1: sigma 0, w3: sigma 1, both divide by 1; w2's rate is 0.5 / 2.
    assert half.parameters.tolist() == [8 - 0.5 - 0.5, 8 - 0.25 * 4, 8 - 0.25 * 8]


def test_staleness_0_and_1_are_not_damped_and_3_is() -> None:
    half = server(0, 0, 0)
    scales = [half.push(W1, dense(0, -6, 0, 0), 0.0)[0].step_scale for _ in range(4)]
    assert scales == pytest.approx([1, 1, 1 / 2, 1 / 3])
    # Steps of 0.5 * 6 / max(1, sigma): 3 + 3 + 1.5 + 1 (0.5 / 3 * 6 in float32 is exactly 1).
    assert half.parameters.tolist() == [8.5, 0, 0]


def test_the_step_is_computed_in_float32() -> None:
    """0.1 / 3 * 3 is 0.10000001 if every operation rounds to float32, and 0.1 if the last does."""
    half = server(0, 0, 0, learning_rate=0.1)
    for _ in range(3):
        half.push(W1, dense(0, 0, 0, 0), 0.0)
    half.push(W1, dense(0, 3, 0, -3), 0.0)
    step = np.float32(0.1) / np.float32(3) * np.float32(3)
    assert step != np.float32(0.1 / 3 * 3)
    assert half.parameters.tolist() == [-step, 0, step]
    assert half.parameters.dtype == np.float32


def test_a_worker_sends_its_gradient_and_its_pulled_version() -> None:
    half = server(1, 2, 3)
    for _ in range(7):
        half.push(W1, dense(0, 0, 0, 0), 0.0)
    worker = Asgd(name="asgd").worker(LAYOUT, 3, rng=RNG)
    reply = half.pull(W2, 0.0)
    worker.receive(reply, 0.0)
    assert worker.parameters.tolist() == [1, 2, 3]
    assert worker.parameters is not half.parameters
    update = worker.step(floats(0, -1, 2), 10, 1.0)
    assert update is not None
    assert isinstance(update.payload, Dense)
    assert update.payload.values.tolist() == [0, -1, 2]  # zeros too: ASGD is dense
    assert (update.version, update.samples) == (7, 10)


@pytest.mark.parametrize(
    ("config", "payload"),
    [
        (Asgd(name="asgd"), Sparse(np.array([0], np.int32), floats(1))),
        (CompAsgd(name="comp-asgd"), Dense(floats(1, 1, 1))),
        (AdaComp(name="adacomp"), Dense(floats(1, 1, 1))),
    ],
)
def test_a_payload_of_the_wrong_kind_is_refused_and_nothing_applied(
    config: Asgd | CompAsgd | AdaComp, payload: Payload
) -> None:
    half = config.server(LAYOUT, 1, parameters=floats(1, 2, 3), rng=RNG)
    half.join(W1)
    half.pull(W1, 0.0)
    with pytest.raises(RejectedError, match="payload, expected"):
        half.push(W1, Update(payload, 0, samples=1), 0.0)
    assert half.version == 0
    assert half.parameters.tolist() == [1, 2, 3]
