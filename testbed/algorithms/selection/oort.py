"""Oort: workers that are useful and fast, with a share of workers not tried yet.

F. Lai, X. Zhu, H. V. Madhyastha, M. Chowdhury, "Oort: efficient federated learning via guided
participant selection", OSDI 2021, algorithm 1 and equation 1.

Symbols, as the paper writes them:

    U(i)   utility        n √(mean of the squared losses) of i's last round, clipped (section 4.4)
    D(i)   durations      seconds from the reply to the push
    L(i)   last           the last round in which i's update arrived
    T      duration       preferred duration of a round
    Δ, W   pacer_step, window
    α      penalty        of workers slower than T
    ε      exploration    share of workers not tried yet; times `decay` per round, not below `least`
    c      cut_off        of the utility of the last one that would be chosen

    pacer:    T ← T + Δ if Σ U of the last W rounds < Σ U of the W rounds before    (T starts at Δ)
    utility:  Util(i) = (U(i) + √(0.1 log R / L(i))) (T / D(i))^α, the last factor if T < D(i)
    exploit:  of those above c times the ((1 - ε) K)-th utility, (1 - ε) K in proportion to Util
    explore:  ε K others, at random

Deviations: losses are those of batches, not of samples; the speed of a worker not tried yet is
unknown, so these are drawn uniformly; the pacer looks once in W rounds. Over-selection is an option
of the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field

from testbed.algorithms.parts.options import Count, Portion, PositiveDuration, Share
from testbed.algorithms.selection.base import History, SelectionConfig, SelectionState, by_weight
from testbed.values.fields import NonNegative
from testbed.values.units import Duration


class Oort(SelectionConfig):
    """Oort's options.

    Attributes:
        exploration: ε of the first round.
        decay: factor of ε per round.
        least: ε's lower limit.
        penalty: α, exponent of the penalty for slow workers.
        pacer_step: Δ, emulated time; also the initial T.
        window: W, rounds between two decisions of the pacer.
        cut_off: c.
        clip: percentile at which utilities are clipped.
        most_rounds: rounds after which a worker is no longer chosen for its utility.
    """

    TAKES_LOSSES: ClassVar[bool] = True

    name: Literal["oort"]
    exploration: Portion = 0.9
    decay: Share = 0.98
    least: Portion = 0.2
    penalty: NonNegative = 2.0
    pacer_step: PositiveDuration = Duration(20.0)
    window: Count = 20
    cut_off: Share = 0.95
    clip: float = Field(default=95.0, gt=0, le=100)
    most_rounds: Count | None = None

    def choose(
        self,
        candidates: Sequence[int],
        count: int,
        *,
        history: History,
        state: SelectionState,
        rng: Generator,
    ) -> Sequence[int]:
        """Algorithm 1."""
        duration = self._pace(history, state)
        known = [one for one in candidates if one in history.squared_losses]
        new = [one for one in candidates if one not in history.squared_losses]
        share = max(self.least, self.exploration * self.decay ** (history.round - 1))
        explored = min(len(new), max(round(share * count), count - len(known)))
        chosen = self._exploit(known, count - explored, duration, history=history, rng=rng)
        return [*chosen, *rng.choice(new, explored, replace=False).tolist()] if explored else chosen

    def _pace(self, history: History, state: SelectionState) -> float:
        """Return T, after the pacer's decision if one is due."""
        gained: list[float] = state.setdefault("gained", [])
        state.setdefault("duration", float(self.pacer_step))
        if history.participants:
            gained.append(sum(history.utility(one) for one in history.participants))
        if len(gained) >= 2 * self.window:
            before, after = sum(gained[: self.window]), sum(gained[self.window :])
            state["duration"] += float(self.pacer_step) if before > after else 0.0
            del gained[: self.window]
        duration: float = state["duration"]
        return duration

    def _exploit(
        self, known: list[int], count: int, duration: float, *, history: History, rng: Generator
    ) -> list[int]:
        """Draw ``count`` workers among those with a high utility."""
        if not count:
            return []
        raw = [history.utility(one) for one in known]
        most = float(np.percentile(raw, self.clip))
        utilities = {}
        for one, utility in zip(known, raw, strict=True):
            value = min(utility, most)
            value += sqrt(0.1 * log(history.round) / history.last[one])
            if (seconds := history.durations.get(one, 0.0)) > duration:
                value *= (duration / seconds) ** self.penalty
            tired = self.most_rounds and history.delivered.get(one, 0) >= self.most_rounds
            utilities[one] = 0.0 if tired else value
        limit = self.cut_off * sorted(utilities.values(), reverse=True)[count - 1]
        admitted = {one: value for one, value in utilities.items() if value >= limit}
        return by_weight(admitted, count, rng)
