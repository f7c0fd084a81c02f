"""How long a live step is made to take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from testbed.datasets import Prepared
from testbed.frame.worker import Step
from testbed.models import Mlp
from testbed.roles.clock import EmulatedClock
from testbed.roles.device import Device

RNG = np.random.default_rng(0)
DATA = Prepared(
    RNG.standard_normal((40, 1, 2, 2), dtype=np.float32),
    RNG.integers(0, 3, 40),
    RNG.standard_normal((6, 1, 2, 2), dtype=np.float32),
    RNG.integers(0, 3, 6),
    classes=3,
    source={},
)


@pytest.mark.parametrize(
    ("samples", "slow", "seconds"), [(10, 1.0, 70), (30, 1.0, 110), (10, 2.0, 140)]
)
def test_it_grows_with_the_batch(samples: int, slow: float, seconds: float) -> None:
    """50 s and 2 s a sample: hours of emulated time that a worker sleeps through."""
    network = Mlp(name="mlp", hidden=(5,)).build((1, 2, 2), 3, folder=Path())
    slept: list[float] = []
    device = Device(
        index=0,
        bound=network.bind(np.zeros(network.layout.size, np.float32)),
        data=DATA,
        fingerprint=network.layout.fingerprint,
        size=network.layout.size,
        step=lambda: 50.0,
        each_sample=2.0,
        connection=cast("Any", None),  # a step calls nobody
        clock=EmulatedClock(1.0),
        slow=lambda: slow,
        paced_first=True,
        sleep=slept.append,
    )
    device.perform(Step(np.arange(samples), 0))
    (waited,) = slept
    assert seconds - 5 < waited <= seconds  # less what the gradient really took
