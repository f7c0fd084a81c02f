from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from testbed.models import Mlp, Model

UNUSED = Path("unused")


def test_sizes_of_the_default() -> None:
    layout = Mlp(name="mlp").build((1, 28, 28), 10, folder=UNUSED).layout
    assert layout.size == 669_706
    assert layout.shapes == ((512, 784), (512,), (512, 512), (512,), (10, 512), (10,))


def test_gradient_worked_by_hand() -> None:
    """Two pixels, two hidden units, two classes.

    x = (1, 2); W1 = identity, b1 = (0, -3): h = relu(1, -1) = (1, 0)
    W2 = 0, b2 = 0: softmax (1/2, 1/2), loss ln 2; label 0: slope of the scores (-1/2, 1/2)
    gradient of W2: ((-1/2, 0), (1/2, 0)), of b2: (-1/2, 1/2); of the first layer: 0 since W2 = 0
    then with W2 = ((1, 1), (0, 0)): scores (1, 0), p = 1 / (1 + e), slope (-p, p) for label 0,
    slope of h: (-p, -p), of the second unit 0 by its relu; gradient of W1: ((-p, -2p), (0, 0))
    """
    network = Mlp(name="mlp", hidden=(2,)).build((1, 1, 2), 2, folder=UNUSED)
    image = np.array([[[[1, 2]]]], np.float32)
    label = np.array([0])
    flat = np.array([1, 0, 0, 1, 0, -3, 0, 0, 0, 0, 0, 0], np.float32)
    bound = network.bind(flat)
    loss, gradient = bound.loss_and_gradient(image, label)
    assert loss == pytest.approx(np.log(2))
    np.testing.assert_allclose(gradient, [0, 0, 0, 0, 0, 0, -0.5, 0, 0.5, 0, -0.5, 0.5])
    flat[6:10] = [1, 1, 0, 0]
    loss, gradient = bound.loss_and_gradient(image, label)
    p = 1 / (1 + np.e)
    assert loss == pytest.approx(np.log(1 + np.exp(-1)))
    expected = [-p, -2 * p, 0, 0, -p, 0, -p, 0, p, 0, -p, p]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


@pytest.mark.parametrize("hidden", [[0], [1.5], ["12"], [70_000], [1] * 17, 512])
def test_invalid_widths_are_refused(hidden: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Model).validate_python({"mlp": {"hidden": hidden}})
