"""Vectors on other devices, and layers that compute on the device of their input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from testbed.models.device_vector import DeviceVector
from testbed.models.layers import Convolution, Layer, LayeredNetwork, Linear
from testbed.models.normalised_convolution import NormalisedConvolution
from testbed.models.recurrence import Memory

ROWS: dict[str, tuple[Sequence[Layer], tuple[int, ...]]] = {
    "convolution": ([Convolution("a", 1, 2, 0.1), Linear("b", 8, 3, 0.1)], (5, 4, 4, 1)),
    "normalised": (
        [
            NormalisedConvolution("a", 3, 4, 0.1),
            NormalisedConvolution("b", 4, 4, 0.1, pooled_first=False),
            Linear("c", 16, 3, 0.1, relu=False),
        ],
        (5, 8, 8, 3),
    ),
    "memory": ([Memory("a", 1, 4, 0.1), Linear("b", 4, 1, 0.1, relu=False)], (5, 6, 1, 1)),
}


def test_on_the_cpu_memory_is_shared() -> None:
    vector = np.zeros(3, np.float32)
    on_device = DeviceVector.of(vector, None)
    on_device.tensor[1] = 2.0
    assert vector.tolist() == [0.0, 2.0, 0.0]


def test_a_copy_is_moved_to_the_device_and_back() -> None:
    vector = np.zeros(3, np.float32)
    on_device = DeviceVector.of(vector, "cpu")
    vector[:] = 1.0
    assert on_device.tensor.tolist() == [0.0, 0.0, 0.0]
    on_device.send()
    assert on_device.tensor.tolist() == [1.0, 1.0, 1.0]
    on_device.tensor[0] = 5.0
    assert vector.tolist() == [1.0, 1.0, 1.0]
    on_device.fetch()
    assert vector.tolist() == [5.0, 1.0, 1.0]


@pytest.mark.slow  # the first convolution on `meta` makes PyTorch import slow modules
@pytest.mark.parametrize("name", sorted(ROWS))
def test_layers_compute_on_the_device_of_their_input(name: str) -> None:
    """On ``meta``, a device without numbers, which refuses inputs on other devices."""
    layers, shape = ROWS[name]
    network = LayeredNetwork(layers)
    values, slopes = (torch.zeros(network.layout.size, device="meta") for _ in range(2))
    pairs = list(zip(layers, network.cut(values), network.cut(slopes), strict=True))
    x, kept = torch.zeros(shape, device="meta"), []
    with torch.inference_mode():
        for layer, at, _ in pairs:
            x, keep = layer.forward(at, x)
            kept.append(keep)
        slope = torch.zeros_like(x)
        for number, (layer, at, into) in reversed(list(enumerate(pairs))):
            back = layer.backward(at, kept.pop(), slope, into=into, first=number == 0)
            slope = slope if back is None else back
    assert {x.device.type, slope.device.type} == {"meta"}
