"""A user-defined metric: a class in a Python file.

    evaluate: {metrics: [top1, {custom: {file: ./mine.py, class: recall, label: 3}}]}

For each evaluation it is called as ``recall(label=3)``, with every other key of the scenario as a
keyword argument. The metric's name is that of the class.

    class recall:
        higher_is_better = True

        def __init__(self, *, label):
            self.label, self.found, self.all = label, 0, 0

        def update(self, outputs, targets):
            own = targets == self.label
            self.found += int((outputs[own].argmax(axis=1) == self.label).sum())
            self.all += int(own.sum())

        def value(self):
            return self.found / max(1, self.all)

- ``update`` gets batches of outputs, float64: scores before the softmax, (b, classes), or predicted
  numbers, (b,); and of targets: labels, int64 (b,), or numbers, float32 (b,). They are copies.
- ``value`` returns a finite number: of all images, after the last batch.
- If the model has diverged, so that an output is not finite, it is not asked: there is no value.
- ``higher_is_better`` is True by default.
- The file is copied into the run folder; it may import installed packages, but no other file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from testbed.errors import UserCodeError
from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets
from testbed.values.user_code import OwnCode, UserCode

IMAGES = 100
"""Images of a trial before the run."""

EXPECTED = "a class with the methods update(outputs, targets) and value()"


class CustomMetric(MetricConfig, OwnCode):
    """A user-defined metric; every other key is a keyword argument of the user's class.

    Attributes:
        better: which values are better; by default as ``higher_is_better`` of the class says.
    """

    NAMES = "(?!)"  # none that could be known here
    TARGETS = None
    UNIT = ""

    name: Literal["custom"]
    better: Literal["higher", "lower"] | None = None

    @property
    def higher_is_better(self) -> bool:
        return self.better != "lower"

    def names(self, classes: int) -> tuple[str, ...]:
        return (self.class_name,)

    def has(self, name: str) -> bool:
        return name == self.class_name

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        assert folder is not None, "a run with the user's files has one"
        return own_metric(self, self.copied(folder, "evaluate.metrics"))


def own_metric(config: CustomMetric, code: UserCode) -> OwnMetric:
    """Create the user's metric, for one evaluation.

    Raises:
        ScenarioError: the file, the class or an option is wrong.
    """
    kind, keywords = _loaded(code), ", ".join(f"{k}={v!r}" for k, v in config.options.items())
    doing = f"{code.name}({keywords})"
    made = code.call(lambda: kind(**config.options), doing=doing, expected=EXPECTED)
    for method in ("update", "value"):
        if not callable(getattr(made, method, None)):
            raise code.error(f"{code.name} without {method}()", EXPECTED)
    return OwnMetric(made, code)


def try_metric(
    config: CustomMetric, code: UserCode, classes: int | None
) -> Literal["higher", "lower"]:
    """Evaluate random outputs with the user's metric; return which of its values are better.

    Args:
        config: its options.
        code: the file, and the name of the class in it.
        classes: number of labels, 0 for numbers as targets; None if not known yet: then it is only
            created.

    Raises:
        ScenarioError: the file, the class or an option is wrong.
        UserFileError, UserCodeError: it failed, or returned something else.
    """
    metric, rng = own_metric(config, code), np.random.default_rng(0)
    if classes is None:
        return metric.better
    numbers = rng.standard_normal(IMAGES).astype(np.float32)
    targets = np.arange(IMAGES) % classes if classes else numbers
    outputs = rng.standard_normal((IMAGES, classes) if classes else IMAGES)

    def tried() -> float | str:
        for half in (slice(0, IMAGES // 2), slice(IMAGES // 2, IMAGES)):
            metric.update(outputs[half], targets[half])
        return metric.result()

    what, expected = f"given random outputs of {outputs.shape}", "a finite number from value()"
    found = code.call(tried, doing=f"{code.name}, {what},", expected=expected)
    if isinstance(found, str):
        raise code.error(f"{found}, {what}", expected, line=metric.line)
    return metric.better


@cache
def _loaded(code: UserCode) -> Any:
    return code.load(EXPECTED)


@dataclass
class OwnMetric(Metric):
    """A user's metric in one evaluation.

    Attributes:
        made: the user's object.
        code: its location.
    """

    made: Any
    code: UserCode
    defined: bool = True

    @property
    def better(self) -> Literal["higher", "lower"]:
        """Which values are better, as the user's class says."""
        return "higher" if getattr(self.made, "higher_is_better", True) else "lower"

    def update(self, outputs: Outputs, targets: Targets) -> None:
        self.defined = self.defined and bool(np.isfinite(outputs).all())
        if self.defined:
            self.made.update(outputs.copy(), targets.copy())

    @property
    def line(self) -> int:
        """The line of ``value``, or of the class."""
        function = getattr(type(self.made).value, "__code__", None)
        return function.co_firstlineno if function else self.code.line()

    def result(self) -> float | str:
        """Return the user's value, or in words what it is if it is not a finite number."""
        value = self.made.value()
        if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
            value = value.item()
        if not isinstance(value, Real) or isinstance(value, bool):
            return f"a value of type {type(value).__name__}"
        return float(value) if isfinite(value) else f"the value {value}"

    def values(self) -> tuple[float | None]:
        """Return the user's value.

        Raises:
            UserCodeError: it is not a finite number.
        """
        found = self.result() if self.defined else None
        if isinstance(found, str):
            place = f"{self.code.path.name}:{self.line}: {self.code.name}"
            raise UserCodeError(f"{place}: found {found}, expected a finite number from value().")
        return (found,)
