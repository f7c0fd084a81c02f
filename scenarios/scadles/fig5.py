"""The rates that reach the devices through one Kafka broker: figure 5 of the ScaDLES paper, live.

    python scenarios/scadles/fig5.py [--rates 100 600] [--producers 1 4 8 16 32] [--runs runs]

Runs ``fig5.yaml`` for each rate and number of producers, one after the other, prints a table, and
writes it to ``scadles-fig5.csv`` among the runs. A rate is what came to a device within a whole
second, from the sixth second of the training on. What has been run under these names is not run
again. S. Tyagi, M. Swany, IEEE Big Data 2022.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import testbed

SCENARIO = Path(__file__).with_name("fig5.yaml")
WARM_UP_SECONDS = 5
HOLDS = 0.95
"""Of the rate asked for, on the mean: less is not that rate any more."""

INVALID = 6


@dataclass(frozen=True)
class Case:
    """Run this many producers, each at this rate, in samples per second."""

    producers: int
    rate: int

    @property
    def run(self) -> str:
        """The run's name."""
        return f"scadles-fig5-{self.producers}x{self.rate}"


def main() -> None:
    """Run what is missing, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 600])
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    asked = parser.parse_args()
    table: list[Mapping[str, str]] = []
    for rate, producers in product(asked.rates, asked.producers):
        case = Case(producers, rate)
        table.append(cells(case, measured(case, asked.runs)))
        print_row(table)
    with (asked.runs / "scadles-fig5.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(table[0]))
        writer.writeheader()
        writer.writerows(table)


def measured(case: Case, runs: Path) -> testbed.Run:
    """The case's run, carried out unless it is there; one that is not valid counts as well."""
    if not (runs / case.run / "summary.json").exists():
        settings = (
            f"workers.count={case.producers}",
            f"workers.batch_size={case.rate // 2}",
            f"streams.rates={{constant: {{per_second: {case.rate}}}}}",
        )
        command = [sys.executable, "-m", "testbed", "up", str(SCENARIO), "--runs", str(runs)]
        command += ["--name", case.run, *(word for one in settings for word in ("--set", one))]
        status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        if status not in (0, INVALID):
            raise SystemExit(status)
    return testbed.Run(runs / case.run)


def cells(case: Case, run: testbed.Run) -> Mapping[str, str]:
    """A row of the table: what was asked for, what came, and how much the host had to do."""
    rates = np.concatenate(list(effective_rates(run, case.producers)))
    told = run.events[run.events["event"] == "produced"].groupby("producer").last()
    low, high = np.quantile(rates, (0.05, 0.95))
    return {
        "producers": str(case.producers),
        "asked": str(case.rate),
        "came, mean": f"{rates.mean():.1f}",
        "5th percentile": f"{low:.1f}",
        "95th": f"{high:.1f}",
        "sent of what was due": f"{told['sent'].sum() / told['due'].sum():.1%}",
        "CPUs busy": f"{run.summary['host']['busy_ratio']['mean']:.0%}",
        "holds": "yes" if rates.mean() >= HOLDS * case.rate else "no",
    }


def effective_rates(run: testbed.Run, devices: int) -> Iterator[NDArray[np.float64]]:
    """Of each device, the samples that came within each whole second.

    What has come is known when a round ends; between two ends it is taken to grow evenly. To a
    device that ends no round any more nothing comes: its buffer has not even half a second's.
    """
    stop = run.scenario.stop.time
    assert stop is not None, "fig5.yaml has one"
    seconds = np.arange(WARM_UP_SECONDS, int(stop))
    rounds = dict(iter(run.updates.groupby("worker")))
    for device in range(devices):
        if device not in rounds:
            yield np.zeros(len(seconds) - 1)
            continue
        ends = rounds[device]
        yield np.diff(np.interp(seconds, ends["time_seconds"], ends["stream_produced"]))


def print_row(table: Sequence[Mapping[str, str]]) -> None:
    """The newest row, as Markdown; before the first, what the columns are."""
    if len(table) == 1:
        print(f"| {' | '.join(table[0])} |\n| {' | '.join('---:' for _ in table[0])} |")
    print(f"| {' | '.join(table[-1].values())} |", flush=True)


if __name__ == "__main__":
    main()
