"""Settings that do not fit the samples of a data set, which are known when it is prepared."""

from __future__ import annotations

import pytest

from testbed.scenario import load_text
from testbed.scenario.checks import check_model_targets

SCENARIO = """\
name: mine
algorithm: {name: adacomp}
model: {name: MODEL}
dataset: {custom: {file: ./data.py, class: load}}
workers: {count: 2}
stop: {updates: 4}
"""


@pytest.mark.parametrize(
    ("model", "targets", "expected"),
    [
        (
            "mlp",
            "numbers",
            (
                ("dataset",),
                "labels of load that are floats, which are numbers to predict",
                "integers such as y.astype(int), as mlp predicts labels; or a model that predicts "
                "numbers",
            ),
        ),
        (
            "mlp",
            "tokens",
            (
                ("model",),
                "mlp, which predicts labels",
                "a model that predicts tokens, the targets of custom",
            ),
        ),
        ("mlp", "labels", None),
    ],
)
def test_targets_that_the_model_does_not_predict(
    model: str, targets: str, expected: tuple[tuple[str], str, str] | None
) -> None:
    scenario = load_text(SCENARIO.replace("MODEL", model))
    classes = 0 if targets == "numbers" else 2
    found = check_model_targets(scenario, inputs="images", targets=targets, classes=classes)
    assert next(found, None) == expected
