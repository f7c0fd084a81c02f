"""AdaComp, worked by hand and against the history of updates as the paper counts it."""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors import floats

from testbed.algorithms import AdaComp
from testbed.algorithms.base import Applied, ServerHalf, Update, WorkerHalf
from testbed.payloads import Sparse
from testbed.payloads.layout import Layout

RNG = np.random.default_rng(0)
CNN = Layout(
    ("c1.w", "c1.b", "c2.w", "c2.b", "d1.w", "d1.b", "d2.w", "d2.b"),
    ((32, 1, 3, 3), (32,), (32, 32, 3, 3), (32,), (128, 1568), (128,), (10, 128), (10,)),
)
W1, W2, W3 = 1, 2, 3
A, B, C = 0, 1, 2


def sparse(version: int, entries: dict[int, float]) -> Update:
    indices = np.array(list(entries), np.int32)
    return Update(Sparse(indices, floats(*entries.values())), version, samples=10)


class Trio:
    """Three workers and a server on a model of two tensors: parameters 0 and 1, and parameter 2."""

    def __init__(self) -> None:
        config = AdaComp(name="adacomp", learning_rate=0.5, ratio=0.5)
        layout = Layout(("weight", "bias"), ((2,), (1,)))
        self.server: ServerHalf = config.server(layout, 3, parameters=floats(1, 2, 3), rng=RNG)
        self.workers: list[WorkerHalf] = [config.worker(layout, 3, rng=RNG) for _ in range(3)]
        for index in range(3):
            self.server.join(index)
            self.pull(index)

    def pull(self, index: int) -> None:
        self.workers[index].receive(self.server.pull(index, 0.0), 0.0)

    def cycle(self, index: int, *gradient: float) -> tuple[dict[int, float], Applied]:
        """One step, push and pull of a worker: what it sent, and the result."""
        update = self.workers[index].step(floats(*gradient), 10, 0.0)
        assert update is not None
        assert isinstance(update.payload, Sparse)
        sent = zip(update.payload.indices.tolist(), update.payload.values.tolist(), strict=True)
        (applied,) = self.server.push(index, update, 0.0)
        self.pull(index)
        return dict(sent), applied


def test_three_parameters_three_workers_by_hand() -> None:
    """Learning rate 1/2; of each tensor max(1, floor(size / 2)) = 1 entry is sent.

    All pull at clock 0; each pulls again after its push. "touches" counts the updates that touched
    each parameter, and sigma is its difference between the push and the worker's pull.

    clock  who  pulled at  its touches  gradient     sends         sigma  parameters      touches
    -      -    -          -            -            -             -      1    2    3     0 0 0
    0      A    0          0 0 0        4  -2   1    {0: 4, 2: 1}  0, 0   -1   2    2.5   1 0 1
    1      B    0          0 0 0        2  -2   0    {0: 2}        1      -2   2    2.5   2 0 1
    2      C    0          0 0 0        1  -8   4    {1: -8, 2: 4} 0, 1   -2   6    0.5   2 1 2
    3      A    1          1 0 1        6   1   8    {0: 6, 2: 8}  1, 1   -5   6    -3.5  3 1 3
    4      B    2          2 0 1        0   0   2    {2: 2}        2      -5   6    -4    3 1 4
    5      C    3          2 1 2        0   0   0    nothing       -      -5   6    -4    3 1 4
    6      A    4          3 1 3        4   0   8    {0: 4, 2: 8}  0, 1   -7   6    -8    4 1 5
    7      C    6          3 1 4        1   8   8    {1: 8, 2: 8}  0, 1   -7   2    -12   4 2 6

    At 1 the tie goes to the lower index, and the zero of the second tensor is not sent. At 4 the
    rate is halved: -3.5 - 1/4 * 2. At 5 nothing is left, but the clock advances. That does not
    count as a touch at 6.
    """
    trio = Trio()
    expected: list[tuple[int, tuple[float, ...], dict[int, float], Applied, list[float]]] = [
        (A, (4, -2, 1), {0: 4, 2: 1}, Applied(A, 0, 0, 0.0, 0, 1.0), [-1, 2, 2.5]),
        (B, (2, -2, 0), {0: 2}, Applied(B, 1, 1, 1.0, 1, 1.0), [-2, 2, 2.5]),
        (C, (1, -8, 4), {1: -8, 2: 4}, Applied(C, 2, 2, 0.5, 1, 1.0), [-2, 6, 0.5]),
        (A, (6, 1, 8), {0: 6, 2: 8}, Applied(A, 3, 2, 1.0, 1, 1.0), [-5, 6, -3.5]),
        (B, (0, 0, 2), {2: 2}, Applied(B, 4, 2, 2.0, 2, 0.5), [-5, 6, -4]),
        (C, (0, 0, 0), {}, Applied(C, 5, 2, 0.0, 0, 1.0), [-5, 6, -4]),
        (A, (4, 0, 8), {0: 4, 2: 8}, Applied(A, 6, 2, 0.5, 1, 1.0), [-7, 6, -8]),
        (C, (1, 8, 8), {1: 8, 2: 8}, Applied(C, 7, 1, 0.5, 1, 1.0), [-7, 2, -12]),
    ]
    for worker, gradient, sent, applied, parameters in expected:
        assert trio.cycle(worker, *gradient) == (sent, applied)
        assert trio.server.parameters.tolist() == parameters
    assert trio.workers[C].parameters.tolist() == [-7, 2, -12]
    assert trio.server.version == 8


