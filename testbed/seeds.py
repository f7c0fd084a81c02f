"""Independent random streams, each derived from the scenario's seed and the name of its use."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: str) -> np.random.Generator:
    """A generator of its own for every use, such as ``stream(7, "w3", "think")``.

    Two streams with different names are statistically independent, and the same names give the same
    draws on every host, so that a run repeats from (scenario, seed).
    """
    words = hashlib.sha256("/".join(names).encode()).digest()
    spawn_key = tuple(int.from_bytes(words[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=spawn_key))
