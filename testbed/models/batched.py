"""Gradients of several parameter vectors at once, by ``torch.func.vmap``: for GPUs.

A small network leaves most of a GPU idle. Here one pass over the layers computes the gradients of
many workers, each at its own parameters and on its own batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import repeat
from typing import cast

import numpy as np
import torch
from torch.func import grad_and_value, vmap

from testbed.models.base import GradientRequest, Images, Network, Targets
from testbed.models.device_vector import DeviceVector
from testbed.payloads import Vector

TOLERANCE = 0.01
"""Of float32 gradients, relative to the largest entry: networks amplify differences in the last
digits where a ReLU's input is almost zero."""

TINY = 1e-7


class NotBatchable(Exception):  # noqa: N818 - a result
    """The gradients of a network can only be computed one by one; the message says why."""


class BatchedNetwork:
    """Computes up to ``count`` gradients of a network at once.

    All passes are of ``count`` gradients: the last request fills the rest. The kernels that a
    device chooses depend on the sizes of tensors, so a gradient would otherwise have other last
    digits beside fewer others, and a run could not be repeated.

    Args:
        network: the network.
        count: number of gradients of a pass.
        device: see ``Network.bind``.
    """

    def __init__(self, network: Network, count: int, *, device: str | None = None) -> None:
        self.count = count
        parameters, gradients = np.zeros((2, count, network.layout.size), np.float32)
        self._values = DeviceVector.of(parameters, device)
        self._slopes = DeviceVector.of(gradients, device)
        self._gradients = gradients
        self._parameters = parameters
        self._compute = vmap(grad_and_value(network.loss(device=device)))

    def gradients(self, requests: Sequence[GradientRequest]) -> list[tuple[float, Vector]]:
        """Return the loss and the gradient of each of 1 to ``count`` requests with equal shapes.

        The gradients, each float32 (N,), are in buffers that the next call overwrites.
        """
        filled = [*requests, *repeat(requests[-1], self.count - len(requests))]
        for row, request in zip(self._parameters, filled, strict=True):
            row[:] = request.parameters
        self._values.send()
        images, targets = (
            torch.from_numpy(np.stack(parts)).to(self._values.tensor.device)
            for parts in ([one.images for one in filled], [one.targets for one in filled])
        )
        slopes, losses = self._compute(self._values.tensor, images, targets)
        self._slopes.tensor.copy_(slopes)
        self._slopes.fetch()
        values = cast(list[float], losses.tolist())
        return list(zip(values, self._gradients, strict=True))[: len(requests)]


def require_batchable(network: Network, images: Images, targets: Targets) -> None:
    """Compute two gradients at once on the CPU, on this batch.

    Raises:
        NotBatchable: that is not possible, or their values are not those of the network itself.
    """
    if network.local.size:
        raise NotBatchable("workers keep a part of the model")
    parameters = network.initial(np.random.default_rng(0))
    try:
        batched = BatchedNetwork(network, 2)
        expected_loss, expected = network.bind(parameters).loss_and_gradient(images, targets)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # of kernels that loop over the gradients
            request = GradientRequest(parameters, images, targets)
            ((loss, gradient),) = batched.gradients([request])
    except (NotImplementedError, RuntimeError, UserWarning) as error:
        raise NotBatchable(str(error).partition(". ")[0]) from None
    scale = float(np.abs(expected).max())
    if not np.allclose(gradient, expected, rtol=0, atol=TOLERANCE * scale + TINY):
        raise NotBatchable("at once, its gradients have other values")
    if not np.isclose(loss, expected_loss, rtol=TOLERANCE):
        raise NotBatchable("at once, its losses have other values")
