"""What client and server share: the digits of scikit-learn, and a perceptron for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

PIXELS, DIGITS = 64, 10


def data(test: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the images and labels of one half: for training, or for testing."""
    images, labels = load_digits(return_X_y=True)
    halves = train_test_split(images / 16, labels, test_size=0.2, random_state=0)
    return (halves[1], halves[3]) if test else (halves[0], halves[2])


def arrays_of(model: MLPClassifier) -> list[NDArray[np.float64]]:
    """Return the parameters of a model: 64 h + h + 10 h + 10 values for h hidden units."""
    return [*model.coefs_, *model.intercepts_]


def model_with(
    arrays: list[NDArray[np.float64]] | None, *, hidden: int, learning_rate: float = 0.0
) -> MLPClassifier:
    """Return a perceptron with these parameters; without any, with random ones."""
    model = MLPClassifier(
        (hidden,), solver="sgd", learning_rate_init=learning_rate or 1.0, random_state=0
    )
    # scikit-learn creates the parameters with the first samples that it sees.
    model.partial_fit(np.zeros((DIGITS, PIXELS)), range(DIGITS), classes=range(DIGITS))
    if arrays is not None:
        model.coefs_, model.intercepts_ = list(arrays[:2]), list(arrays[2:])
    return model
