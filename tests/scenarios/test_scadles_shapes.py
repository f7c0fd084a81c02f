from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from testbed.payloads.topk import quotas

FOLDER = Path(__file__).parents[2] / "scenarios" / "scadles"


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The study's module."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "shapes", raising=False)
    return import_module("shapes")


def test_parameters_by_hand(shapes: Any) -> None:
    """ResNet152's first stage, convolutions and two values of normalisation a channel.

    Blocks of 64: (64 + 2) x 64 + (576 + 2) x 64 + (64 + 2) x 256 = 58,112, and a shortcut of
    (64 + 2) x 256 = 16,896, 75,008 in all; then two of (256 + 2) x 64 + 36,992 + 16,896 = 70,400.
    """
    shape = shapes.resnet152()
    assert shape.layout.size == 60_192_808
    sizes = dict(zip(shape.layout.names, shape.layout.sizes, strict=True))
    stage = sum(size for name, size in sizes.items() if name.startswith("stage0"))
    assert stage == 75_008 + 2 * 70_400
    assert sizes["stem.conv.weight"] == 9_408
    assert sizes["dense.weight"] + sizes["dense.bias"] == 2_049_000


def test_parameters_of_vgg_by_hand(shapes: Any) -> None:
    """Convolutions: 1,792 + 36,928; 73,856 + 147,584; 295,168 + 3 x 590,080; 1,180,160 and
    7 x 2,359,808. Dense: 25,089 x 4,096, 4,097 x 4,096 and 4,097 x 1,000.
    """
    convolutions = 38_720 + 221_440 + 2_065_408 + 1_180_160 + 7 * 2_359_808
    dense = 102_764_544 + 16_781_312 + 4_097_000
    assert shapes.vgg19().layout.size == convolutions + dense == 143_667_240


def test_activations_by_hand(shapes: Any) -> None:
    """VGG19 on 32x32 pixels: a stage's convolutions at its side, then half of it.

    2 x 64 x 1,024 + 64 x 256, 2 x 128 x 256 + 128 x 64, 4 x 256 x 64 + 256 x 16, 4 x 512 x 16 +
    512 x 4, 4 x 512 x 4 + 512, 49 x 512 at 7x7, and 4,096 + 4,096 + 1,000.
    """
    stages = 147_456 + 73_728 + 69_632 + 34_816 + 8_704
    assert shapes.vgg19().activations == stages + 25_088 + 9_192


def test_memory_grows_with_the_batch_and_the_optimizers_states(shapes: Any) -> None:
    """Two, three and four values of four bytes per parameter; activations per image."""
    shape = shapes.vgg19()
    assert shape.dense_bytes == 574_668_960
    assert shape.training_bytes(0, "sgd") == 2 * shape.dense_bytes
    assert shape.training_bytes(0, "adam") == 4 * shape.dense_bytes
    more = shape.training_bytes(64, "nesterov") - shape.training_bytes(0, "nesterov")
    assert more == 64 * 4 * shape.activations


@pytest.mark.parametrize(("ratio", "most"), [(0.1, 0.1), (0.01, 0.0101)])
def test_small_tensors_add_little_to_the_ratio(shapes: Any, ratio: float, most: float) -> None:
    """At least one value of each of 467 tensors is sent."""
    shape = shapes.resnet152()
    sent = sum(quota.count for quota in quotas(shape.layout.sizes, ratio))
    assert 0.99 * ratio < sent / shape.layout.size <= most
