"""CPU time per gradient, and per evaluated image, for each model on one thread.

    python tests/bench/bench_gradient.py [batch size, default 10]

Nodes run with MALLOC_TRIM_THRESHOLD_=16777216 and MALLOC_MMAP_THRESHOLD_=4194304 in their
environment; set them here too for the same results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

from testbed.models import (
    AdaCompCnn,
    AdspCnn,
    DigitsCnn,
    ImageShape,
    Mlp,
    ModelConfig,
    ResNet,
    VggS,
)

CASES: list[tuple[ModelConfig, ImageShape]] = [
    (AdaCompCnn(name="adacomp-cnn"), (1, 28, 28)),
    (AdspCnn(name="adsp-cnn"), (3, 32, 32)),
    (AdspCnn(name="adsp-cnn", width=16), (3, 32, 32)),
    (ResNet(name="resnet"), (3, 32, 32)),
    (ResNet(name="resnet", depth=20), (3, 32, 32)),
    (VggS(name="vgg-s"), (3, 32, 32)),
    (VggS(name="vgg-s"), (1, 28, 28)),
    (Mlp(name="mlp"), (1, 28, 28)),
    (DigitsCnn(name="digits-cnn"), (1, 8, 8)),
]
ROUNDS, CALLS = 21, 20


def milliseconds(call: Callable[[], object]) -> tuple[float, float]:
    """CPU time of one call: the minimum and the median of the rounds."""
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(CALLS):
            call()
        times.append((time.process_time() - begun) / CALLS * 1000)
    return min(times), median(times)


def main(batch: int) -> None:
    """Print a line per model."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    print(
        f"{'model':12} {'parameters':>10} {'gradient of ' + str(batch):>16} {'an evaluation':>15}"
    )
    for config, image_shape in CASES:
        network = config.build(image_shape, 10, folder=Path())
        bound = network.bind(network.initial(rng))
        images = rng.standard_normal((100, *image_shape)).astype(np.float32)
        labels = rng.integers(0, 10, 100)
        few, of_few = images[:batch], labels[:batch]
        least, usual = milliseconds(partial(bound.loss_and_gradient, few, of_few))
        _, hundred = milliseconds(partial(bound.evaluate, images, labels))
        name = config.model_dump()["name"]
        gradient, image = f"{least:.2f} {usual:.2f} ms", f"{hundred * 10:.1f} us/image"
        print(f"{name:12} {network.layout.size:10} {gradient:>16} {image:>15}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
