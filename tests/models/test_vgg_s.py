"""Compared with the same layers, one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from testbed.errors import ScenarioError
from testbed.models import Network, VggS
from testbed.models.modules import without_running_statistics


def vgg(*, batch_norm: bool = True, shape: tuple[int, int, int] = (3, 32, 32)) -> Network:
    config = VggS(name="vgg-s", batch_norm=batch_norm)
    network = config.build(shape, 10, folder=Path("unused"))
    assert config.parameters(shape, 10) == network.layout.size
    return network


def scores_of(tensors: list[Tensor], images: Tensor, *, batch_norm: bool) -> Tensor:
    """Six convolutions, the second, fourth and sixth pooled, and two dense layers."""
    left, x = iter(tensors), images
    for i in range(6):
        x = functional.conv2d(x, next(left), next(left), padding=1)
        if batch_norm:
            x = functional.batch_norm(x, None, None, next(left), next(left), training=True)
        x = x.relu()
        if i in (1, 3, 5):
            x = functional.max_pool2d(x, 2)
    x = functional.linear(x.flatten(1), next(left), next(left)).relu()
    x = functional.linear(x, next(left), next(left))
    assert not list(left)
    return x


def test_sizes() -> None:
    """Convolutions (9 inputs + 1) x outputs: 896 + 9,248 + 18,496 + 36,928 + 73,856 + 147,584.

    32 pixels are halved thrice, so that the dense layers have (2,048 + 1) x 256 and 257 x 10. The
    normalisation has two values for each of 448 channels.
    """
    plain = 287_008 + 524_544 + 2_570
    assert vgg(batch_norm=False).layout.size == plain == 814_122
    assert vgg().layout.size == plain + 896 == 815_018


def test_grey_images_of_28_pixels() -> None:
    """(9 + 1) x 32 at first; 28 pixels become 14, 7 and 3, so that (1,152 + 1) x 256 are dense."""
    network = vgg(shape=(1, 28, 28))
    assert network.layout.size == 320 + 286_112 + 295_168 + 2_570 + 896
    bound = network.bind(network.initial(np.random.default_rng(0)))
    assert bound.scores(np.zeros((2, 1, 28, 28), np.float32)).shape == (2, 10)


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_loss_and_gradient_by_functions(shape: tuple[int, int, int], batch_norm: bool) -> None:
    """In float64: in float32 a relu at a value near 0 may flip, and change the earlier layers."""
    module = VggS(name="vgg-s", batch_norm=batch_norm).module(shape, 10).double()
    without_running_statistics(module)
    rng = np.random.default_rng(1)
    images, labels = torch.tensor(rng.standard_normal((4, *shape))), torch.tensor([3, 0, 9, 3])
    tensors = [one.detach().requires_grad_() for one in module.parameters()]
    loss = functional.cross_entropy(module(images), labels)
    scores = scores_of(tensors, images, batch_norm=batch_norm)
    expected = functional.cross_entropy(scores, labels)
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    for parameter, tensor in zip(module.parameters(), tensors, strict=True):
        torch.testing.assert_close(parameter.grad, tensor.grad, rtol=1e-6, atol=1e-12)


def test_images_that_cannot_be_halved_three_times() -> None:
    with pytest.raises(ScenarioError, match=r"vgg-s on images of 7x7 .* at least 8x8 pixels"):
        vgg(shape=(1, 7, 7))
