"""Parts of a model that stay at the workers: layouts, initial values and gradients by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.errors import ScenarioError
from testbed.models import CustomModel, Network

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.norm = nn.BatchNorm1d(2, momentum=0.5)
        self.score = nn.Linear(2, classes)

    def forward(self, images):
        return self.score(self.norm(images.flatten(1)))
"""
PLAIN = """
from torch import nn

def Net(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(2, classes))
"""
COUNTS = NET.replace("self.score = ", 'self.register_buffer("seen", torch.zeros(1)); self.score = ')
COUNTS = COUNTS.replace("        return", "        self.seen += 1\n        return")
COUNTS = "import torch\n" + COUNTS
IMAGES = np.array([[[[1, 10]]], [[[3, 10]]]], np.float32)
LABELS = np.array([0, 1])


def build(folder: Path, source: str, buffers: str) -> Network:
    (folder / "custom").mkdir(parents=True)
    (folder / "custom" / "net.py").write_text(source, encoding="utf-8")
    own = {"name": "custom", "file": "net.py", "class": "Net", "buffers": buffers}
    return CustomModel.model_validate(own).build((1, 1, 2), 3, folder=folder)


def test_statistics_stay_or_all_of_the_layer(tmp_path: Path) -> None:
    statistics = ("norm.running_mean", "norm.running_var")
    local = build(tmp_path / "local", NET, "local")
    assert local.layout.names == ("norm.weight", "norm.bias", "score.weight", "score.bias")
    assert (local.layout.size, local.local.names, local.local.size) == (13, statistics, 4)
    fedbn = build(tmp_path / "fedbn", NET, "fedbn")
    assert fedbn.layout.names == ("score.weight", "score.bias")
    assert fedbn.local.names == ("norm.weight", "norm.bias", *statistics)
    assert (fedbn.layout.size, fedbn.local.size) == (9, 8)
    assert fedbn.worker_layout.untrained_slices == (slice(13, 15), slice(15, 17))
    assert fedbn.initial_local(np.random.default_rng(0)).tolist() == [1, 1, 0, 0, 0, 0, 1, 1]
    both = local.initial(np.random.default_rng(0))
    assert fedbn.initial(np.random.default_rng(0)).tolist() == both[4:].tolist()


def test_a_worker_trains_its_own_layer(tmp_path: Path) -> None:
    """The same gradient as with statistics that are averaged, in another order.

    Means 2 and 10, unbiased variances 2 and 0, with a momentum of 1/2 from 0 and 1.
    """
    averaged = build(tmp_path / "averaged", NET, "averaged")
    at = averaged.initial(np.random.default_rng(0))
    loss, expected = averaged.bind(at).loss_and_gradient(IMAGES, LABELS)
    network = build(tmp_path / "fedbn", NET, "fedbn")
    own = np.concatenate([at[4:13], at[:4], at[13:]])
    found, gradient = network.bind(own).loss_and_gradient(IMAGES, LABELS)
    assert found == loss
    assert gradient.tolist() == [*expected[4:13], *expected[:4], -1, -5, -0.5, 0.5]
    own[13:] = [4, 4, 4 - 1e-5, 4 - 1e-5]
    own[:9] = [1, 0, 0, 1, 0, 0, 0, 0, 0]
    scores = network.bind(own).scores(IMAGES)
    np.testing.assert_allclose(scores, [[-1.5, 3, 0], [-0.5, 3, 0]], rtol=1e-6)  # (x - 4) / 2


@pytest.mark.parametrize("buffers", ["local", "fedbn"])
def test_the_sent_model_is_evaluated_by_batch(tmp_path: Path, buffers: str) -> None:
    """Its layer has scale 1 and shift 0, as new: a batch of 1 and 3 becomes -1 and 1."""
    network = build(tmp_path, NET, buffers)
    at = np.zeros(network.layout.size, np.float32)
    at[-9:] = [1, 0, 0, 1, 0, 0, 0, 0, 0]
    if buffers == "local":
        at[:2] = 1
    scores = network.bind(at).scores(IMAGES)
    np.testing.assert_allclose(scores, [[-1, 0, 0], [1, 0, 0]], atol=1e-4)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (PLAIN, "Net without normalisation layers that have statistics, expected such a layer"),
        (COUNTS, "Net, which changes its buffer seen during training"),
    ],
)
def test_other_models_are_refused(tmp_path: Path, source: str, found: str) -> None:
    with pytest.raises(ScenarioError, match=found):
        build(tmp_path, source, "local")
