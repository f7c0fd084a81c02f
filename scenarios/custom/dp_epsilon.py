"""What a run of dp_sgd.py has spent: ``python dp_epsilon.py RUN [DELTA]``; needs opacus.

Opacus' accountant composes the lots of the worker that took the most as subsampled Gaussian
mechanisms, with Rényi differential privacy (I. Mironov, K. Talwar, L. Zhang, 2019). Pushes after
the last applied one are not in the record: they add at most one push per worker.
"""

from __future__ import annotations

import sys

import testbed


def spent(sampling: float, noise: float, lots: int, *, delta: float) -> float:
    """Return ε after this many lots."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(noise, sampling, lots)]
    return float(accountant.get_epsilon(delta))


def main(run: str, delta: float = 1e-5) -> None:
    opened = testbed.Run(run)
    options = opened.scenario.algorithm.options
    lots = int(opened.updates.groupby("worker")["steps"].sum().max()) + options["local_steps"]
    epsilon = spent(options["sampling"], options["noise"], lots, delta=delta)
    print(f"{lots} lots: ({epsilon:.2f}, {delta:g})-differentially private")


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
