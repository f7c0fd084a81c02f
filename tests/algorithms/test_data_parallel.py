"""Plump-DP, Quant-DP and Slim-DP: rounds worked out by hand, and their relations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from vectors import floats

from testbed.algorithms import Algorithm
from testbed.algorithms.base import AlgorithmConfig, Reply, Update
from testbed.algorithms.frame.contract import examine
from testbed.algorithms.frame.trial import Trial
from testbed.errors import RejectedError
from testbed.payloads import Dense, Keyed, Payload, Quantized, Vector
from testbed.payloads.core_explorer import sizes
from testbed.payloads.layout import Layout

LAYOUT = Layout(("weight", "bias"), ((3,), (1,)))
BEGIN = (1.0, -5.0, 3.0, 2.0)


def configured(name: str, **options: object) -> AlgorithmConfig:
    return TypeAdapter[AlgorithmConfig](Algorithm).validate_python({"name": name, **options})


class Group:
    """Two workers and a server on four parameters in two tensors. All have pulled."""

    def __init__(self, config: AlgorithmConfig, *, layout: Layout = LAYOUT) -> None:
        begin = np.resize(floats(*BEGIN), layout.size).copy()
        rng = np.random.default_rng(4)
        self.config, self.layout = config, layout
        self.server = config.server(layout, 2, parameters=begin, rng=rng)
        self.workers = [self.fresh(index) for index in range(2)]
        for index in range(2):
            self.server.join(index)
            self.pull(index)

    def fresh(self, index: int) -> Any:
        """A worker half in its initial state."""
        return self.config.worker(self.layout, 2, rng=np.random.default_rng(index))

    def pull(self, index: int) -> Reply:
        reply = self.server.pull(index, 0.0)
        self.workers[index].receive(reply, 0.0)
        return reply

    def round(self, *gradients: Vector) -> list[Payload]:
        """Both push, the second first, and pull; returns what they sent."""
        updates = [
            worker.step(one, 10, 0.0) for worker, one in zip(self.workers, gradients, strict=True)
        ]
        for index in (1, 0):
            assert isinstance(updates[index], Update)
            self.server.push(index, updates[index], 0.0)
        for index in range(2):
            self.pull(index)
        return [update.payload for update in updates]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # The mean of (2, 4, 0, 0) and (4, 0, 8, 0) is (3, 2, 4, 0), and η is a half
        ({}, (-0.5, -6.0, 1.0, 2.0)),
        ({"aggregate": "sum"}, (-2.0, -7.0, -1.0, 2.0)),
        # g + w / 2 is (3.5, -0.5, 5.5, 1)
        ({"weight_decay": 0.5}, (-0.75, -4.75, 0.25, 1.5)),
    ],
)
def test_a_round_of_plump_dp(options: dict[str, Any], expected: tuple[float, ...]) -> None:
    group = Group(configured("plump-dp", learning_rate=0.5, **options))
    group.round(floats(2, 4, 0, 0), floats(4, 0, 8, 0))
    assert group.server.parameters.tolist() == list(expected)
    assert [one.parameters.tolist() for one in group.workers] == 2 * [list(expected)]
    assert group.server.version == 2


@pytest.mark.parametrize(
    "options",
    [
        {"name": "plump-dp"},
        {"name": "quant-dp"},
        {"name": "slim-dp", "alpha": 0.25, "epsilon": 0.0},
    ],
    ids=lambda options: str(options["name"]),
)
def test_sums_are_in_worker_order(options: dict[str, Any]) -> None:
    """10^8 + 1 - 10^8 is 0 in float32; in order of arrival it would be -10^8 + 10^8 + 1."""
    config = TypeAdapter[AlgorithmConfig](Algorithm).validate_python(options)
    rng = np.random.default_rng(0)
    server = config.server(LAYOUT, 3, parameters=floats(*BEGIN), rng=rng)
    halves = [config.worker(LAYOUT, 3, rng=np.random.default_rng(index)) for index in range(3)]
    updates = []
    for index, value in enumerate((1e8, 1.0, -1e8)):
        server.join(index)
        halves[index].receive(server.pull(index, 0.0), 0.0)
        updates.append(halves[index].step(floats(value, 0, 0, 0), 10, 0.0))
    for index in (2, 0, 1):
        server.push(index, updates[index], 0.0)
    assert server.version == 3
    assert server.parameters.tolist() == list(BEGIN)


def test_momentum_of_all_coordinates_is_that_of_sgd() -> None:
    group = Group(configured("plump-dp", learning_rate=1.0, momentum=0.5))
    for _ in range(2):
        group.round(floats(2, 0, 0, 0), floats(2, 0, 0, 0))
    # v is 2, then 1 + 2 = 3: 1 - 2 - 3
    assert group.server.parameters[0] == -4


def test_momentum_is_kept_by_the_worker() -> None:
    """Section 3.3: a worker accumulates its solver's updates, including those not sent."""
    config = configured(
        "slim-dp", learning_rate=1.0, momentum=0.5, alpha=0.25, epsilon=0.0, core_rounds=1
    )
    group = Group(config)
    group.round(floats(4, 3, 0, 0), floats(4, 3, 0, 0))
    sent = group.round(floats(0, 3, 0, 0), floats(0, 0, 0, -2))
    # v is (4, 3, 0, 0), of which 4 is sent; then (2, 4.5, 0, 0) and (2, 1.5, 0, -2)
    assert [(one.core.tolist(), one.core_values.tolist()) for one in sent] == [  # type: ignore[attr-defined]
        ([1], [4.5]),
        ([0], [2.0]),
    ]
    # 1 - 4 - 2 / 2 and -5 - 4.5 / 2: the server adds no momentum
    assert group.server.parameters.tolist() == [-4, -7.25, 3, 2]


