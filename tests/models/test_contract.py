"""The contract of every model. One missing in the union, or without an example here, fails."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import TypeAdapter

import testbed.models
from testbed.models import ImageShape, Model, ModelConfig, Network
from testbed.models.base import GradientRequest
from testbed.models.batched import BatchedNetwork, NotBatchable, require_batchable
from testbed.payloads import Vector
from testbed.values.samples import NOT_COUNTED

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        channels, height, width = image_shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(),
            nn.Flatten(), nn.Linear(4 * height * width, classes),
        )

    def forward(self, images):
        return self.layers(images)
"""

EXAMPLES: dict[str, tuple[Any, ImageShape, int]] = {
    "adacomp-cnn": ("adacomp-cnn", (1, 28, 28), 10),
    "adsp-cnn": ({"adsp-cnn": {"width": 12}}, (3, 8, 8), 10),
    "char-lstm": ({"char-lstm": {"embedding": 3, "units": 5}}, (7,), 11),
    "custom": ({"custom": {"file": "./net.py", "class": "Net"}}, (2, 6, 6), 4),
    "digits-cnn": ("digits-cnn", (1, 8, 8), 10),
    "gpt": ({"gpt": {"layers": 2, "heads": 2, "width": 8}}, (7,), 11),
    "linear-svm": ("linear-svm", (1, 1, 8), 0),
    "lstm": ({"lstm": {"units": 5}}, (2, 1, 7), 0),
    "mlp": ({"mlp": {"hidden": [12, 7]}}, (3, 5, 5), 6),
    "resnet": ({"resnet": {"depth": 8}}, (3, 8, 8), 10),
    "vgg-s": ("vgg-s", (1, 8, 8), 4),
}


def members() -> dict[str, type[ModelConfig]]:
    """The union's classes by name."""
    union = get_args(get_args(Model)[0])
    return {get_args(config.model_fields["name"].annotation)[0]: config for config in union}


def build(name: str, folder: Path) -> tuple[Network, ImageShape, int]:
    (folder / "custom").mkdir(exist_ok=True)
    (folder / "custom" / "net.py").write_text(NET, encoding="utf-8")
    value, image_shape, classes = EXAMPLES[name]
    config = TypeAdapter(Model).validate_python(value)
    return config.build(image_shape, classes, folder=folder), image_shape, classes


def batch(image_shape: ImageShape, classes: int, *, count: int = 6) -> tuple[Any, Any]:
    """Read-only images and labels, as from a mapped data set.

    Without classes the labels are numeric targets. Of tokens, the second sample counts only two.
    """
    rng = np.random.default_rng(5)
    if len(image_shape) == 1:
        tokens = rng.integers(0, classes, (count, image_shape[0] + 1))
        images, labels = tokens[:, :-1].astype(np.int32), tokens[:, 1:].copy()
        labels[1, 2:] = NOT_COUNTED
        images.flags.writeable = labels.flags.writeable = False
        return images, labels
    images = rng.standard_normal((count, *image_shape)).astype(np.float32)
    labels = rng.integers(0, classes, count) if classes else rng.standard_normal(count)
    labels = labels.astype(np.int64 if classes else np.float32)
    images.flags.writeable = labels.flags.writeable = False
    return images, labels


def test_every_model_is_in_the_union() -> None:
    listed = set(members().values())
    for info in pkgutil.iter_modules(testbed.models.__path__):
        module = importlib.import_module(f"testbed.models.{info.name}")
        for name, found in inspect.getmembers(module, inspect.isclass):
            if issubclass(found, ModelConfig) and found.__module__ == module.__name__:
                line = f"add {name} to the union Model in testbed/models/__init__.py"
                assert found in listed or inspect.isabstract(found), line


def test_every_model_has_an_example() -> None:
    assert members()
    for name in members():
        assert name in EXAMPLES, f'add "{name}" to EXAMPLES in tests/models/test_contract.py'


def test_names_equal_those_of_the_files() -> None:
    for name, config in members().items():
        assert config.__module__ == f"testbed.models.{name.replace('-', '_')}"


def test_configs_import_no_torch() -> None:
    code = "import sys, testbed.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_config_survives_a_round_trip(name: str) -> None:
    adapter: TypeAdapter[ModelConfig] = TypeAdapter(Model)
    config = adapter.validate_python(EXAMPLES[name][0])
    written = config.model_dump(mode="json", by_alias=True)
    assert adapter.validate_python(written) == config


