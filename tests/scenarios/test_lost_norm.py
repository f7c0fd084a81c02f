"""The share of a norm lost by Top-k, computed in three ways, by hand."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "scenarios" / "scadles"


def test_two_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of (3, 4) and (6, 8) is kept: 4 and 8 of each alone, 8 and 6 of both together. Lost are
    squared 45 of 125, by norms 3 of 15, and 25 of 125."""
    monkeypatch.syspath_prepend(FOLDER)
    lost = import_module("lost_norm").lost
    gradient = np.array([3, 4, 6, 8], np.float32)
    assert lost(gradient, (2, 2), 0.5) == pytest.approx((45 / 125, 3 / 15, 25 / 125))