def test_a_batch_that_is_not_finite_leaves_no_momentum() -> None:
    worker = Group(configured("plump-dp", momentum=0.5)).workers[0]
    refused = worker.step(floats(np.inf, 0, 0, 0), 10, 0.0)
    assert refused.payload.values.tolist() == [np.inf, 0, 0, 0]
    assert worker.step(floats(1, 0, 0, 0), 10, 0.0).payload.values.tolist() == [1, 0, 0, 0]


def test_weight_decay_is_applied_by_the_worker() -> None:
    config = configured("slim-dp", learning_rate=1.0, weight_decay=0.5, alpha=0.25, epsilon=0.0)
    sent = Group(config).round(floats(0, 0, 0, 0), floats(0, 6, 0, 0))
    # λ w is (0.5, -2.5, 1.5, 1), and with the gradient (0.5, 3.5, 1.5, 1)
    values = [(one.core.tolist(), one.core_values.tolist()) for one in sent]  # type: ignore[attr-defined]
    assert values == [([1], [-2.5]), ([1], [3.5])]


def test_the_sum_of_local_steps_is_pushed() -> None:
    group = Group(configured("plump-dp", learning_rate=0.5, local_steps=2))
    worker = group.workers[0]
    assert worker.step(floats(2, 0, 0, 0), 10, 0.0) is None
    assert worker.parameters[0] == 0  # 1 - 2 / 2
    update = worker.step(floats(4, 0, 0, 0), 7, 0.0)
    assert (update.steps, update.samples) == (2, 17)
    assert update.payload.values.tolist() == [6, 0, 0, 0]


