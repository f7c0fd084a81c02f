"""Buffers that training changes, as parts of the flat vector, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from testbed.errors import ScenarioError
from testbed.models import CustomModel, Network

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes, *, momentum=0.5):
        super().__init__()
        self.norm = nn.BatchNorm1d(2, momentum=momentum)
        self.score = nn.Linear(2, classes)

    def forward(self, images):
        return self.score(self.norm(images.flatten(1)))
"""


def build(folder: Path, source: str, *, name: str = "Net", **options: object) -> Network:
    (folder / "custom").mkdir()
    (folder / "custom" / "net.py").write_text(source, encoding="utf-8")
    own = {"name": "custom", "file": "net.py", "class": name, "buffers": "averaged"}
    return CustomModel.model_validate(own | options).build((1, 1, 2), 3, folder=folder)


IMAGES = np.array([[[[1, 10]]], [[[3, 10]]]], np.float32)
LABELS = np.array([0, 1])


def test_running_statistics_follow_the_parameters(tmp_path: Path) -> None:
    layout = build(tmp_path, NET).layout
    parameters = ("norm.weight", "norm.bias", "score.weight", "score.bias")
    assert layout.names == (*parameters, "norm.running_mean", "norm.running_var")
    assert layout.untrained == {"norm.running_mean", "norm.running_var"}
    assert layout.untrained_slices == (slice(13, 15), slice(15, 17))


def test_the_gradient_has_what_a_step_subtracts(tmp_path: Path) -> None:
    """Means 2 and 10, unbiased variances 2 and 0, with a momentum of 1/2 from 0 and 1."""
    network = build(tmp_path, NET)
    at = network.initial(np.random.default_rng(0))
    assert at[13:].tolist() == [0, 0, 1, 1]  # as new, though the network has been tried
    bound = network.bind(at)
    for _ in range(2):
        _, gradient = bound.loss_and_gradient(IMAGES, LABELS)
        assert gradient[13:].tolist() == [-1, -5, -0.5, 0.5]
        assert at[13:].tolist() == [0, 0, 1, 1]
    at[13:] -= gradient[13:]
    _, gradient = bound.loss_and_gradient(IMAGES, LABELS)
    assert gradient[13:].tolist() == [-0.5, -2.5, -0.25, 0.25]


def test_the_gradient_of_parameters_is_that_without(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    network = build(tmp_path, NET)
    dropped = build(tmp_path / "other", NET, buffers="dropped")
    at = network.initial(np.random.default_rng(0))
    _, gradient = network.bind(at).loss_and_gradient(IMAGES, LABELS)
    _, other = dropped.bind(at[:13].copy()).loss_and_gradient(IMAGES, LABELS)
    np.testing.assert_array_equal(gradient[:13], other)


def test_an_evaluation_uses_the_running_statistics(tmp_path: Path) -> None:
    """One image has the same scores alone and among others; these are (x - 4) / 2."""
    network = build(tmp_path, NET)
    at = np.zeros(17, np.float32)
    at[:2] = 1  # weights of the layer
    at[4:10] = [1, 0, 0, 1, 0, 0]
    at[13:] = [4, 4, 4 - 1e-5, 4 - 1e-5]
    bound = network.bind(at)
    np.testing.assert_allclose(bound.scores(IMAGES)[0], [-1.5, 3, 0], rtol=1e-6)
    np.testing.assert_array_equal(bound.scores(IMAGES[:1]), bound.scores(IMAGES)[:1])


REPLACED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.score = nn.Linear(2, classes)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("fixed", torch.ones(2))

    def forward(self, images):
        if self.training:
            self.seen = self.seen + 3.0
        return self.score(images.flatten(1) * self.fixed)
"""


def test_a_buffer_that_is_replaced_and_one_that_is_not(tmp_path: Path) -> None:
    network = build(tmp_path, REPLACED)
    assert network.layout.names == ("score.weight", "score.bias", "seen")
    at = network.initial(np.random.default_rng(0))
    assert at[-1] == 0
    bound = network.bind(at)
    for start in (0, 7):
        at[-1] = start
        assert bound.loss_and_gradient(IMAGES, LABELS)[1][-1] == -3
        assert at[-1] == start


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (NET.replace("momentum=momentum", "momentum=None"), "norm with momentum=None, which coun"),
        (
            REPLACED.replace("zeros(())", "zeros((), dtype=torch.int64)").replace("3.0", "3"),
            "int64",
        ),
        (REPLACED.replace("seen + 3.0", "seen.new_zeros(1 + self.seen.numel())"), "changes the sh"),
    ],
)
def test_buffers_that_cannot_be_averaged(tmp_path: Path, source: str, expected: str) -> None:
    with pytest.raises(ScenarioError, match=expected):
        build(tmp_path, source)


def test_other_buffers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="'dropped', 'averaged', 'local' or 'fedbn'"):
        build(tmp_path, NET, buffers="mean")


TIED = """
from types import SimpleNamespace
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.score = nn.Linear(2, classes)
        self.second.weight = self.first.weight

    def forward(self, images):
        scores = self.score(self.second(self.first(images.flatten(1))))
        return SimpleNamespace(loss=None, logits=scores)

def make(image_shape, classes):
    return Net(image_shape, classes)

def number(image_shape, classes):
    return 3
"""


@pytest.mark.parametrize("name", ["Net", "make"])
def test_a_tied_weight_is_sent_once_and_an_output_has_logits(tmp_path: Path, name: str) -> None:
    network = build(tmp_path, TIED, name=name)
    assert "second.weight" not in network.layout.names
    at = np.zeros(network.layout.size, np.float32)
    at[:4] = [2, 0, 0, 3]  # of both layers
    parts = dict(zip(network.layout.names, network.layout.slices(), strict=True))
    at[parts["score.weight"]] = [1, 0, 0, 1, 0, 0]
    assert network.bind(at).scores(IMAGES)[0].tolist() == [4, 90, 0]


def test_models_that_are_refused_by_name(tmp_path: Path) -> None:
    source = TIED.replace(
        "self.second.weight = self.first.weight", "self.second.weight.data = self.first.weight.data"
    )
    shares = "parameters first.weight and second.weight, which share memory, expected tied"
    with pytest.raises(ScenarioError, match=shares):
        build(tmp_path, source)
    (tmp_path / "a").mkdir()
    with pytest.raises(ScenarioError, match=r"number returned a int, expected a torch\.nn"):
        build(tmp_path / "a", TIED, name="number")
    (tmp_path / "b").mkdir()
    mixed = TIED.replace(
        "self.score = nn.Linear(2, classes)", "self.score = nn.Linear(2, 3).half()"
    )
    with pytest.raises(ScenarioError, match=r"parameter score.weight is torch\.float16"):
        build(tmp_path / "b", mixed)
