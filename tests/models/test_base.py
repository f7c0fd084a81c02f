from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.errors import ScenarioError
from testbed.models.base import EVALUATION_BATCH, BoundModel, Images, Labels, pooled
from testbed.payloads import Vector

NAN = float("nan")


class Recited(BoundModel):
    """Returns given scores, one row per image; an image's first pixel is its row."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = np.array(rows, np.float32)
        self.asked: list[int] = []

    def loss_and_gradient(self, images: Images, labels: Labels) -> tuple[float, Vector]:
        raise NotImplementedError

    def scores(self, images: Images) -> NDArray[np.float32]:
        self.asked.append(len(images))
        return self.rows[images[:, 0, 0, 0].astype(int)]


def numbered(count: int) -> Images:
    return np.arange(count, dtype=np.float32).reshape(count, 1, 1, 1)


def test_evaluation_worked_by_hand() -> None:
    """Softmax of (ln 3, 0) is (3/4, 1/4): losses -ln(3/4) and -ln(1/4)."""
    ln3 = float(np.log(3))
    bound = Recited([[ln3, 0.0], [ln3, 0.0]])
    evaluation = bound.evaluate(numbered(2), np.array([0, 1]))
    assert evaluation.loss == pytest.approx((np.log(4 / 3) + np.log(4)) / 2)
    assert evaluation.metrics["top1"] == 0.5
    assert evaluation.metrics["top5"] == 1.0
    assert evaluation.images == 2


@pytest.mark.parametrize(
    ("label", "top1", "top5"), [(6, 1, 1), (5, 0, 1), (2, 0, 1), (1, 0, 0), (0, 0, 0)]
)
def test_ranks_of_seven_scores(label: int, top1: float, top5: float) -> None:
    bound = Recited([[0, 1, 2, 3, 4, 5, 6]])
    evaluation = bound.evaluate(numbered(1), np.array([label]))
    assert evaluation.metrics == {"top1": top1, "top5": top5}


def test_equal_scores_are_ranked_by_class() -> None:
    """A model with the same score for every class is right about one class, not about all."""
    bound = Recited([[0.0] * 10] * 10)
    evaluation = bound.evaluate(numbered(10), np.arange(10))
    assert evaluation.metrics == {"top1": 0.1, "top5": 0.5}


@pytest.mark.parametrize("row", [[NAN] * 6, [NAN, 1, 1, 1, 1, 9], [1, 1, 1, 1, 1, NAN]])
def test_a_score_that_is_not_a_number_is_wrong(row: list[float]) -> None:
    bound = Recited([row])
    evaluation = bound.evaluate(numbered(1), np.array([5]))
    assert evaluation.metrics["top1"] == 0


def test_large_scores_do_not_overflow() -> None:
    bound = Recited([[1e4, 0.0]])
    assert bound.evaluate(numbered(1), np.array([1])).loss == pytest.approx(1e4)


@pytest.mark.parametrize("count", [1, EVALUATION_BATCH, EVALUATION_BATCH + 1, 230])
def test_batches_are_bounded_and_never_a_single_sample(count: int) -> None:
    rows = [[float(i % 2), 0.5] for i in range(count)]
    bound = Recited(rows)
    evaluation = bound.evaluate(numbered(count), np.zeros(count, np.int64))
    assert sum(bound.asked) == count
    assert max(bound.asked) <= EVALUATION_BATCH
    assert max(bound.asked) - min(bound.asked) <= 1
    assert evaluation.metrics["top1"] == pytest.approx((count // 2) / count)


def test_pooling_halves_and_rounds_down() -> None:
    assert pooled((1, 28, 28), 2, model="m") == (7, 7)
    assert pooled((3, 9, 5), 1, model="m") == (4, 2)
    with pytest.raises(ScenarioError, match="3x8 pixels, expected at least 4x4 pixels"):
        pooled((1, 3, 8), 2, model="m")


class Centred(BoundModel):
    """Classifies a pixel above its batch's mean as 1, one below as 0."""

    def loss_and_gradient(self, images: Images, labels: Labels) -> tuple[float, Vector]:
        raise NotImplementedError

    def scores(self, images: Images) -> NDArray[np.float32]:
        above = images[:, 0, 0, 0] - images.mean()
        return np.stack([-above, above], axis=1)


@pytest.mark.parametrize("distinct", [True, False])
def test_the_order_of_the_test_set_does_not_matter_to_batch_statistics(distinct: bool) -> None:
    """40 images of 0 to 1, class 0, and 40 of 100 to 101, class 1: in two batches of 40.

    Where both classes are in a batch, its mean is between them and every image is right. Sorted by
    class, a batch has one class, and half of its images are above the mean; if they are equal, all
    scores are 0, and the lower class wins: half are right in either case.
    """
    labels = np.repeat([0, 1], 40)
    pixels = 100 * labels + (np.tile(np.arange(40), 2) / 40 if distinct else 0)
    images = pixels.astype(np.float32).reshape(80, 1, 1, 1)
    bound = Centred()
    assert bound.evaluate(images, labels).metrics["top1"] == 0.5
    bound.mixes = True
    by_class = bound.evaluate(images, labels)
    assert by_class.metrics["top1"] == 1.0
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(80)
        assert bound.evaluate(images[order], labels[order]) == by_class
