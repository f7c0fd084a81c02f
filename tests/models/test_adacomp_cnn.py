"""Compared with the network of the paper, in plain PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from testbed.errors import ScenarioError
from testbed.models import AdaCompCnn, Network


class Plain(nn.Module):
    """Convolution, relu, pooling, in this order, in float64, from the same flat vector."""

    def __init__(self, network: Network, flat: np.ndarray) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding="same")
        self.conv2 = nn.Conv2d(32, 32, 3, padding="same")
        self.dense1 = nn.Linear(1568, 128)
        self.dense2 = nn.Linear(128, 10)
        self.double()
        cut = zip(network.layout.names, network.layout.slices(), strict=True)
        self.load_state_dict({name: self.seen(name, flat[part]) for name, part in cut})

    @staticmethod
    def seen(name: str, part: np.ndarray) -> torch.Tensor:
        """A part of the flat vector in PyTorch's order (output, input, height, width)."""
        shapes = {
            "conv1.weight": (32, 3, 3, 1),
            "conv2.weight": (32, 3, 3, 32),
            "dense1.weight": (128, 7, 7, 32),
            "dense2.weight": (10, 128),
        }
        tensor = torch.tensor(part, dtype=torch.float64).view(shapes.get(name, -1))
        if tensor.ndim == 4:
            tensor = tensor.permute(0, 3, 1, 2)
        return tensor.reshape(128, 1568) if name == "dense1.weight" else tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv2(x)), 2)
        return self.dense2(nn.functional.relu(self.dense1(x.flatten(1))))


def cnn() -> Network:
    return AdaCompCnn(name="adacomp-cnn").build((1, 28, 28), 10, folder=Path("unused"))


def test_sizes_match_the_paper() -> None:
    layout = cnn().layout
    assert layout.size == 211_690
    assert layout.sizes == (288, 32, 9216, 32, 200_704, 128, 1280, 10)
    assert layout.names[:2] == ("conv1.weight", "conv1.bias")
    assert layout.shapes[2] == (32, 3, 3, 32)


def test_initial_values_match_the_paper() -> None:
    network = cnn()
    values = network.initial(np.random.default_rng(1))
    for name, part in zip(network.layout.names, network.layout.slices(), strict=True):
        if name.endswith("bias"):
            assert np.all(values[part] == np.float32(0.1))
        else:
            assert np.abs(values[part]).max() <= 0.2
    weights = values[slice(9568, 9568 + 200_704)]
    assert abs(weights.mean()) < 0.001
    # a standard normal law cut off at two has variance 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.7737
    assert weights.std() == pytest.approx(0.1 * np.sqrt(0.7737), rel=0.01)


def test_the_gradient_matches_the_papers_network() -> None:
    network = cnn()
    rng = np.random.default_rng(2)
    flat = network.initial(rng)
    images = rng.standard_normal((10, 1, 28, 28)).astype(np.float32)
    images[:, :, :, :9] = images[0, 0, 0, 0]  # blank margins, as digits have: many equal maxima
    labels = rng.integers(0, 10, 10)
    loss, gradient = network.bind(flat).loss_and_gradient(images, labels)

    plain = Plain(network, flat)
    scores = plain(torch.tensor(images, dtype=torch.float64))
    expected = nn.functional.cross_entropy(scores, torch.tensor(labels))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    named = dict(plain.named_parameters())
    for name, part in zip(network.layout.names, network.layout.slices(), strict=True):
        ours = Plain.seen(name, gradient[part]).numpy()
        theirs = named[name].grad
        assert theirs is not None
        scale = float(theirs.abs().max())
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5 * scale)


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(ScenarioError, match="adacomp-cnn on images of 3x3 pixels"):
        AdaCompCnn(name="adacomp-cnn").build((1, 3, 3), 10, folder=Path("unused"))
