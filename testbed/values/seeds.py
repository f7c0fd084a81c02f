"""Independent random streams, each derived from the scenario's seed and the name of its use."""

from __future__ import annotations

import hashlib
import random
import sys

import numpy as np


def stream(seed: int, *names: str) -> np.random.Generator:
    """Return an independent generator for each use, such as ``stream(7, "w3", "think")``.

    Streams with different names are statistically independent, and the same names give the same
    draws on every host, so a run is reproducible from (scenario, seed).
    """
    words = hashlib.sha256("/".join(names).encode()).digest()
    spawn_key = tuple(int.from_bytes(words[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=spawn_key))


def seed_globals(number: int) -> None:
    """Seed the global generators of Python, NumPy and torch, from which the user's code may draw.

    This takes 10 microseconds. ``torch.manual_seed`` takes 200, as it records a stack trace for
    each kind of device that has not been used.
    """
    random.seed(number)
    np.random.seed(number % 2**32)
    torch = sys.modules.get("torch")
    if torch is None:  # no code draws from it
        return
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)
