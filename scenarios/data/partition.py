"""A partition of one's own: two kinds of households, which write even or odd digits only."""

import numpy as np


def households(labels, workers, rng, *, both=0.2):
    """Give workers even digits, odd digits, or, a share of them, all digits."""
    kinds = rng.choice(["even", "odd", "both"], workers, p=[(1 - both) / 2, (1 - both) / 2, both])
    parts = [[] for _ in range(workers)]
    for sample in rng.permutation(len(labels)):
        fits = {"both", "odd" if labels[sample] % 2 else "even"}
        owners = np.flatnonzero(np.isin(kinds, sorted(fits)))
        if len(owners):
            parts[rng.choice(owners)].append(sample)
    return parts
