"""Compared with the network of the paper, rewritten with functions of PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor
from torch.nn import functional

from testbed.errors import ScenarioError
from testbed.models import Model, Network, ResNet
from testbed.models.modules import without_running_statistics


def resnet(*, depth: int = 8, shape: tuple[int, int, int] = (3, 32, 32)) -> Network:
    config = ResNet.model_validate({"name": "resnet", "depth": depth})
    network = config.build(shape, 10, folder=Path("unused"))
    assert config.parameters(shape, 10) == network.layout.size
    return network


def scores_of(named: dict[str, Tensor], images: Tensor) -> Tensor:
    """ResNet-8 with one block per stage; the shortcut pads the channels equally on both sides."""

    def normalise(x: Tensor, name: str) -> Tensor:
        mean = x.mean((0, 2, 3), keepdim=True)
        spread = x.var((0, 2, 3), unbiased=False, keepdim=True)
        weight, bias = (named[f"{name}.{part}"].view(-1, 1, 1) for part in ("weight", "bias"))
        return (x - mean) / (spread + 1e-5).sqrt() * weight + bias

    x = functional.conv2d(images, named["conv.weight"], padding=1)
    x = normalise(x, "norm").relu()
    for i, stride in enumerate((1, 2, 2)):
        at = f"stages.{i}.0"
        y = functional.conv2d(x, named[f"{at}.conv1.weight"], stride=stride, padding=1)
        y = normalise(y, f"{at}.norm1").relu()
        y = normalise(functional.conv2d(y, named[f"{at}.conv2.weight"], padding=1), f"{at}.norm2")
        zeros = torch.zeros_like(y)
        beside = (y.shape[1] - x.shape[1]) // 2
        zeros[:, beside : beside + x.shape[1]] = x[:, :, ::stride, ::stride]
        x = (y + zeros).relu()
    return x.flatten(2).mean(2) @ named["dense.weight"].T + named["dense.bias"]


def test_sizes_match_the_paper() -> None:
    """Convolutions of 9 weights per pair of channels, two values of normalisation per channel.

    ResNet-8: (27 + 2) x 16 = 464 at first; two of (144 + 2) x 16 = 2,336; (144 + 2) x 32 = 4,672
    and (288 + 2) x 32 = 9,280; (288 + 2) x 64 = 18,560 and (576 + 2) x 64 = 36,992; 65 x 10 = 650.
    ResNet-20 has four more of the second, fourth and sixth: 9,344 + 37,120 + 147,968 = 194,432.
    """
    assert resnet().layout.size == 464 + 4_672 + 13_952 + 55_552 + 650 == 75_290
    assert resnet(depth=20).layout.size == 75_290 + 194_432 == 269_722


def test_grey_images_of_28_pixels() -> None:
    """(9 + 2) x 16 at first, instead of (27 + 2) x 16: 288 fewer. 28 pixels become 14, then 7."""
    network = resnet(shape=(1, 28, 28))
    assert network.layout.size == 75_290 - 288
    bound = network.bind(network.initial(np.random.default_rng(0)))
    assert bound.scores(np.zeros((2, 1, 28, 28), np.float32)).shape == (2, 10)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 9, 11)])
def test_loss_and_gradient_by_functions(shape: tuple[int, int, int]) -> None:
    """In float64: in float32 a relu at a value near 0 may flip, and change the earlier layers."""
    module = ResNet(name="resnet").module(shape, 10).double()
    without_running_statistics(module)
    rng = np.random.default_rng(1)
    images, labels = torch.tensor(rng.standard_normal((4, *shape))), torch.tensor([3, 0, 9, 3])
    named = {name: one.detach().requires_grad_() for name, one in module.named_parameters()}
    loss = functional.cross_entropy(module(images), labels)
    expected = functional.cross_entropy(scores_of(named, images), labels)
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad, named[name].grad, rtol=1e-6, atol=1e-12)


def test_initial_values() -> None:
    """Weights of deviation sqrt(2 / inputs of a unit); normalisation starts at 1 and 0."""
    network = resnet(depth=20)
    flat = network.initial(np.random.default_rng(0))
    named = dict(zip(network.layout.names, network.layout.slices(), strict=True))
    wide = flat[named["stages.2.1.conv1.weight"]]
    assert wide.std() == pytest.approx(np.sqrt(2 / 576), rel=0.02)
    assert set(flat[named["norm.weight"]]) == {1.0}
    assert set(flat[named["dense.bias"]]) == {0.0}


def test_normalisation_uses_the_current_batch() -> None:
    """The same two images have other scores in other batches, also in an evaluation."""
    network = resnet(shape=(1, 8, 8))
    bound = network.bind(network.initial(np.random.default_rng(0)))
    images = np.random.default_rng(1).standard_normal((6, 1, 8, 8)).astype(np.float32)
    alone, beside = bound.scores(images[:2]), bound.scores(images)[:2]
    assert np.abs(alone - beside).max() > 0.01
    np.testing.assert_array_equal(alone, bound.scores(images[:2]))
    assert np.isfinite(bound.scores(images[:1])).all()


def test_impossible_networks() -> None:
    with pytest.raises(ScenarioError, match=r"resnet on images of 4x4 .* at least 8x8 pixels"):
        resnet(shape=(1, 4, 4))
    with pytest.raises(ValidationError, match="8 or 20"):
        TypeAdapter(Model).validate_python({"resnet": {"depth": 9}})


def test_an_evaluation_is_independent_of_the_order_of_the_test_set() -> None:
    """It normalises by the current batch: 110 images are three batches."""
    network = resnet()
    bound = network.bind(network.initial(np.random.default_rng(0)))
    images = np.random.default_rng(1).standard_normal((110, 3, 32, 32)).astype(np.float32)
    labels = np.arange(110) % 10
    images += labels[:, None, None, None].astype(np.float32)
    by_class = np.argsort(labels, kind="stable")
    found = bound.evaluate(images, labels)
    assert bound.evaluate(images[by_class], labels[by_class]) == found
