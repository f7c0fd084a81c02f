"""Which device has which share of the data, if the scenario relates the two."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist

import numpy as np

from testbed.algorithms.base import Samples
from testbed.errors import ScenarioError
from testbed.scenario.devices import devices
from testbed.scenario.schema import Scenario
from testbed.values.seeds import stream


def dealt(scenario: Scenario, shards: Sequence[Samples]) -> Sequence[Samples]:
    """Return the shares in the order of the devices that get them; as they are without ``deal``.

    The devices' speeds are ranked and the ranks converted to normal scores, of which
    ``correlation`` is mixed with noise; the largest share is that of the highest score. Equally
    fast devices are ranked by the noise.

    Raises:
        ScenarioError: all shares are equally large.
    """
    deal, batch = scenario.workers.deal, scenario.workers.batch_size
    if deal is None:
        return shards
    sizes = np.array([len(one) for one in shards])
    if len(set(sizes)) == 1 < len(shards):
        expected = "a partition with shares of different sizes, such as by_size"
        raise ScenarioError.at("workers.deal", f"shares of {sizes[0]:,} samples each", expected)
    paces = [one.pace for one in devices(scenario)]
    seconds = np.array([0.0 if pace is None else pace.mean(batch) for pace in paces])
    noise = stream(scenario.seed, "deal").standard_normal(len(shards))
    scores = np.empty(len(shards))
    ascending = np.lexsort((noise, -seconds if deal.most == "fastest" else seconds))
    scores[ascending] = [
        NormalDist().inv_cdf((rank + 0.5) / len(shards)) for rank in range(len(shards))
    ]
    share = deal.correlation
    scores = share * scores + sqrt(1 - share * share) * noise
    given: list[Samples] = list(shards)
    by_score, by_size = np.argsort(-scores, kind="stable"), np.argsort(-sizes, kind="stable")
    for worker, shard in zip(by_score, by_size, strict=True):
        given[worker] = shards[shard]
    return given
