"""Compared with the network of the paper's authors, in plain PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from testbed.errors import ScenarioError
from testbed.models import AdspCnn, Network

WIDTH = 12


def cnn(*, width: int = 64, classic: bool = False, side: int = 32) -> Network:
    config = AdspCnn(name="adsp-cnn", width=width, classic=classic)
    network = config.build((3, side, side), 10, folder=Path("unused"))
    assert config.parameters((3, side, side), 10) == network.layout.size
    return network


def tensors(network: Network, flat: np.ndarray) -> dict[str, torch.Tensor]:
    """The parts of a flat vector in PyTorch's order, in float64."""
    cut = zip(network.layout.names, network.layout.slices(), network.layout.shapes, strict=True)
    named = {
        name: torch.tensor(flat[part], dtype=torch.float64).view(shape) for name, part, shape in cut
    }
    return {
        name: tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor
        for name, tensor in named.items()
    }


def objective(
    named: dict[str, torch.Tensor], images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """The layers one by one; TensorFlow's "same" pooling pads an even side only at its end."""

    def pool(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(nn.functional.pad(x, (0, 1, 0, 1), value=-1e9), 3, 2)

    def normalise(x: torch.Tensor) -> torch.Tensor:
        # PyTorch divides the sum by the size, 9; TensorFlow does not
        return nn.functional.local_response_norm(x, 9, alpha=0.001, beta=0.75, k=1.0)

    x = nn.functional.conv2d(images, named["conv1.weight"], named["conv1.bias"], padding=2)
    x = normalise(pool(x.relu()))
    x = nn.functional.conv2d(x, named["conv2.weight"], named["conv2.bias"], padding=2)
    x = pool(normalise(x.relu()))
    x = x.permute(0, 2, 3, 1).flatten(1) @ named["dense.weight"].T + named["dense.bias"]
    weights = [tensor for name, tensor in named.items() if name.endswith("weight")]
    penalty = sum(weight.square().sum() for weight in weights)
    return nn.functional.cross_entropy(x, labels) + 0.004 / 2 * penalty


def test_sizes_match_the_paper() -> None:
    """Convolutions (75 + 1) x 64 and (1600 + 1) x 64, dense (4096 + 1) x 10."""
    layout = cnn().layout
    assert layout.size == 148_298
    assert layout.sizes == (4800, 64, 102_400, 64, 40_960, 10)
    assert layout.names[0] == "conv1.weight"
    assert layout.shapes[2] == (64, 5, 5, 64)


def test_a_width_of_sixteen() -> None:
    """(75 + 1) x 16 + (400 + 1) x 16 + (8 x 8 x 16 + 1) x 10 = 1,216 + 6,416 + 10,250."""
    assert cnn(width=16).layout.size == 17_882


def test_the_tutorials_network() -> None:
    """107,328 of the convolutions, 4097 x 384, 385 x 192 and 193 x 10."""
    layout = cnn(classic=True).layout
    assert layout.size == 107_328 + 1_573_248 + 73_920 + 1_930 == 1_756_426
    assert layout.shapes[4:] == ((384, 4096), (384,), (192, 384), (192,), (10, 192), (10,))


def test_initial_values_match_the_authors_code() -> None:
    network = cnn()
    values = network.initial(np.random.default_rng(1))
    parts = dict(zip(network.layout.names, network.layout.slices(), strict=True))
    biases = {name: set(values[part]) for name, part in parts.items() if name.endswith("bias")}
    assert biases == {"conv1.bias": {0}, "conv2.bias": {np.float32(0.1)}, "dense.bias": {0}}
    for name, deviation in (("conv1", 0.05), ("conv2", 0.05), ("dense", 1 / 192)):
        weights = values[parts[f"{name}.weight"]]
        assert np.abs(weights).max() <= np.float32(2 * deviation)
        # a standard normal law cut off at two has variance 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.7737
        assert weights.std() == pytest.approx(deviation * np.sqrt(0.7737), rel=0.03)


def test_loss_and_gradient_match_the_authors_network() -> None:
    network = cnn(width=WIDTH, side=16)
    rng = np.random.default_rng(2)
    flat = network.initial(rng) * 3  # so that the normalisation has an effect
    images = 4 * rng.standard_normal((5, 3, 16, 16)).astype(np.float32)
    labels = rng.integers(0, 10, 5)
    bound = network.bind(flat)
    loss, gradient = bound.loss_and_gradient(images, labels)

    named = tensors(network, flat)
    for tensor in named.values():
        tensor.requires_grad_()
    expected = objective(named, torch.tensor(images, dtype=torch.float64), torch.tensor(labels))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert bound.evaluate(images, labels).loss == pytest.approx(expected.item(), rel=1e-5)
    for name, ours in tensors(network, gradient).items():
        theirs = named[name].grad
        assert theirs is not None
        scale = float(theirs.abs().max())
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-5 * scale)


def test_the_penalty_worked_by_hand() -> None:
    """Every value 0.5: 0.002 x 0.25 x (900 + 3,600 + 480) weights; no bias counts."""
    network = cnn(width=WIDTH, side=8)
    bound = network.bind(np.full(network.layout.size, 0.5, np.float32))
    assert network.layout.sizes == (900, 12, 3600, 12, 480, 10)
    assert bound.penalty() == pytest.approx(0.002 * 0.25 * 4980)


def test_the_tutorials_penalty_applies_to_its_hidden_layers() -> None:
    """Every value 0.5: 0.002 x 0.25 x (2 x 2 x 12 x 384 + 384 x 192)."""
    network = cnn(width=WIDTH, classic=True, side=8)
    bound = network.bind(np.full(network.layout.size, 0.5, np.float32))
    assert bound.penalty() == pytest.approx(0.002 * 0.25 * (18_432 + 73_728))


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(ScenarioError, match="adsp-cnn on images of 3x3 pixels"):
        AdspCnn(name="adsp-cnn").build((3, 3, 3), 10, folder=Path("unused"))
