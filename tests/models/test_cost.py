"""The cost of a training step, counted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from testbed.errors import ScenarioError
from testbed.models.cost import count_flops
from testbed.models.mlp import Mlp
from testbed.models.modules import ModuleNetwork


def test_a_perceptron() -> None:
    """Products of 64 x 32 and 32 x 10: forward, for the weights, and for the hidden units."""
    network = Mlp(name="mlp", hidden=(32,)).build((1, 8, 8), 10, folder=Path())
    forward = 2 * (64 * 32 + 32 * 10)
    assert count_flops(network, (1, 8, 8), 10) == forward + forward + 2 * 32 * 10


def test_a_convolution_of_torch() -> None:
    """3 x 3 filters, 1 to 4 channels, on 8 x 8: 6 x 6 places; there is no gradient of the input."""
    make = lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())  # noqa: E731
    found = count_flops(ModuleNetwork(make), (1, 8, 8), 144)
    assert found == 2 * (2 * 9 * 4 * 36)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(8, 4, batch_first=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner(images[:, 0].contiguous())[0][:, -1]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1) * self.scale


@pytest.mark.parametrize(
    ("module", "found"), [(Recurrent, "rnn"), (Scaled, "without operations that can be counted")]
)
def test_a_model_that_cannot_be_counted_is_refused(module: type[nn.Module], found: str) -> None:
    with pytest.raises(ScenarioError, match=found):
        count_flops(ModuleNetwork(module), (1, 8, 8), 4)
