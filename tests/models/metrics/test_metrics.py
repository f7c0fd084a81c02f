"""Every metric, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, sqrt
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from testbed.errors import UserCodeError
from testbed.models.metrics import DEFAULTS, MetricConfig, higher_is_better, title_of, unit_of
from testbed.models.metrics.classes import AccuracyPerClass, MacroF1
from testbed.models.metrics.custom import CustomMetric
from testbed.models.metrics.errors import MeanAbsoluteError, RootMeanSquaredError
from testbed.models.metrics.probabilities import Auroc, CalibrationError, Perplexity, softmax
from testbed.models.metrics.suite import MetricSuite
from testbed.models.metrics.top_k import TopK


def values(
    metric: MetricConfig, outputs: Sequence[object], targets: Sequence[object]
) -> dict[str, float | None]:
    """The metric's values by name, of one batch and of the same images in batches of one."""
    scores, labels = np.array(outputs, np.float64), np.array(targets)
    classes = scores.shape[1] if scores.ndim == 2 else 0
    whole, single = (MetricSuite([metric]).start(classes) for _ in range(2))
    whole.update(scores, labels)
    for one in range(len(labels)):
        single.update(scores[one : one + 1], labels[one : one + 1])
    assert single.values() == pytest.approx(whole.values())
    return whole.values()


def predicting(classes: int, *labels: int) -> list[list[float]]:
    """Scores whose highest are those of these labels."""
    return np.eye(classes)[list(labels)].tolist()


def probable(*probabilities: Sequence[float]) -> list[list[float]]:
    """Scores with these probabilities."""
    return np.log(probabilities).tolist()


def test_the_label_is_among_the_first_three() -> None:
    found = values(TopK(name="top_k", k=3), [[3, 2, 1, 0]] * 4, [0, 1, 2, 3])
    assert found == {"top3": 0.75}


def test_accuracy_of_each_label() -> None:
    """Two of label 0, one right; two of label 1, both right; one of 2, wrong; none of 3."""
    found = values(
        AccuracyPerClass(name="accuracy_per_class"), predicting(4, 0, 1, 1, 1, 0), [0, 0, 1, 1, 2]
    )
    assert found == {"accuracy_0": 0.5, "accuracy_1": 1.0, "accuracy_2": 0.0, "accuracy_3": None}


def test_macro_f1() -> None:
    """2 / (2 + 1 + 1), 4 / (4 + 1 + 0) and 0; label 3 does not occur."""
    found = values(MacroF1(name="macro_f1"), predicting(4, 0, 1, 1, 1, 0), [0, 0, 1, 1, 2])
    assert found == {"macro_f1": pytest.approx((0.5 + 0.8) / 3)}


def test_auroc_counts_equal_scores_as_a_half() -> None:
    """Of the four pairs three are in order, and one is equal; the same of label 0."""
    found = values(Auroc(name="auroc"), [[0, 1], [0, 2], [0, 3], [0, 2]], [0, 0, 1, 1])
    assert found == {"auroc": pytest.approx(3.5 / 4)}


def test_auroc_of_a_single_label_is_not_defined() -> None:
    assert values(Auroc(name="auroc"), [[0, 1], [0, 2]], [1, 1]) == {"auroc": None}


def test_against_scikit_learn() -> None:
    from sklearn.metrics import f1_score, roc_auc_score  # takes seconds, in each process otherwise

    rng = np.random.default_rng(1)
    scores, labels = rng.standard_normal((200, 5)).round(1), rng.integers(0, 5, 200)
    area = roc_auc_score(labels, softmax(scores), multi_class="ovr", average="macro")
    found = values(Auroc(name="auroc"), scores.tolist(), labels.tolist())
    assert found == {"auroc": pytest.approx(area)}
    score = f1_score(labels, scores.argmax(axis=1), average="macro")
    found = values(MacroF1(name="macro_f1"), scores.tolist(), labels.tolist())
    assert found == {"macro_f1": pytest.approx(score)}


@pytest.mark.parametrize(("bins", "error"), [(1, 0.25), (2, 0.25), (4, 0.35)])
def test_calibration_error(bins: int, error: float) -> None:
    """Right with 0.9 and wrong with 0.6: one bin has |0.75 - 0.5|, two have (0.1 + 0.6) / 2."""
    metric = CalibrationError(name="calibration_error", bins=bins)
    found = values(metric, probable([0.9, 0.1], [0.6, 0.4]), [0, 1])
    assert found == {"calibration_error": pytest.approx(error)}


