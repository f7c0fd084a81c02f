"""Metrics of a workload: numbers that its programs print or serve."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from testbed.errors import InvalidValue
from testbed.values.fields import Key, Pattern, StrictModel, Word
from testbed.values.units import Duration

Port = Annotated[int, Field(ge=1, le=65535, strict=True)]

SHORTEST_SECONDS, LONGEST_SECONDS = 0.2, 3600.0
EVERY = Duration(1.0)
SOURCES = ("regex", "json", "prometheus")
EXAMPLE = "one of {regex: 'acc=([0-9.]+)'}, {json: acc} and {prometheus: acc, port: 9100}"


def _interval(value: Duration) -> Duration:
    if not SHORTEST_SECONDS <= value <= LONGEST_SECONDS:
        least, most = Duration(SHORTEST_SECONDS), Duration(LONGEST_SECONDS)
        raise InvalidValue(str(value), f"a duration from {least} to {most}")
    return value


def _series(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_:][A-Za-z0-9_:]*", text):
        raise InvalidValue("", "the name of a sample, like train_loss; labels stand in `labels`")
    return text


class Metric(StrictModel):
    """A number that a program prints or serves. Exactly one source must be set.

    Attributes:
        regex: a regular expression whose first group is the number: `acc=([0-9.]+)`. Every line of
            the output is searched.
        json: the key of the number in lines of the output that are JSON objects; dots lead into
            objects: `eval.acc`.
        prometheus: the name of a sample at http://127.0.0.1:PORT/metrics in the node.
        port: the port of that endpoint: a number, or the name of one of the program's `ports`.
        labels: labels of the sample, if the endpoint has several of that name.
        every: how often the endpoint is read; by default every second.
        better: whether higher or lower values are better.
    """

    regex: Pattern | None = None
    json_key: Word | None = Field(default=None, alias="json", min_length=1)
    prometheus: Annotated[str, AfterValidator(_series)] | None = None
    port: Port | Key | None = None
    labels: dict[str, str] = Field(default={})
    every: Annotated[Duration, AfterValidator(_interval)] = EVERY
    better: Literal["higher", "lower"] = "higher"

    @model_validator(mode="after")
    def _one_source(self) -> Metric:
        sources = (self.regex, self.json_key, self.prometheus)
        given = [name for name, value in zip(SOURCES, sources, strict=True) if value is not None]
        if len(given) != 1:
            raise InvalidValue(" and ".join(given) or "no source of the number", EXAMPLE)
        if self.regex is not None and not re.compile(self.regex).groups:
            raise InvalidValue(
                self.regex, "a group in parentheses: the number, as in acc=([0-9.]+)"
            )
        return self

    @model_validator(mode="after")
    def _endpoint(self) -> Metric:
        if self.prometheus is not None:
            if self.port is None:
                expected = "`port`, at which the program serves /metrics"
                raise InvalidValue("prometheus without port", expected)
            return self
        further = {"port": self.port, "labels": self.labels, "every": self.every != EVERY}
        for name, given in further.items():
            if given:
                raise InvalidValue(f"{name} without prometheus", f"no {name}: it is of an endpoint")
        return self

    def is_reached(self, value: float, target: float) -> bool:
        """Return whether a value is at least as good as a target."""
        return value >= target if self.better == "higher" else value <= target