def test_figure_2_of_the_paper() -> None:
    """w2 pulls at i - 3 and two others push first: staleness 2, but each parameter has its own.

    w1 touches 0 and 1, w3 touches 1, so w2's sigma is 1, 2 and 0, and its rates are
    1/2, 1/4 and 1/2.
    """
    layout = Layout(("weight",), ((3,),))
    config = AdaComp(name="adacomp", learning_rate=0.5, ratio=1.0)
    half = config.server(layout, 3, parameters=floats(0, 0, 0), rng=RNG)
    for worker in (W1, W2, W3):
        half.pull(worker, 0.0)
    half.push(W1, sparse(0, {0: 2, 1: 2}), 0.0)
    half.push(W3, sparse(0, {1: 4}), 0.0)
    (applied,) = half.push(W2, sparse(0, {0: 8, 1: 8, 2: 8}), 0.0)
    assert (applied.version, applied.staleness) == (2, 2)
    assert (applied.sigma_mean, applied.sigma_max) == (1.0, 2)
    assert applied.step_scale == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert half.parameters.tolist() == [-1 - 4, -1 - 2 - 2, -4]


def test_a_zero_that_was_sent_is_not_a_touch() -> None:
    half = AdaComp(name="adacomp").server(CNN, 2, parameters=np.zeros(CNN.size, "f4"), rng=RNG)
    half.pull(A, 0.0)
    half.pull(B, 0.0)
    half.push(A, sparse(0, {5: 0.0, 6: 1.0}), 0.0)
    (applied,) = half.push(B, sparse(0, {5: 1.0, 6: 1.0}), 0.0)
    assert (applied.sigma_mean, applied.sigma_max) == (0.5, 1)


@pytest.mark.parametrize(("ratio", "entries"), [(0.1, 21_166), (0.01, 2_117), (0.001, 215)])
def test_entries_of_an_update_of_the_papers_cnn(ratio: float, entries: int) -> None:
    """The payload for c = 0.01 is 2,117 values and indices, less if fewer are not zero."""
    assert CNN.size == 211_690
    worker = AdaComp(name="adacomp", ratio=ratio).worker(CNN, 1, rng=RNG)
    gradient = np.random.default_rng(3).standard_normal(CNN.size).astype(np.float32)
    update = worker.step(gradient, 10, 0.0)
    assert update is not None
    assert isinstance(update.payload, Sparse)
    assert update.payload.values.nbytes + update.payload.indices.nbytes == entries * 8
    gradient[288:320] = 0  # the first bias is untouched: its one entry is not sent
    update = worker.step(gradient, 10, 0.0)
    assert update is not None
    assert update.payload.values.size == entries - max(1, int(32 * ratio))


def test_the_pull_of_a_worker_is_forgotten_when_it_leaves() -> None:
    trio = Trio()
    trio.server.leave(A, 0.0)
    trio.server.leave(A, 0.0)
    trio.server.join(A)
    trio.server.push(B, sparse(0, {0: 1, 1: 1, 2: 1}), 0.0)
    trio.pull(A)
    _, applied = trio.cycle(A, 1, 0, 1)
    assert (applied.staleness, applied.sigma_max) == (0, 0)