def test_perplexity() -> None:
    """The mean of ln 2 and ln 8 is ln 4."""
    found = values(Perplexity(name="perplexity"), probable([1 / 2, 1 / 2], [1 / 8, 7 / 8]), [0, 0])
    assert found == {"perplexity": pytest.approx(4)}


def test_errors_of_numbers() -> None:
    """Distances of 0, 2 and 4."""
    numbers = [1.0, 2.0, 5.0], [1.0, 4.0, 1.0]
    assert values(MeanAbsoluteError(name="mae"), *numbers) == {"mae": 2}
    assert values(RootMeanSquaredError(name="rmse"), *numbers) == {
        "rmse": pytest.approx(sqrt(20 / 3))
    }


def test_a_model_that_diverged() -> None:
    """A NaN predicts no label; what needs probabilities is not defined."""
    scores = [[nan, 1.0], [0.0, 1.0]]
    assert values(MacroF1(name="macro_f1"), scores, [1, 1]) == {"macro_f1": pytest.approx(2 / 3)}
    for metric in (Auroc(name="auroc"), Perplexity(name="perplexity")):
        assert values(metric, scores, [0, 1]) == {metric.name: None}
    metric = CalibrationError(name="calibration_error")
    assert values(metric, scores, [0, 1]) == {"calibration_error": None}
    assert values(Perplexity(name="perplexity"), [[0.0, 1e4]], [0]) == {"perplexity": None}


def test_a_metric_of_labels_has_no_value_of_numbers() -> None:
    running = MetricSuite(DEFAULTS).start(0)
    running.update(np.zeros(2), np.zeros(2, np.float32))
    assert running.values() == {"top1": None, "top5": None}


def test_what_reports_say_of_a_name() -> None:
    assert (title_of("top3"), unit_of("top3")) == ("top-3 accuracy", "images")
    assert (title_of("accuracy_7"), unit_of("accuracy_7")) == ("accuracy of label 7", "share")
    assert (title_of("rmse"), unit_of("rmse")) == ("root mean squared error", "")
    assert (title_of("Own"), unit_of("Own")) == ("Own", "")
    metrics = [Perplexity(name="perplexity"), AccuracyPerClass(name="accuracy_per_class")]
    assert not higher_is_better("perplexity", metrics)
    assert higher_is_better("accuracy_7", metrics)


def own(folder: Path, text: str) -> CustomMetric:
    """A metric of the class ``Own`` in a run's folder."""
    (folder / "custom").mkdir()
    (folder / "custom" / "own.py").write_text(dedent(text))
    return CustomMetric.model_validate(
        {"name": "custom", "file": "own.py", "class": "Own", "factor": 3}
    )


SUM = """
    class Own:
        def __init__(self, *, factor):
            self.factor, self.total = factor, 0.0

        def update(self, outputs, targets):
            self.total += outputs.sum()
            outputs[:] = 0  # its own copy

        def value(self):
            return self.factor * self.total
"""


def test_a_metric_of_the_users_own(tmp_path: Path) -> None:
    suite = MetricSuite([own(tmp_path, SUM)], tmp_path)
    outputs = np.array([[1.0, 2.0]])
    for _ in range(2):  # each evaluation has its own
        running = suite.start(2)
        for _ in range(2):
            running.update(outputs, np.array([0]))
        assert running.values() == {"Own": 18}
    diverged = suite.start(2)
    diverged.update(np.array([[nan, 0.0]]), np.array([0]))
    assert diverged.values() == {"Own": None}


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ("float('inf')", "the value inf"),
        ("[1.0]", "a value of type list"),
        ("True", "a value of type bool"),
        ("None", "a value of type NoneType"),
    ],
)
def test_a_value_that_is_no_finite_number(tmp_path: Path, returned: str, found: str) -> None:
    config = own(tmp_path, SUM.replace("self.factor * self.total", returned))
    running = MetricSuite([config], tmp_path).start(2)
    with pytest.raises(UserCodeError, match=f"own.py:10: Own: found {found}, expected a finite"):
        running.values()
