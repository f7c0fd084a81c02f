"""Parameters and gradients as tests write them."""

from __future__ import annotations

import numpy as np

from testbed.payloads import Vector


def floats(*values: float) -> Vector:
    """A vector of these values."""
    return np.array(values, np.float32)
