"""Models with numeric targets, by hand and against autograd."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from testbed.models import BoundModel, LinearSvm, Lstm, Network
from testbed.models.layers import SquaredError


def lstm(*, units: int = 64, shape: tuple[int, int, int] = (1, 1, 64)) -> Network:
    return Lstm(name="lstm", units=units).build(shape, 0, folder=Path("unused"))


def svm() -> tuple[BoundModel, np.ndarray]:
    """Two weights, 1 and 2, and a bias of 0.5."""
    at = np.array([1, 2, 0.5], np.float32)
    network = LinearSvm(name="linear-svm").build((1, 1, 2), 0, folder=Path("unused"))
    return network.bind(at), at


def test_sizes() -> None:
    """4 x 64 rows of 1 + 64 weights and a bias, and 65; 8 weights and a bias."""
    network = lstm()
    assert network.layout.size == 16_896 + 65 == 16_961
    assert Lstm(name="lstm").parameters((1, 1, 64), 0) == 16_961
    assert LinearSvm(name="linear-svm").parameters((1, 1, 8), 0) == 9


def test_the_svms_loss_and_gradient_by_hand() -> None:
    """Predictions 1 + 2 + .5 = 3.5 and 1 - 2 + .5 = -.5 for 3.48 and -1.05.

    Errors .02, within the margin of .05, and .55, beyond it by .5: the loss is .25 / 2, and the
    penalty .0005 x 5. The slope by the second prediction is 2 x .5 / 2 = .5, so the gradient is
    .5 x (1, -1) and .001 times the weights, and .5 by the bias.
    """
    bound, _ = svm()
    images = np.array([[[[1, 1]]], [[[1, -1]]]], np.float32)
    numbers = np.array([3.48, -1.05], np.float32)
    loss, gradient = bound.loss_and_gradient(images, numbers)
    assert loss == pytest.approx(0.125 + 0.0025)
    np.testing.assert_allclose(gradient, [0.501, -0.498, 0.5], rtol=1e-5)
    evaluation = bound.evaluate(images, numbers)
    assert evaluation.loss == pytest.approx(0.1275)
    assert (evaluation.metrics, evaluation.images) == ({"top1": None, "top5": None}, 2)


def test_a_squared_error_by_hand() -> None:
    """Errors 1 and -2: a sum of 5, a mean of 2.5, slopes 2 x 1 / 2 and 2 x -2 / 2."""
    outputs, numbers = torch.tensor([[2.0], [0.0]]), torch.tensor([1.0, 2.0])
    assert SquaredError().total(outputs.numpy().astype(float), numbers.numpy()) == 5
    loss, slope = SquaredError().slope(outputs, numbers)
    assert loss == 2.5
    assert slope.tolist() == [[1.0], [-2.0]]


def test_the_lstm_matches_pytorch() -> None:
    """With PyTorch's second bias at 0, in float64."""
    units, shape = 6, (2, 1, 9)
    network = lstm(units=units, shape=shape)
    rng = np.random.default_rng(4)
    flat = rng.normal(0, 0.5, network.layout.size).astype(np.float32)
    images = rng.standard_normal((5, *shape)).astype(np.float32)
    numbers = rng.standard_normal(5).astype(np.float32)
    loss, gradient = network.bind(flat).loss_and_gradient(images, numbers)

    parts = [torch.tensor(flat[one], dtype=torch.float64) for one in network.layout.slices()]
    weight, bias = parts[0].view(4 * units, 2 + units), parts[1]
    plain, dense = nn.LSTM(2, units).double(), nn.Linear(units, 1).double()
    values = {
        "weight_ih_l0": weight[:, :2],
        "weight_hh_l0": weight[:, 2:],
        "bias_ih_l0": bias,
        "bias_hh_l0": torch.zeros(4 * units),
    }
    plain.load_state_dict(values)
    dense.load_state_dict({"weight": parts[2].view(1, units), "bias": parts[3]})
    series = torch.tensor(images, dtype=torch.float64)[:, :, 0].permute(2, 0, 1)
    predictions = dense(plain(series)[0][-1])[:, 0]
    expected = nn.functional.mse_loss(predictions, torch.tensor(numbers, dtype=torch.float64))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    theirs = [
        torch.cat([plain.weight_ih_l0.grad, plain.weight_hh_l0.grad], 1),  # type: ignore[list-item]
        plain.bias_ih_l0.grad,
        dense.weight.grad,
        dense.bias.grad,
    ]
    for part, one in zip(network.layout.slices(), theirs, strict=True):
        assert one is not None
        np.testing.assert_allclose(gradient[part], one.numpy().ravel(), rtol=1e-3, atol=1e-6)
