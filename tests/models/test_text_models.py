"""Models of tokens: what their loss counts, what they see, and their sizes."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from testbed.errors import ScenarioError
from testbed.models import BoundModel, CustomModel, Model, Network
from testbed.models.metrics.probabilities import Perplexity
from testbed.models.metrics.suite import MetricSuite
from testbed.models.metrics.top_k import Top1
from testbed.models.scores import counted
from testbed.values.samples import NOT_COUNTED

X = NOT_COUNTED
MODELS = {
    "char-lstm": {"char-lstm": {"embedding": 4, "units": 6}},
    "gpt": {"gpt": {"layers": 2, "heads": 2, "width": 8}},
}


def network(name: str, *, length: int = 6, tokens: int = 9) -> Network:
    config = TypeAdapter(Model).validate_python(MODELS[name])
    built: Network = config.build((length,), tokens, folder=Path())
    assert built.layout.size == config.parameters((length,), tokens)
    return built


def bind(built: Network, seed: int = 0) -> BoundModel:
    return built.bind(built.initial(np.random.default_rng(seed)))


class Fixed(BoundModel):
    """Its scores are given."""

    def __init__(self, scores: list[list[list[float]]]) -> None:
        self.given = np.array(scores, np.float32)

    def loss_and_gradient(self, images: object, targets: object) -> tuple[float, np.ndarray]:
        raise NotImplementedError

    def scores(self, images: np.ndarray) -> np.ndarray:
        return self.given[images[:, 0]]


def test_an_evaluation_is_over_the_tokens_that_count() -> None:
    """Probabilities of the targets: 1/2 and 3/4; 1/4; padding counts nowhere.

    Their mean would be another over samples, (3/4 ln 2 ...), than over the three tokens.
    """
    third = log(3)
    model = Fixed([[[0, 0], [third, 0], [9, 0]], [[third, 0], [0, 9], [0, 9]]])
    images = np.array([[0, 0, 0], [1, 1, 1]], np.int32)
    targets = np.array([[1, 0, X], [1, X, X]])
    suite = MetricSuite((Perplexity(name="perplexity"), Top1(name="top1")))
    found = model.evaluate(images, targets, metrics=suite)
    loss = (log(2) + log(4 / 3) + log(4)) / 3
    assert found.loss == pytest.approx(loss)
    assert found.metrics["perplexity"] == pytest.approx(exp(loss))
    assert found.metrics["top1"] == pytest.approx(1 / 3)  # equal scores rank by token
    assert found.images == 2


def test_labels_are_counted_as_they_are() -> None:
    outputs, labels = np.ones((3, 2)), np.array([1, 0, 1])
    assert counted(outputs, labels) == (outputs, labels)


@pytest.mark.parametrize("name", MODELS)
def test_a_token_is_predicted_from_those_before(name: str) -> None:
    bound = bind(network(name))
    images = np.random.default_rng(1).integers(0, 9, (2, 6), np.int32)
    before = bound.scores(images)
    images[:, 3] = (images[:, 3] + 1) % 9
    after = bound.scores(images)
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    assert (after[:, 3:] != before[:, 3:]).any(axis=2).all()


@pytest.mark.parametrize("name", MODELS)
def test_padding_has_no_gradient(name: str) -> None:
    """A row whose end is not counted has the gradient of the row without it."""
    images = np.random.default_rng(1).integers(0, 9, (1, 6), np.int32)
    targets = np.array([[3, 1, 4, X, X, X]])
    padded = bind(network(name)).loss_and_gradient(images, targets)
    images[:, 3:] = 0
    other = bind(network(name)).loss_and_gradient(images, targets)
    assert padded[0] == other[0]
    np.testing.assert_array_equal(padded[1], other[1])


def test_the_embedding_of_a_gpt_is_also_its_output() -> None:
    built = network("gpt")
    assert "score.weight" not in built.layout.names
    at = built.initial(np.random.default_rng(0))
    part = list(built.layout.slices())[built.layout.names.index("token.weight")]
    bound = built.bind(at)
    at[part].reshape(9, 8)[4] = 0.0
    scores = bound.scores(np.zeros((1, 6), np.int32))
    np.testing.assert_array_equal(scores[0, :, 4], 0.0)


def test_the_default_lstm_has_the_size_of_leafs() -> None:
    """80 characters: 640 in the embedding, 271,360 and 525,312 in the memory, 20,560 in the end.

    torch has two biases in each gate where TensorFlow has one: 2,048 more.
    """
    config = TypeAdapter(Model).validate_python("char-lstm")
    assert config.parameters((80,), 80) == 640 + 272_384 + 526_336 + 20_560


def test_heads_divide_the_width() -> None:
    with pytest.raises(ValidationError, match="a multiple of heads, 4"):
        TypeAdapter(Model).validate_python({"gpt": {"width": 30}})


OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        assert image_shape == (6,)
        self.embedding = nn.Embedding(classes, classes)

    def forward(self, tokens):
        assert tokens.dtype == torch.int64
        return self.embedding(tokens)
"""
LOSS = """
    def loss(self, outputs, targets):
        counts = targets != -100
        return 3 * nn.functional.cross_entropy(outputs[counts], targets[counts])
"""


def own(folder: Path, source: str) -> Network:
    (folder / "custom").mkdir()
    (folder / "custom" / "net.py").write_text(source, encoding="utf-8")
    config = CustomModel.model_validate({"name": "custom", "file": "net.py", "class": "Net"})
    return config.build((6,), 9, folder=folder)


@pytest.mark.parametrize(("loss", "factor"), [("", 1), (LOSS, 3)])
def test_a_module_of_ones_own_gets_tokens(tmp_path: Path, loss: str, factor: int) -> None:
    built = own(tmp_path, OWN + loss)
    assert built.tokens == 6
    bound = built.bind(np.zeros(81, np.float32))
    images = np.random.default_rng(1).integers(0, 9, (3, 6), np.int32)
    targets = np.where(np.arange(6) < [[6], [2], [1]], images, X).astype(np.int64)
    loss_found, gradient = bound.loss_and_gradient(images, targets)
    assert loss_found == pytest.approx(factor * log(9))
    assert bound.evaluate(images, targets).loss == pytest.approx(factor * log(9))
    assert np.abs(gradient).sum() > 0


def test_a_module_of_ones_own_may_also_have_one_output_for_all_tokens(tmp_path: Path) -> None:
    built = own(tmp_path, OWN.replace("self.embedding(tokens)", "self.embedding(tokens).mean(1)"))
    assert built.tokens == 0


def test_outputs_of_a_module_of_ones_own_that_do_not_fit(tmp_path: Path) -> None:
    source = OWN.replace("self.embedding(tokens)", "self.embedding(tokens)[:, 1:]")
    expected = r"shape \(2, 5, 9\).*float32 tensor of shape \(2, 9\) or \(2, 6, 9\)"
    with pytest.raises(ScenarioError, match=expected):
        own(tmp_path, source)
