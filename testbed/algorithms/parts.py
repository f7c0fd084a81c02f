"""What several algorithms share: options, the damped learning rate, the record of an update."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from testbed.algorithms.base import Applied
from testbed.compress.payload import Dense, Payload, Sparse
from testbed.errors import RejectedError

LearningRate = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=1, strict=True)]


def divisor(sigma: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """max(1, sigma): what the learning rate of an entry of staleness sigma is divided by."""
    divisor: NDArray[np.float32] = np.maximum(1, sigma).astype(np.float32)
    return divisor


def damped(learning_rate: float, divisor: NDArray[np.float32]) -> NDArray[np.float32]:
    """alpha / max(1, sigma), one rate per staleness, in float32 throughout.

    A float64 on either side of the division would round some rates differently, and algorithms that
    must agree bit by bit (all of them are plain SGD for one worker) no longer would.
    """
    return np.float32(learning_rate) / divisor


def applied(
    version: int,
    *,
    pulled: int,
    sigma: NDArray[np.integer[Any]],
    divisor: NDArray[np.float32],
) -> Applied:
    """The record of an update.

    Args:
        version: the clock i at which it was applied.
        pulled: the clock j of the model it was computed on.
        sigma: the staleness that divided the learning rate, of every entry that was sent or of all
            at once; empty for an update without entries.
        divisor: of the same entries.
    """
    if sigma.size == 0:
        return Applied(version, version - pulled, sigma_mean=0.0, sigma_max=0, step_scale=1.0)
    return Applied(
        version=version,
        staleness=version - pulled,
        sigma_mean=float(np.add.reduce(sigma)) / sigma.size,
        sigma_max=int(np.maximum.reduce(sigma)),
        step_scale=float(np.add.reduce(np.reciprocal(divisor))) / sigma.size,
    )


def dense(payload: Payload) -> Dense:
    """The payload, if it is what the algorithm understands.

    Raises:
        RejectedError: it is sparse.
    """
    if not isinstance(payload, Dense):
        raise RejectedError(f"a {type(payload).__name__} payload, expected all entries (Dense)")
    return payload


def sparse(payload: Payload) -> Sparse:
    """The payload, if it is what the algorithm understands.

    Raises:
        RejectedError: it is dense.
    """
    if not isinstance(payload, Sparse):
        raise RejectedError(f"a {type(payload).__name__} payload, expected some entries (Sparse)")
    return payload
