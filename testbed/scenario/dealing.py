"""The samples of each worker: its share, what it holds out, and which device has which share."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np

from testbed import datasets
from testbed.algorithms.base import Samples
from testbed.datasets import Prepared
from testbed.datasets.folders import drawn_share
from testbed.errors import ScenarioError
from testbed.scenario.devices import devices
from testbed.scenario.schema import Scenario
from testbed.values.seeds import stream


def deal(scenario: Scenario, data: Prepared, folder: Path) -> Sequence[Samples]:
    """Return the training samples of each worker, by index.

    Args:
        scenario: has the partition.
        data: the data set.
        folder: base folder of the partition's file, if it has one.

    Raises:
        ScenarioError: a worker would get none, or a batch would exceed all samples, or shares are
            dealt by their size but equally large, or the partition's file is wrong.
        UserFileError: the user's own partition failed.
    """
    samples, batch = len(data.train_labels), scenario.workers.batch_size
    if batch > samples:
        expected = f"at most {samples:,}: the training samples of {scenario.dataset.name}"
        raise ScenarioError.at("workers.batch_size", f"{batch:,}", expected)
    shards = datasets.shards(
        scenario.dataset.partition.opened(folder, users=data.train_users),
        data.train_labels,
        scenario.workers.count,
        fraction=scenario.dataset.fraction,
        classes=data.classes,
        rng=stream(scenario.seed, "partition"),
    )
    return dealt(scenario, shards)


def split(scenario: Scenario, shards: Sequence[Samples]) -> Sequence[tuple[Samples, Samples]]:
    """Return the training samples of each worker, and those that it holds out, drawn at random.

    Raises:
        ScenarioError: a worker has too few samples for both.
    """
    share, found = scenario.dataset.held_out, []
    if not share:
        return [(own, own[:0]) for own in shards]
    for index, own in enumerate(shards):
        if len(own) < 2:
            expected = f"at least 2 samples of each worker, for both; w{index} has {len(own)}"
            raise ScenarioError.at("dataset.held_out", f"{share:g}", expected)
        chosen = drawn_share(len(own), share, stream(scenario.seed, f"w{index}", "held_out"))
        found.append((own[~chosen], own[chosen]))
    return found


def dealt(scenario: Scenario, shards: Sequence[Samples]) -> Sequence[Samples]:
    """Return the shares in the order of the devices that get them; as they are without ``deal``.

    The devices' speeds are ranked and the ranks converted to normal scores, of which
    ``correlation`` is mixed with noise; the largest share is that of the highest score. Equally
    fast devices are ranked by the noise.

    Raises:
        ScenarioError: all shares are equally large.
    """
    wanted, batch = scenario.workers.deal, scenario.workers.batch_size
    if wanted is None:
        return shards
    sizes = np.array([len(one) for one in shards])
    if len(set(sizes)) == 1 < len(shards):
        expected = "a partition with shares of different sizes, such as by_size"
        raise ScenarioError.at("workers.deal", f"shares of {sizes[0]:,} samples each", expected)
    paces = [one.pace for one in devices(scenario)]
    seconds = np.array([0.0 if pace is None else pace.mean(batch) for pace in paces])
    noise = stream(scenario.seed, "deal").standard_normal(len(shards))
    scores = np.empty(len(shards))
    ascending = np.lexsort((noise, -seconds if wanted.most == "fastest" else seconds))
    scores[ascending] = [
        NormalDist().inv_cdf((rank + 0.5) / len(shards)) for rank in range(len(shards))
    ]
    share = wanted.correlation
    scores = share * scores + sqrt(1 - share * share) * noise
    given: list[Samples] = list(shards)
    by_score, by_size = np.argsort(-scores, kind="stable"), np.argsort(-sizes, kind="stable")
    for worker, shard in zip(by_score, by_size, strict=True):
        given[worker] = shards[shard]
    return given
