"""PowerSGD, worked by hand on a matrix of 2 x 3 and a vector of two entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from vectors import floats

from testbed.algorithms import PowerSgd
from testbed.algorithms.base import Reply, Update
from testbed.algorithms.parts.low_rank import LowRank
from testbed.errors import RejectedError
from testbed.payloads import Dense, Factors
from testbed.payloads.layout import Layout
from testbed.payloads.notes import note_bytes

LAYOUT = Layout(("weight", "bias"), ((2, 3), (2,)))
RNG = np.random.default_rng(0)


class Group:
    """A server whose first Q is (1, 0, 0), and workers that have pulled; r = 1, γ = 1/2, λ = 0."""

    def __init__(self, workers: int, **options: Any) -> None:
        settings = {"learning_rate": 0.5, "rank": 1, "momentum": 0.0, **options}
        self.config = PowerSgd(name="powersgd", **settings)
        start = np.zeros(8, np.float32)
        self.server = self.config.server(LAYOUT, workers, parameters=start, rng=RNG)
        self.server._right = floats(1, 0, 0)
        self.workers = [self.config.worker(LAYOUT, workers, rng=RNG) for _ in range(workers)]
        for index in range(workers):
            self.server.join(index)
            self.pull(index)

    def pull(self, index: int) -> Update | None:
        assert self.server.ready(index)
        self.reply: Reply = self.server.pull(index, 0.0)
        return self.workers[index].receive(self.reply, 0.0)

    def ask(self, index: int, *gradient: float) -> Update:
        """Send P."""
        message = self.workers[index].step(floats(*gradient), 10, 0.0)
        assert (message.steps, message.samples) == (0, 0)
        assert self.server.push(index, message, 0.0) == ()
        return message

    def round(self, *gradients: Sequence[float]) -> list[Update]:
        """Send all P and all Q, and pull; return the second messages."""
        for index, gradient in enumerate(gradients):
            self.ask(index, *gradient)
        seconds = [self.pull(index) for index in range(len(gradients))]
        for index, second in enumerate(seconds):
            self.server.push(index, second, 0.0)
        for index in range(len(gradients)):
            assert self.pull(index) is None
        return seconds


def test_a_matrix_of_rank_one_is_exact() -> None:
    """M = (3 0 0; 4 0 0): P = (3, 4), P̂ = (0.6, 0.8) or its negative, Q = (5, 0, 0) likewise."""
    group = Group(1)
    message = group.ask(0, 3, 0, 0, 4, 0, 0, 7, 8)
    assert message.payload.values.tolist() == [3, 4]
    second = group.pull(0)
    np.testing.assert_allclose(np.abs(group.reply.model.values), [0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(np.abs(second.payload.values), [5, 0, 0, 7, 8], rtol=1e-6)
    group.server.push(0, second, 0.0)
    group.pull(0)
    step = [-3, 0, 0, -4, 0, 0, -7, -8]
    np.testing.assert_allclose(group.server.parameters, step, rtol=1e-6)
    assert np.array_equal(group.workers[0].parameters, group.server.parameters)
    np.testing.assert_allclose(group.workers[0]._error, np.zeros(8), atol=1e-6)


def test_bytes_of_a_round() -> None:
    """4 r n = 8 for P both ways, 4 r m + 4 x 2 = 20 for Q and the bias; the model has 32."""
    group = Group(2)
    sent = [group.ask(index, *range(8)) for index in (0, 1)]
    seconds = [group.pull(index) for index in (0, 1)]
    down = [group.reply.model.size]
    for index, second in enumerate(seconds):
        group.server.push(index, second, 0.0)
    group.pull(0)
    sizes = [sent[0].payload.size, seconds[0].payload.size, *down, group.reply.model.size]
    assert sizes == [8, 20, 8, 20]
    assert note_bytes(group.reply.note) == 0
    group.server.join(1)
    joined = group.server.pull(1, 0.0)
    assert (joined.model.size, note_bytes(joined.note)) == (32, 32 + 12)


def test_the_average_of_two_workers() -> None:
    """M = (4 0 0; 0 0 0) and (0 0 0; 0 2 0), Q = (1, 0, 0): P = (4, 0) and (0, 0).

    P̂ = (1, 0); Q = (4, 0, 0) and 0, on average (2, 0, 0). The second worker keeps its matrix as its
    error: with a gradient of zero and the next Q = (2, 0, 0), it sends P = (0, 0) again.
    """
    group = Group(2)
    group.round([4, 0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 2, 0, 3, 0])
    assert group.server.parameters.tolist() == [-2, 0, 0, 0, 0, 0, -2, 0]
    for worker in group.workers:
        assert np.array_equal(worker.parameters, group.server.parameters)
        assert np.abs(worker._right).tolist() == [2, 0, 0]
    assert group.workers[0]._error.tolist() == [0] * 8
    assert group.workers[1]._error.tolist() == [0, 0, 0, 0, 2, 0, 0, 0]
    assert group.ask(1, *[0] * 8).payload.values.tolist() == [0, 0]


def test_the_error_is_sent_once_the_power_iteration_finds_it() -> None:
    """M = (2 0 0; 0 3 0) with Q = (1, 0, 0) sends 2 and keeps 3. A gradient (0 0 0; 1 0 0) makes
    M = (0 0 0; 1 3 0): with Q = (2, 0, 0) is P = (0, 2), P̂ = (0, 1), Q = (1, 3, 0): all of it."""
    group = Group(1)
    group.round([2, 0, 0, 0, 3, 0, 0, 0])
    assert group.workers[0]._error.tolist() == [0, 0, 0, 0, 3, 0, 0, 0]
    group.round([0, 0, 0, 1, 0, 0, 0, 0])
    assert group.server.parameters.tolist() == [-2, 0, 0, -1, -3, 0, 0, 0]
    assert group.workers[0]._error.tolist() == [0] * 8


def test_momentum_follows_the_decompression() -> None:
    """γ = 1/2, λ = 1/2, Δ = 2 twice: m = 2, x = -(2 + 2) / 2; m = 3, x = -2 - (2 + 3) / 2."""
    group = Group(1, learning_rate=0.5, momentum=0.5)
    found = []
    for _ in range(2):
        group.round([2, 0, 0, 0, 0, 0, 0, 0])
        found.append(float(group.server.parameters[0]))
    assert found == [-2, -4.5]
    group.server.join(0)  # it has lost its connection, and gets m and Q with the model
    group.pull(0)
    assert group.workers[0]._momentum[0] == 3
    group.round([2, 0, 0, 0, 0, 0, 0, 0])
    assert group.server.parameters[0] == -4.5 - (2 + 3.5) / 2
    assert np.array_equal(group.workers[0].parameters, group.server.parameters)


def test_a_worker_that_joins_during_a_round_has_part_in_its_second_half() -> None:
    """P̂ = (1, 0) is that of w0; w1 comes later with M = (6 0 0; 9 0 0): Q = 6 and 2, mean 4."""
    group = Group(2)
    group.server.leave(1, 0.0)
    group.ask(0, 2, 0, 0, 0, 0, 0, 0, 0)
    second = group.pull(0)
    group.server.join(1)
    group.pull(1)
    assert isinstance(group.reply.model, Dense)
    assert group.server.push(0, second, 0.0) == ()
    assert set(group.server.awaited()) == {1}
    group.ask(1, 6, 0, 0, 9, 0, 0, 0, 0)
    applied = group.server.push(1, group.pull(1), 0.0)
    assert [one.worker for one in applied] == [0, 1]
    assert group.server.parameters.tolist() == [-4, 0, 0, 0, 0, 0, 0, 0]
    assert group.workers[1]._error.tolist() == [0, 0, 0, 9, 0, 0, 0, 0]


def test_nobody_waits_for_a_worker_that_left_between_the_exchanges() -> None:
    group = Group(3)
    for index in (0, 1):
        group.ask(index, 2, 0, 0, 0, 0, 0, 0, 0)
    assert not group.server.ready(0)
    group.server.leave(2, 0.0)
    second = group.pull(0)
    group.server.push(0, second, 0.0)
    (applied,) = group.server.leave(1, 0.0)
    assert applied.worker == 0
    assert group.server.parameters[0] == -2


def test_what_does_not_fit_the_round_is_refused() -> None:
    group = Group(2)
    for payload in (Factors(floats(1)), Factors(floats(1, 2, 3, 4, 5)), Dense(floats(*range(8)))):
        with pytest.raises(RejectedError):
            group.server.push(0, Update(payload, 0, samples=0, steps=0), 0.0)
    with pytest.raises(RejectedError, match="before its message was answered"):
        group.server.push(0, Update(Factors(floats(1, 2, 3, 4, 5)), 0, samples=1), 0.0)
    group.ask(0, *range(8))
    group.ask(1, *range(8))
    with pytest.raises(RejectedError, match="2 numbers of factors, expected 5"):
        group.server.push(0, Update(Factors(floats(1, 2)), 0, samples=1), 0.0)


def test_which_tensors_have_factors() -> None:
    """2 (4 + 9) = 26 < 36 for a convolution 4 x 1 x 3 x 3; 2 (3 + 6) = 18 = 3 x 6 gains nothing."""
    shapes = ((4, 1, 3, 3), (4,), (3, 6), ())
    low = LowRank(Layout(("conv", "bias", "line", "scale"), shapes), 2)
    assert list(low.matrices()) == [(slice(0, 36), 4, 9)]
    assert (low.left_size, low.q_size, low.right_size) == (8, 18, 18 + 4 + 18 + 1)
    vector = np.arange(59, dtype=np.float32)
    left = low.orthonormal(low.left_of(vector, RNG.standard_normal(18).astype(np.float32)))
    columns = left.reshape(4, 2)
    np.testing.assert_allclose(columns.T @ columns, np.eye(2), atol=1e-6)
    again = low.product(left, low.right_of(vector, left))
    np.testing.assert_allclose(again, vector, atol=1e-4)  # rows of an arithmetic sequence: rank 2
    assert low.orthonormal(np.zeros(8, np.float32)).any()
