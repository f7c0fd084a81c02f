"""Sending a fixed share of a vector's entries: the options, and the selection they describe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from numpy.random import Generator

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.parts.options import LearningRate, Share
from testbed.payloads import Sparse, Vector
from testbed.payloads.layout import Layout
from testbed.payloads.topk import Scope, drawn, largest, parts_of, quotas, sparsify


class SparseOptions(AlgorithmConfig):
    """Options of algorithms that send a share of the entries.

    Attributes:
        learning_rate: the learning rate.
        ratio: the share of the entries that is sent.
        select: which entries to send: the largest, or a random choice.
        scope: whether to select entries of the whole model, or of each tensor separately.
    """

    learning_rate: LearningRate = 0.1
    ratio: Share = 0.01
    select: Literal["largest", "random"] = "largest"
    scope: Scope = "global"

    def selection(self, layout: Layout, rng: Generator) -> Callable[[Vector], Sparse]:
        """Return the function that selects the entries of a vector to send."""
        kept = quotas(parts_of(layout.sizes, self.scope), self.ratio)
        choose = largest if self.select == "largest" else partial(drawn, rng=rng)
        return partial(sparsify, quotas=kept, choose=choose)