@pytest.mark.parametrize(
    ("discard_local", "merged"), [(False, (-3.0, -7.0, 5.0, 0.0)), (True, (1.0, -7.0, 5.0, 2.0))]
)
def test_a_round_of_slim_dp(discard_local: bool, merged: tuple[float, ...]) -> None:
    config = configured(
        "slim-dp", learning_rate=1.0, alpha=0.5, epsilon=0.0, discard_local=discard_local
    )
    group = Group(config)
    sent = group.round(floats(4, 0, -8, 2), floats(0, 4, 4, 0))
    first, second = sent
    assert isinstance(first, Keyed)
    assert isinstance(second, Keyed)
    assert (first.core.tolist(), first.core_values.tolist()) == ([0, 2], [4, -8])
    assert (second.core.tolist(), second.core_values.tolist()) == ([1, 2], [4, 4])
    # What both sent is summed, what neither sent stays: (4, 4, -4, 0) / 2 off (1, -5, 3, 2)
    assert group.server.parameters.tolist() == [-1, -7, 5, 2]
    # The server's largest are -7 and 5. The first worker's own step was to (-3, -5, 11, 0).
    assert group.workers[0].parameters.tolist() == list(merged)


def test_a_core_is_kept_for_its_rounds_and_the_explorer_changes() -> None:
    layout = Layout(("weight",), ((40,),))
    config = configured("slim-dp", learning_rate=50.0, alpha=0.5, epsilon=0.25, core_rounds=2)
    group = Group(config, layout=layout)
    rng, sent, replies = np.random.default_rng(0), [], []
    for _ in range(4):
        gradients = [rng.standard_normal(40).astype(np.float32) for _ in range(2)]
        sent.append(group.round(*gradients)[0])
        replies.append(group.server.pull(0, 0.0).model)
    for rounds in (sent, replies):
        cores = [one.core.tolist() for one in rounds]  # type: ignore[attr-defined]
        assert cores[0] == cores[1] != cores[2] == cores[3]
        explorers = {tuple(one.explorer.tolist()) for one in rounds}  # type: ignore[attr-defined]
        assert len(explorers) == 4
        assert all(one.flaw(40) == "" for one in rounds)
        assert all(
            (len(core), one.entries) == (10, 20) for core, one in zip(cores, rounds, strict=True)
        )


@pytest.mark.parametrize("options", [{}, {"local_steps": 3, "momentum": 0.9, "aggregate": "sum"}])
def test_slim_dp_of_all_coordinates_is_bit_identical_to_plump_dp(options: dict[str, Any]) -> None:
    models = []
    for config in (
        configured("plump-dp", **options),
        configured("slim-dp", alpha=1.0, epsilon=0.0, core_rounds=3, **options),
    ):
        trial = Trial.of(config)
        trial.run()
        models.append(trial.server.half.parameters)
    assert models[0].tobytes() == models[1].tobytes()


@pytest.mark.parametrize("options", [{}, {"local_steps": 3}, {"norm": "l2", "bucket": 2}])
def test_every_copy_stays_equal_to_the_servers_model(options: dict[str, Any]) -> None:
    group = Group(configured("quant-dp", momentum=0.5, **options))
    rng = np.random.default_rng(0)
    for _ in range(30):
        for _ in range(options.get("local_steps", 1) - 1):
            for worker in group.workers:
                assert worker.step(rng.standard_normal(4).astype(np.float32), 10, 0.0) is None
        group.round(*(rng.standard_normal(4).astype(np.float32) for _ in range(2)))
        for worker in group.workers:
            assert worker.parameters.tobytes() == group.server.parameters.tobytes()


@pytest.mark.parametrize("name", ["quant-dp", "slim-dp"])
def test_a_worker_that_rejoins_gets_the_whole_model(name: str) -> None:
    group = Group(configured(name))
    group.round(floats(1, 2, 3, 4), floats(4, 3, 2, 1))
    assert not isinstance(group.server.pull(1, 0.0).model, Dense)
    for leaves in (True, False):
        if leaves:
            group.server.leave(1, 0.0)
        group.server.join(1)
        group.workers[1] = group.fresh(1)
        for _ in range(2):
            assert isinstance(group.pull(1).model, Dense)
        assert group.workers[1].parameters.tolist() == group.server.parameters.tolist()
        group.round(floats(1, 0, 0, 0), floats(0, 1, 0, 0))
        assert not isinstance(group.server.pull(1, 0.0).model, Dense)


