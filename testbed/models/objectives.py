"""Objectives: the mean over samples of a cost of the network's output, given the target.

Targets are labels, integers from 0 on, or numbers. With labels, an output is a score for every
class, and there is an accuracy; with numbers, it is a prediction, and there is only a loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.models.base import Labels, Targets, cross_entropy


class Objective(ABC):
    """Base of all objectives."""

    @abstractmethod
    def total(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        """Return the sum of the costs of some samples; NaN if an output is not finite."""

    @abstractmethod
    def slope(self, outputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        """Return the mean cost of a mini-batch, and its gradient by the outputs, in their shape."""


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """-log softmax(scores)[label], in nats; scores have the shape (b, classes)."""

    def total(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        return cross_entropy(outputs, cast(Labels, targets))

    def slope(self, outputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        logs = torch.log_softmax(outputs, 1)
        own = targets[:, None]
        loss = -logs.gather(1, own).mean().item()
        slope = logs.exp_().scatter_add_(1, own, torch.full_like(own, -1, dtype=logs.dtype))
        return loss, slope.div_(len(targets))


@dataclass(frozen=True)
class SquaredError(Objective):
    """max(0, |prediction - number| - margin)^2; predictions have the shape (b,) or (b, 1).

    With a margin it is the squared epsilon-insensitive loss of support vector regression.
    """

    margin: float = 0.0

    def total(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        beyond = np.maximum(np.abs(outputs.reshape(-1) - targets) - self.margin, 0.0)
        return float(beyond @ beyond)

    def slope(self, outputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        errors = outputs.view(-1) - targets
        beyond = errors.abs().sub_(self.margin).clamp_(min=0.0)
        loss = beyond.square().mean().item()
        slope = beyond.mul_(errors.sign_()).mul_(2 / len(targets))
        return loss, slope.view_as(outputs)
