"""Top-k accuracy: the share of images whose label is among the k highest scores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets
from testbed.models.scores import ranks


class _TopAccuracy(MetricConfig):
    NAMES = r"top([1-9][0-9]{0,5})"
    UNIT = "images"
    GROUP = "accuracy"

    @property
    def rank(self) -> int:
        """The k of top-k; by default the number in its name."""
        return int(str(self.name).removeprefix("top"))

    def names(self, classes: int) -> tuple[str, ...]:
        return (f"top{self.rank}",)

    def has(self, name: str) -> bool:
        return name in self.names(0)

    @classmethod
    def title(cls, name: str) -> str:
        return f"top-{rank_of(name)} accuracy"

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _Hits(self.rank)


class Top1(_TopAccuracy):
    """Share of images whose label has the highest score."""

    name: Literal["top1"]


class Top5(_TopAccuracy):
    """Share of images whose label is among the five highest scores."""

    name: Literal["top5"]


class TopK(_TopAccuracy):
    """Share of images whose label is among the ``k`` highest scores; its name is `top` and k.

    Attributes:
        k: number of highest scores.
    """

    name: Literal["top_k"]
    k: Annotated[int, Field(ge=1, le=999_999, strict=True)]

    @property
    def rank(self) -> int:
        return self.k


def rank_of(name: str) -> str:
    """Return k of a top-k accuracy's name; empty for other names."""
    found = re.fullmatch(_TopAccuracy.NAMES, name)
    return found[1] if found else ""


@dataclass
class _Hits(Metric):
    k: int
    hits: int = 0
    images: int = 0

    def update(self, outputs: Outputs, targets: Targets) -> None:
        self.hits += int(np.count_nonzero(ranks(outputs, targets) < self.k))
        self.images += len(targets)

    def values(self) -> tuple[float]:
        return (self.hits / self.images,)
