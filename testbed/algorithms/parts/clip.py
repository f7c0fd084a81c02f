"""Gradient clipping."""

from __future__ import annotations

import numpy as np
from pydantic import model_validator

from testbed.errors import InvalidValue
from testbed.payloads import Vector
from testbed.values.fields import PositiveNumber, StrictModel


class Clip(StrictModel):
    """A limit of every gradient; exactly one of both.

    Attributes:
        norm: maximum Euclidean norm; longer gradients are scaled.
        value: maximum absolute value of an entry; larger ones are cut.
    """

    norm: PositiveNumber | None = None
    value: PositiveNumber | None = None

    @model_validator(mode="after")
    def _one(self) -> Clip:
        if (self.norm is None) == (self.value is None):
            found = "neither norm nor value" if self.norm is None else "norm and value"
            raise InvalidValue(found, "exactly one, like `clip: {norm: 1.0}`")
        return self

    def limit(self, gradient: Vector) -> Vector:
        """Return the limited gradient; NaN and infinity stay, so that they are noticed."""
        length = float(np.linalg.norm(gradient))
        if not np.isfinite(length):
            return gradient
        if self.value is not None:
            return np.clip(gradient, -self.value, self.value)
        assert self.norm is not None
        return gradient if length <= self.norm else np.float32(self.norm / length) * gradient
