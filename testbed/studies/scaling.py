"""Shorter or longer runs of a study, for a first look or a last one."""

from __future__ import annotations

from typing import Any

from testbed.errors import InvalidValue
from testbed.scenario import Scenario
from testbed.scenario.workload import Workload
from testbed.values.units import Duration

LEAST_IMAGES = 100
"""Minimum number of images of an evaluation in a scaled study, unless the study has fewer."""


def scaled(scenario: Scenario | Workload, scale: float) -> Scenario | Workload:
    """Return the scenario with a scaled length; workers, distributions and links are unchanged.

    The number of evaluations stays the same. In shorter runs they use proportionally fewer images.

    Raises:
        InvalidValue: it is a workload without ``stop.time``: its programs determine its length.
    """
    if scale == 1:
        return scenario
    if isinstance(scenario, Workload):
        return _scaled_workload(scenario, scale)
    stop = {
        field: _times(getattr(scenario.stop, field), scale)
        for field in ("updates", "steps", "time")
    }
    images = scenario.evaluate.images
    evaluate = {
        "every": _times(scenario.evaluate.every, scale),
        "images": min(images, max(LEAST_IMAGES, _times(images, scale))),
    }
    return scenario.model_copy(
        update={
            "stop": scenario.stop.model_copy(update=stop),
            "evaluate": scenario.evaluate.model_copy(update=evaluate),
        }
    )


def _times(length: Any, scale: float) -> Any:
    if length is None:
        return None
    if isinstance(length, Duration):
        return Duration(length * scale)
    return max(1, round(length * scale))


def _scaled_workload(workload: Workload, scale: float) -> Workload:
    if workload.stop is None or workload.stop.time is None:
        found = f"a scale of {scale:g} of a workload without stop.time"
        raise InvalidValue(found, "`stop: {time: ...}`, or no scale: its programs end it")
    stop = workload.stop.model_copy(update={"time": Duration(workload.stop.time * scale)})
    return workload.model_copy(update={"stop": stop})
