from __future__ import annotations

import numpy as np

from testbed.datasets.prepared import distorted, standardised


def test_worked_by_hand() -> None:
    """0, 0, 4, 4: mean 2, std 2. 0, 0, 0, 1: mean 1/4, std sqrt(3)/4 = 0.433, under 1/sqrt(4)."""
    raw = np.array([[[0, 0], [4, 4]], [[0, 0], [0, 1]], [[7, 7], [7, 7]]], np.uint8)
    done = standardised(raw)
    assert done.shape == (3, 1, 2, 2)
    assert done.dtype == np.float32
    np.testing.assert_array_equal(done[0, 0], [[-1, -1], [1, 1]])
    np.testing.assert_array_equal(done[1, 0], [[-0.5, -0.5], [-0.5, 1.5]])
    np.testing.assert_array_equal(done[2, 0], [[0, 0], [0, 0]])


def test_the_channels_of_an_image_are_taken_together() -> None:
    """0 in one channel and 4 in the other: mean 2, std 2."""
    raw = np.stack([np.zeros((2, 2)), np.full((2, 2), 4)])[None].astype(np.uint8)
    done = standardised(raw)
    assert done.shape == (1, 2, 2, 2)
    np.testing.assert_array_equal(done[0], [[[-1, -1], [-1, -1]], [[1, 1], [1, 1]]])


def test_more_images_than_are_processed_at_once() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (2500, 3, 3)).astype(np.uint8)
    done = standardised(raw)
    np.testing.assert_array_equal(done[2400], standardised(raw[2400:2401])[0])
    np.testing.assert_allclose(done.mean(axis=(1, 2, 3)), 0, atol=1e-6)


def test_distorted_by_hand() -> None:
    """Standardisation cancels brightness, and contrast of a single channel; a flip remains."""
    images = np.array([[[[0, 10], [20, 50]]]] * 20, np.uint8)
    ready = distorted(images, np.random.default_rng(0))
    upright = standardised(images[:1])
    flipped = upright[..., ::-1]
    for one in ready:
        expected = flipped if one[0, 0, 0] > one[0, 0, 1] else upright
        np.testing.assert_allclose(one[None], expected, atol=1e-5)
    assert 0 < sum(one[0, 0, 0] > one[0, 0, 1] for one in ready) < 20
    np.testing.assert_array_equal(distorted(images, None), standardised(images))


def test_distortions_are_reproducible_from_the_generator() -> None:
    images = np.random.default_rng(1).integers(0, 256, (4, 3, 5, 5)).astype(np.uint8)
    one, two, other = (distorted(images, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_contrast_changes_the_balance_of_channels() -> None:
    """Distances to a channel's mean are scaled, the means are not: three channels show it."""
    images = np.random.default_rng(1).integers(0, 256, (8, 3, 5, 5)).astype(np.uint8)
    ready = distorted(images, np.random.default_rng(3))
    own, plain = (x.std(axis=(2, 3)) for x in (ready, standardised(images)))
    assert np.abs(own / plain - 1).max() > 0.01
