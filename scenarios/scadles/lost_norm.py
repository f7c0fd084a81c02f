"""What Top-k loses of a gradient's norm, counted in three ways, as two networks of table V learn.

    python scenarios/scadles/lost_norm.py [ROUNDS]

ScaDLES compresses where this is δ or less. The networks are ResNet-8 and vgg-s of table5.yaml; in a
round four devices have 57 samples each, and a step is that of SGD with momentum. Printed is the
range of the first device's. Needs CIFAR-10 and MNIST in TESTBED_DATA.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from testbed.algorithms import ScaDles
from testbed.algorithms.frame.worker import Shard
from testbed.algorithms.parts.adaptive_compression import LossOfNorm
from testbed.algorithms.parts.momentum import MomentumSgd
from testbed.datasets import load as load_data
from testbed.datasets.base import user_cache
from testbed.payloads import Vector
from testbed.payloads.topk import largest, quotas, sparsify
from testbed.scenario.schema import Scenario
from testbed.studies.load import load_study
from testbed.values.seeds import stream

STUDY = Path(__file__).parent / "table5.yaml"
DEVICES, BATCH, ROUNDS = 4, 57, 60
RATIOS = (0.1, 0.01)


def lost(gradient: Vector, sizes: tuple[int, ...], ratio: float) -> tuple[float, float, float]:
    """ρ of Top-k of each tensor, squared and by norms that are added up, and of all at once."""
    kept = sparsify(gradient, quotas(sizes, ratio), choose=largest)
    kept_of_all = sparsify(gradient, quotas([gradient.size], ratio), choose=largest)
    squared, summed, of_all = LossOfNorm(), LossOfNorm(sizes=sizes), LossOfNorm()
    return (
        squared.add(gradient, kept),
        summed.add(gradient, kept),
        of_all.add(gradient, kept_of_all),
    )


def first_gradients(scenario: Scenario, rounds: int) -> Iterator[tuple[Vector, tuple[int, ...]]]:
    """The first device's gradient of every round, and the sizes of its tensors."""
    cache = user_cache(os.environ)
    folder = scenario.dataset.prepare(cache, environment=os.environ, folder=STUDY.parent)
    data = load_data(folder)
    network = scenario.model.build(data.image_shape, data.classes, folder=STUDY.parent)
    parameters = network.initial(stream(scenario.seed, "model"))
    bound = network.bind(parameters)
    shard = Shard(np.arange(len(data.train_labels)), stream(scenario.seed, "order"))
    assert isinstance(scenario.algorithm, ScaDles)
    sgd = MomentumSgd(scenario.algorithm, parameters.size)
    for _ in range(rounds):
        gradients = [
            bound.loss_and_gradient(*data.batch(shard.take(BATCH)))[1].copy()
            for _ in range(DEVICES)
        ]
        yield gradients[0], network.layout.sizes
        mean = np.asarray(np.mean(gradients, axis=0), np.float32)
        parameters -= sgd.step(mean, parameters, samples=DEVICES * BATCH)


def main() -> None:
    """Print a row for each network, ratio and way of counting."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    study = load_study(STUDY)
    print(f"{'network':8} {'CR':>5} {'squared':>14} {'layer-sum':>14} {'Top-k of all':>14}")
    for net in ("resnet", "vgg"):
        scenario = next(run.scenario for run in study.runs if dict(run.case.levels)["net"] == net)
        found = [
            [lost(gradient, sizes, ratio) for ratio in RATIOS]
            for gradient, sizes in first_gradients(scenario, rounds)
        ]
        ranges = zip(np.min(found, axis=0), np.max(found, axis=0), strict=True)
        for ratio, (least, most) in zip(RATIOS, ranges, strict=True):
            cells = (f"{a:.2f} to {b:.2f}" for a, b in zip(least, most, strict=True))
            print(f"{net:8} {ratio:5g} " + " ".join(f"{cell:>14}" for cell in cells))


if __name__ == "__main__":
    main()
