"""How far a live run with streams is from the simulation of the same: batches, queues, rounds.

    python scenarios/scadles/beside_simulation.py LIVE SIMULATED

Both are run folders. A queue is what waits at a device once its step has its samples. Round by
round it is compared, in seconds of the device's arrivals.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd

import testbed

Row = tuple[str, str, str]


def of_rounds(run: testbed.Run, column: str) -> pd.DataFrame:
    """A row for each round, a column for each worker."""
    updates = run.updates
    numbered = updates.assign(round=updates.groupby("worker").cumcount())
    return numbered.pivot_table(index="round", columns="worker", values=column)


def rows(live: testbed.Run, simulated: testbed.Run) -> Iterator[Row]:
    """What is compared, what the live run has or both differ by, what the simulated one has."""
    count = min(len(of_rounds(one, "samples")) for one in (live, simulated))
    batches, expected = (of_rounds(one, "samples")[:count] for one in (live, simulated))
    yield "", "live", "simulated"
    differing = int((batches != expected).sum().sum())
    yield "batches that differ", f"{differing} of {batches.size}", ""
    for name, one in (("median of a round, s", 0.5), ("its 90th percentile, s", 0.9)):
        found = [_round_seconds(run).quantile(one) for run in (live, simulated)]
        yield name, f"{found[0]:.3f}", f"{found[1]:.3f}  ({found[0] / found[1] - 1:+.1%})"
    rates = of_rounds(simulated, "stream_rate").iloc[-1]
    queues = [of_rounds(run, "stream_buffered")[:count] for run in (live, simulated)]
    apart = (queues[0] - queues[1]) / rates
    yield "queues after a round, largest difference, s of arrivals", _largest(apart), ""
    yield "samples waiting at the end", *(f"{int(one.iloc[-1].sum()):,}" for one in queues)


def _round_seconds(run: testbed.Run) -> pd.Series[float]:
    """How long the rounds took, from each to the next."""
    return of_rounds(run, "time_seconds").max(axis=1).diff().dropna()


def _largest(apart: pd.DataFrame) -> str:
    return f"{np.abs(apart.to_numpy()).max():.2f}"


def main() -> None:
    """Print the comparison of the two runs that the command line names."""
    if len(sys.argv) != 3:
        sys.exit("two run folders, a live one and a simulated one: LIVE SIMULATED")
    live, simulated = (testbed.Run(path) for path in sys.argv[1:])
    for what, one, other in rows(live, simulated):
        print(f"{what:58} {one:>14}  {other}")


if __name__ == "__main__":
    main()