def test_a_worker_costs_the_server_four_bytes_per_parameter_until_it_leaves() -> None:
    half = AdaComp(name="adacomp").server(CNN, 20, parameters=np.zeros(CNN.size, "f4"), rng=RNG)
    tracemalloc.start()
    try:
        for worker in range(20):
            half.pull(worker, 0.0)
            half.pull(worker, 1.0)
        held, _ = tracemalloc.get_traced_memory()
        for worker in range(20):
            half.leave(worker, 0.0)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held == pytest.approx(20 * 4 * CNN.size, rel=0.01)
    assert left < 4 * CNN.size


def test_a_worker_that_rejoins_keeps_its_pull() -> None:
    trio = Trio()
    trio.server.push(B, sparse(0, {0: 1, 2: 1}), 0.0)
    trio.server.push(C, sparse(0, {2: 1}), 0.0)
    trio.server.join(A)
    _, applied = trio.cycle(A, 1, 0, 1)
    assert (applied.staleness, applied.sigma_mean, applied.sigma_max) == (2, 1.5, 2)


N = 12
EVENT = st.tuples(st.integers(0, 4), st.sets(st.integers(0, N - 1)), st.booleans())


@settings(deadline=None, derandomize=True, max_examples=150, database=None)
@given(st.lists(EVENT, max_size=60))
def test_counters_equal_the_history(trace: Sequence[tuple[int, set[int], bool]]) -> None:
    """The paper's sum over the updates since the pull, for random traces of five workers.

    An event is (worker, parameters that its update touches, whether it pulls again afterwards); one
    that does not continues from its old pull, so windows become long. In the end every worker
    touches all parameters: what their sigma add up to is what the history's window stores.
    """
    layout = Layout(("weight",), ((N,),))
    half = AdaComp(name="adacomp").server(layout, 5, parameters=np.zeros(N, "f4"), rng=RNG)
    pulled = {worker: half.pull(worker, 0.0).version for worker in range(5)}
    history: list[set[int]] = []
    everything = [(worker, set(range(N)), False) for worker in range(5)]
    for worker, touched, pulls in [*trace, *everything]:
        j, i = pulled[worker], len(history)
        sigma = [sum(k in history[u] for u in range(j, i)) for k in sorted(touched)]
        (applied,) = half.push(worker, sparse(j, dict.fromkeys(sorted(touched), 1.0)), 0.0)
        assert (applied.version, applied.staleness) == (i, i - j)
        assert applied.sigma_max == max(sigma, default=0) <= i - j
        assert applied.sigma_mean == pytest.approx(sum(sigma) / len(sigma) if sigma else 0)
        scales = [1 / max(1, value) for value in sigma]
        assert applied.step_scale == pytest.approx(sum(scales) / len(scales) if scales else 1)
        if len(touched) == N:
            stored = sum(len(history[u]) for u in range(j, i))
            assert applied.sigma_mean * N == pytest.approx(stored)
        history.append(touched)
        if pulls:
            pulled[worker] = half.pull(worker, 0.0).version


def test_each_parameter_has_its_own_step_size() -> None:
    """Parameters against the history, entry by entry and bit by bit, on one long random trace."""
    rng = np.random.default_rng(11)
    layout = Layout(("weight",), ((N,),))
    half = AdaComp(name="adacomp").server(layout, 5, parameters=np.zeros(N, "f4"), rng=RNG)
    expected = np.zeros(N, np.float32)
    pulled = {worker: half.pull(worker, 0.0).version for worker in range(5)}
    history: list[list[int]] = []
    for _ in range(400):
        worker = int(rng.integers(5))
        j = pulled[worker]
        k = sorted(rng.choice(N, rng.integers(0, 5), replace=False).tolist())
        entries = {index: float(np.float32(rng.standard_normal())) for index in k}
        for index, value in entries.items():
            sigma = sum(index in update for update in history[j:])
            rate = np.float32(0.1) / np.float32(max(1, sigma))
            expected[index] -= rate * np.float32(value)
        half.push(worker, sparse(j, entries), 0.0)
        history.append(k)
        assert half.parameters.tobytes() == expected.tobytes()
        if rng.random() < 0.5:
            pulled[worker] = half.pull(worker, 0.0).version
