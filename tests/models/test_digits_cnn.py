from __future__ import annotations

from pathlib import Path

import numpy as np

from testbed.datasets import Digits, load
from testbed.models import DigitsCnn


def test_the_network_is_small() -> None:
    network = DigitsCnn(name="digits-cnn").build((1, 8, 8), 10, folder=Path("unused"))
    assert network.layout.size == 17_258


def test_plain_sgd_learns_the_digits(tmp_path: Path) -> None:
    data = load(Digits(name="digits").prepare(tmp_path, environment={}, folder=tmp_path))
    network = DigitsCnn(name="digits-cnn").build(data.image_shape, data.classes, folder=tmp_path)
    rng = np.random.default_rng(0)
    parameters = network.initial(rng)
    bound = network.bind(parameters)
    for _ in range(600):
        samples = rng.integers(0, len(data.train_labels), 10)
        _, gradient = bound.loss_and_gradient(
            data.train_images[samples], data.train_labels[samples]
        )
        parameters -= np.float32(0.1) * gradient
    assert bound.evaluate(data.test_images, data.test_labels).metrics["top1"] >= 0.93