@pytest.mark.parametrize("name", sorted(EXAMPLES))
class TestNetwork:
    def test_initial_parameters_are_reproducible_from_the_generator(
        self, name: str, tmp_path: Path
    ) -> None:
        network, _, _ = build(name, tmp_path)
        one, two, other = (network.initial(np.random.default_rng(s)) for s in (1, 1, 2))
        assert one.dtype == np.float32
        assert one.shape == (network.layout.size,)
        np.testing.assert_array_equal(one, two)
        assert not np.array_equal(one, other)

    def test_the_layout_is_deterministic(self, name: str, tmp_path: Path) -> None:
        assert build(name, tmp_path)[0].layout == build(name, tmp_path)[0].layout

    def test_gradient_is_the_slope_of_the_loss(self, name: str, tmp_path: Path) -> None:
        """Central differences along three directions: the gradient's own, and two random ones."""
        network, image_shape, classes = build(name, tmp_path)
        images, labels = batch(image_shape, classes)
        rng = np.random.default_rng(3)
        start = network.initial(rng)
        at = start.copy()
        bound = network.bind(at)
        gradient = bound.loss_and_gradient(images, labels)[1].astype(np.float64)
        directions = [gradient, *rng.standard_normal((2, len(at)))]
        for direction in directions:
            towards = direction / np.linalg.norm(direction)
            step = 1e-3

            def loss(
                distance: float, at: Vector = at, towards: Any = towards, bound: Any = bound
            ) -> float:
                at[:] = start + distance * towards
                return float(bound.loss_and_gradient(images, labels)[0])

            slope = (loss(step) - loss(-step)) / (2 * step)
            expected = float(gradient @ towards)
            assert slope == pytest.approx(expected, rel=0.02, abs=0.02 * np.abs(gradient).max())

    def test_a_bound_network_follows_changes_of_its_vector(self, name: str, tmp_path: Path) -> None:
        network, image_shape, classes = build(name, tmp_path)
        images, labels = batch(image_shape, classes)
        at = network.initial(np.random.default_rng(0))
        bound = network.bind(at)
        before = bound.loss_and_gradient(images, labels)[0]
        at[:] = 0
        zero, _ = bound.loss_and_gradient(images, labels)
        without = np.log(classes) if classes else bound.total_loss(np.zeros(6), labels) / 6
        assert zero == pytest.approx(without, rel=1e-5)
        assert before != zero

    def test_a_copy_on_a_device_computes_the_same(self, name: str, tmp_path: Path) -> None:
        """The CPU stands in for the device: its data are a copy, as on any other."""
        network, image_shape, classes = build(name, tmp_path)
        images, labels = batch(image_shape, classes)
        at = network.initial(np.random.default_rng(0))
        here, there = network.bind(at), network.bind(at, device="cpu")
        for _ in range(2):
            loss, gradient = here.loss_and_gradient(images, labels)
            copied = there.loss_and_gradient(images, labels)
            assert copied[0] == loss
            np.testing.assert_array_equal(copied[1], gradient)
            assert there.evaluate(images, labels) == here.evaluate(images, labels)
            at *= np.float32(0.5)
        assert there.penalty() == here.penalty()

    def test_two_bound_networks_are_independent(self, name: str, tmp_path: Path) -> None:
        network, image_shape, classes = build(name, tmp_path)
        images, labels = batch(image_shape, classes)
        one, two = (network.bind(network.initial(np.random.default_rng(s))) for s in (1, 2))
        _, gradient = one.loss_and_gradient(images, labels)
        kept = gradient.copy()
        two.loss_and_gradient(images, labels)
        np.testing.assert_array_equal(gradient, kept)
        np.testing.assert_allclose(one.loss_and_gradient(images, labels)[1], kept, rtol=1e-6)

    def test_the_gradient_is_a_borrowed_buffer(self, name: str, tmp_path: Path) -> None:
        network, image_shape, classes = build(name, tmp_path)
        images, labels = batch(image_shape, classes)
        bound = network.bind(network.initial(np.random.default_rng(0)))
        _, first = bound.loss_and_gradient(images, labels)
        _, second = bound.loss_and_gradient(images[::-1].copy(), labels)
        assert first is second
        assert first.dtype == np.float32
        assert first.shape == (network.layout.size,)

    def test_evaluation_agrees_with_the_loss(self, name: str, tmp_path: Path) -> None:
        network, image_shape, classes = build(name, tmp_path)
        images, labels = batch(image_shape, classes)
        bound = network.bind(network.initial(np.random.default_rng(0)))
        evaluation = bound.evaluate(images, labels)
        assert evaluation.images == 6
        assert evaluation.loss == pytest.approx(
            bound.loss_and_gradient(images, labels)[0], rel=1e-5
        )
        scores = bound.scores(images)
        if labels.ndim == 2:
            assert scores.shape == (*labels.shape, classes)
            scores, labels = scores[labels != NOT_COUNTED], labels[labels != NOT_COUNTED]
            assert len(labels) == 5 * image_shape[0] + 2
        if not classes:
            assert scores.shape == (6, 1)
            assert evaluation.metrics == {"top1": None, "top5": None}
            return
        assert scores.shape == (len(labels), classes)
        assert evaluation.metrics["top1"] == pytest.approx(np.mean(scores.argmax(1) == labels))
        assert evaluation.metrics["top5"] >= evaluation.metrics["top1"]


ONE_BY_ONE = {
    "adsp-cnn": "modified by an inplace operation",
    "char-lstm": "batching rule",
    "custom": "a model of your own computes one gradient at a time",
    "lstm": "batching rule",
}
"""Models whose gradients are not computed at once, and why."""


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_gradients_at_once_are_those_computed_one_by_one(name: str, tmp_path: Path) -> None:
    network, image_shape, classes = build(name, tmp_path)
    images, targets = batch(image_shape, classes, count=12)
    if name in ONE_BY_ONE:
        with pytest.raises(NotBatchable, match=ONE_BY_ONE[name]):
            require_batchable(network, images, targets)
        return
    require_batchable(network, images, targets)
    requests, expected = [], []
    for seed in range(3):
        values, part = network.initial(np.random.default_rng(seed)), slice(4 * seed, 4 * seed + 4)
        requests.append(GradientRequest(values, images[part], targets[part]))
        loss, gradient = network.bind(values).loss_and_gradient(images[part], targets[part])
        expected.append((loss, gradient.copy()))
    batched = BatchedNetwork(network, 4)
    found = [(loss, gradient.copy()) for loss, gradient in batched.gradients(requests)]
    for (loss, gradient), (own_loss, own) in zip(found, expected, strict=True):
        assert loss == pytest.approx(own_loss, rel=1e-5)
        np.testing.assert_allclose(gradient, own, rtol=0, atol=0.005 * np.abs(own).max())
    ((loss, gradient),) = batched.gradients(requests[2:])  # in another place, beside others
    assert loss == found[2][0]
    np.testing.assert_array_equal(gradient, found[2][1])
