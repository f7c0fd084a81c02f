"""Evaluation of models per client, personalised ones included, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.models.base import Evaluation
from testbed.models.clients import ClientSamples, FineTuning, HeldOut, draw_batches
from testbed.models.mlp import Mlp
from testbed.payloads import zeros

IMAGES = np.array([1, -1, 2, -2, 0.5], np.float32).reshape(5, 1, 1, 1)
LABELS = np.array([1, 0, 1, 0, 0])
HELD = np.array([2, 3, 4])
ONE_BATCH = [np.array([0, 1])]


def samples(learning_rate: float) -> ClientSamples:
    return ClientSamples(IMAGES, LABELS, HELD, fine_tuning=FineTuning(ONE_BATCH, learning_rate))


def test_a_model_is_personalised_for_its_evaluation_only() -> None:
    """A logistic regression of one pixel, from zero: it says 0 to everything.

    The gradient of the weights is the mean of -x/2, +x/2 over (1, label 1) and (-1, label 0), so a
    step leaves (-1/2, 1/2) times the learning rate, and the bias at zero: the sign of x decides.
    """
    network = Mlp(name="mlp", hidden=()).build((1, 1, 1), 2, folder=Path())
    parameters = zeros(network.layout.size)
    bound = network.bind(parameters)
    plain = ClientSamples(IMAGES, LABELS, HELD)
    assert plain.accuracy(bound, parameters) == pytest.approx(2 / 3)  # -2 and 0.5 are 0
    assert plain.accuracy(bound, parameters, most=1) == 0  # 2 is not
    assert samples(0.1).accuracy(bound, parameters) == pytest.approx(2 / 3)  # 0.5 is taken for 1
    assert samples(0.1).accuracy(bound, parameters, most=2) == 1 / 2  # 2 and 0.5: the ends
    assert not parameters.any()
    measured = Evaluation(0.7, {"top1": 0.5}, 4)
    both = HeldOut([plain, samples(0.1)], most=2).evaluate(bound, parameters, measured, final=False)
    assert both.metrics["clients_mean"] == 1 / 2
    final = HeldOut([plain, samples(0.1)], most=2).evaluate(bound, parameters, measured, final=True)
    assert (final.metrics["clients_mean"], final.metrics["top1"]) == (pytest.approx(2 / 3), 0.5)
    assert not parameters.any()


def test_some_samples_of_a_client_are_of_all_labels_if_they_are_sorted() -> None:
    network = Mlp(name="mlp", hidden=()).build((1, 1, 1), 2, folder=Path())
    parameters = zeros(network.layout.size)
    images, labels = np.ones((100, 1, 1, 1), np.float32), np.repeat([0, 1], 50)
    client = ClientSamples(images, labels, np.arange(100))
    assert client.accuracy(network.bind(parameters), parameters, most=10) == 1 / 2


def test_buffers_change_by_their_whole_gradient() -> None:
    parameters = np.array([1, 2, 3], np.float32)
    FineTuning([], 0.5, (slice(2, 3),)).step(parameters, np.array([2, 4, 8], np.float32))
    assert parameters.tolist() == [0, 0, -5]


def test_a_model_that_diverges_has_a_bad_result_and_is_restored() -> None:
    network = Mlp(name="mlp", hidden=()).build((1, 1, 1), 2, folder=Path())
    parameters = zeros(network.layout.size)
    steps = FineTuning(ONE_BATCH * 3, 1e38)
    client = ClientSamples(IMAGES, LABELS, HELD, fine_tuning=steps)
    assert 0 <= client.accuracy(network.bind(parameters), parameters) <= 1
    assert not parameters.any()


def test_batches_are_no_smaller_than_asked_and_cover_each_epoch() -> None:
    own = np.arange(10, 25)
    batches = draw_batches(own, 4, 2, rng=np.random.default_rng(0))
    assert [len(one) for one in batches] == [5, 5, 5] * 2
    assert sorted(np.concatenate(batches[:3])) == sorted(np.concatenate(batches[3:])) == [*own]
    assert [len(one) for one in draw_batches(own[:3], 4, 1, rng=np.random.default_rng(0))] == [3]