@pytest.mark.parametrize("name", ["quant-dp", "slim-dp"])
def test_a_worker_that_left_after_its_push_gets_the_whole_model(name: str) -> None:
    group = Group(configured(name))
    update = group.workers[1].step(floats(1, 1, 1, 1), 10, 0.0)
    group.server.push(1, update, 0.0)
    group.server.leave(1, 0.0)
    group.server.join(1)
    group.server.push(0, group.workers[0].step(floats(1, 1, 1, 1), 10, 0.0), 0.0)
    assert group.server.version == 2
    assert isinstance(group.server.pull(1, 0.0).model, Dense)
    assert not isinstance(group.server.pull(0, 0.0).model, Dense)


def test_levels_with_too_few_scales_are_refused_and_change_nothing() -> None:
    group = Group(configured("quant-dp"))
    bad = Quantized(floats(1.0), np.zeros(4, np.int8))  # two tensors: two buckets
    with pytest.raises(RejectedError, match="1 scales, expected one for each of 2 buckets"):
        group.server.push(0, Update(bad, 0, 10), 0.0)
    assert group.server.ready(0)
    with pytest.raises(RejectedError, match="a Dense payload, expected a Keyed one"):
        Group(configured("slim-dp")).server.push(0, Update(Dense(floats(*BEGIN)), 0, 10), 0.0)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "slim-dp", "epsilon": 0.0},
        {"name": "slim-dp", "epsilon": 0.3},
        {"name": "slim-dp", "alpha": 1.0, "core_rounds": 1},
        {"name": "slim-dp", "alpha": 1.0, "epsilon": 1.0},
        {"name": "slim-dp", "discard_local": True, "local_steps": 2, "momentum": 0.9},
        {"name": "quant-dp", "norm": "l2", "local_steps": 2, "weight_decay": 0.01},
        {"name": "plump-dp", "aggregate": "sum", "momentum": 0.5},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_all_three_keep_the_contract(options: dict[str, Any]) -> None:
    findings = list(examine(TypeAdapter[AlgorithmConfig](Algorithm).validate_python(options)))
    assert [one for one in findings if one.problem] == []


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"alpha": 0.2, "epsilon": 0.3}, "epsilon"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.1}, "alpha"),
        ({"core_rounds": 0}, "core_rounds"),
        ({"epsilon": -0.1}, "epsilon"),
        ({"momentum": 1.0}, "momentum"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"aggregate": "median"}, "aggregate"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=match):
        configured("slim-dp", **options)


@pytest.mark.parametrize("q", [1, 10, 50])
@pytest.mark.parametrize(
    ("size", "alpha", "epsilon"), [(138_357_544, 0.2, 0.1), (13_400_000, 0.3, 0.15)]
)
def test_volumes_at_the_true_sizes(size: int, alpha: float, epsilon: float, q: int) -> None:
    core, explorer = sizes(size, alpha, epsilon)
    sent = 4 * core + 8 * explorer + 8 + 4 * core / q  # mean bytes per message
    volume = (alpha + epsilon) + (alpha - epsilon) / q  # in values; a model has N
    assert sent / (4 * size) == pytest.approx(volume, rel=1e-6)


def test_the_volume_of_quant_dp() -> None:
    layout = Layout(("weight",), ((512 * 20,),))
    group = Group(configured("quant-dp"), layout=layout)
    sent, _ = group.round(*(np.ones(layout.size, np.float32) for _ in range(2)))
    # A byte per value and 4 per bucket of 512: 0.252 of 4 bytes a value
    assert sent.size == 10_240 + 20 * 4
    assert sent.size / (4 * layout.size) == pytest.approx(0.252, abs=5e-4)
