"""The crash of AdaComp's evaluation (Hardy, Le Merrer, Sericola, NCA 2017, section V-D).

After each push a worker crashes with probability p: it freezes forever, its share of the data
is lost, and no node is notified. The push itself counts; its reply is never released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from numpy.random import Generator

from testbed.faults.base import FaultConfig
from testbed.values.fields import Portion
from testbed.values.seeds import stream


class Crash(FaultConfig):
    """A worker may crash after each of its pushes.

    Attributes:
        after_push: p, the probability of a crash after a push.
    """

    name: Literal["crash"]
    after_push: Portion

    @property
    def moment(self) -> str:
        """When it happens, as text."""
        return f"after a push, probability {self.after_push:g}"


@dataclass
class Crashes:
    """Draws whether a push is its worker's last, once per accepted push."""

    seed: int
    probabilities: Mapping[int, float]  # p, by worker; other workers do not crash
    _draws: dict[int, Generator] = field(default_factory=dict)

    def __call__(self, worker: int) -> bool:
        """Return whether the worker crashes now."""
        probability = self.probabilities.get(worker, 0.0)
        if not probability:
            return False
        if worker not in self._draws:
            self._draws[worker] = stream(self.seed, f"w{worker}", "crash")
        return bool(self._draws[worker].random() < probability)
