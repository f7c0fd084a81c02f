"""Runs AdaComp's paper-size scenario under three laws of the waiting time, and tabulates the runs.

    python scenarios/adacomp/waiting_law.py RUNS             go through the list
    python scenarios/adacomp/waiting_law.py RUNS --table     print what the finished ones say

The list is in order of importance. A run that has ended is not begun again, so the list may be
stopped at any time and gone on with later; one that was cut off is begun anew, and repeats to the
bit. RUNS is the folder that holds the runs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed import Run
from testbed.cli.up import INVALID
from testbed.reports.measures import moving_average

SCENARIO = Path(__file__).with_name("waiting-law.yaml")
TARGET_RATIO = 0.97
HEADINGS = [
    *("law", "method", "lr", "mean of 1/max(1, σ)", "best moving average", "97 % at update"),
    *("ingress there", "first evaluation of 97 %", "end, all 10,000 images"),
]
METHODS = {
    "asgd": "{{asgd: {{learning_rate: {rate}}}}}",
    "adacomp": "{{adacomp: {{learning_rate: {rate}, ratio: 0.01}}}}",
    "comp-asgd": "{{comp-asgd: {{learning_rate: {rate}, ratio: 0.01}}}}",
    "comp-asgd-random": "{{comp-asgd: {{learning_rate: {rate}, ratio: 0.01, select: random}}}}",
}
LAWS = {"uniform": "uniform(0.5,1.5)", "normal": "normal(1,0.1)", "exponential": "exponential"}


@dataclass(frozen=True)
class Case:
    """One run of the list.

    Attributes:
        method: a key of ``METHODS``.
        law: a key of ``LAWS``.
        rate: learning rate.
    """

    method: str
    law: str
    rate: float

    @property
    def name(self) -> str:
        """Name of its run."""
        return f"{self.law}-{self.method}-{f'{self.rate:g}'.replace('.', 'p')}"

    def settings(self) -> Iterator[str]:
        """What it replaces in the scenario."""
        yield f"algorithm={METHODS[self.method].format(rate=self.rate)}"
        yield f"workers.think.law={LAWS[self.law]}"


CASES = (
    *(Case(method, "uniform", 0.1) for method in ("adacomp", "asgd", "comp-asgd")),
    Case("comp-asgd-random", "uniform", 0.1),
    *(Case(method, "uniform", 0.05) for method in ("adacomp", "asgd", "comp-asgd")),
    *(Case(method, "uniform", 0.03) for method in ("adacomp", "asgd", "comp-asgd")),
    *(Case(method, "uniform", 0.02) for method in ("adacomp", "asgd", "comp-asgd")),
    *(Case(method, "exponential", 0.1) for method in ("adacomp", "asgd", "comp-asgd")),
    *(Case(method, "normal", 0.1) for method in ("adacomp", "asgd", "comp-asgd")),
)


def main() -> int:
    """Do what the command line asks for."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--table", action="store_true", help="print a Markdown table, run nothing")
    arguments = parser.parse_args()
    if arguments.table:
        sys.stdout.write("".join(f"{line}\n" for line in table(arguments.runs)))
        return 0
    missing = [case for case in CASES if not ended(case, arguments.runs)]
    return max((run(case, arguments.runs) for case in missing), default=0)


def run(case: Case, runs: Path) -> int:
    """Run one case from its beginning; returns the exit status, 0 also for one that diverged."""
    shutil.rmtree(runs / case.name, ignore_errors=True)
    settings = [part for setting in case.settings() for part in ("--set", setting)]
    where = ["--runs", str(runs), "--name", case.name]
    command = [sys.executable, "-m", "testbed", "up", str(SCENARIO), *where, *settings]
    status = subprocess.run(command, check=False).returncode
    return 0 if status == INVALID else status


def ended(case: Case, runs: Path) -> bool:
    """Whether a case has come to its end, be it by diverging."""
    folder = runs / case.name
    return (folder / "run.json").exists() and Run(folder).state.state in ("finished", "failed")


def table(runs: Path) -> Iterator[str]:
    """The lines of a Markdown table of the cases that have ended."""
    for line in (HEADINGS, ["---"] * len(HEADINGS)):
        yield f"| {' | '.join(line)} |"
    for case in CASES:
        if ended(case, runs):
            yield f"| {' | '.join(row(case, Run(runs / case.name)))} |"


def row(case: Case, run: Run) -> list[str]:
    """One line of the table, in the order of ``HEADINGS``."""
    evaluations = run.evaluations
    during = evaluations[~evaluations["final"]]
    average = moving_average(during["top1"])
    crossing = during[average >= TARGET_RATIO]
    first = during[during["top1"] >= TARGET_RATIO]
    scale = (1 / run.updates["staleness"].clip(lower=1)).mean()
    begun = [LAWS[case.law], case.method, f"{case.rate:g}", f"{scale:.2e}", f"{average.max():.2%}"]
    whole = len(run.updates) == run.scenario.stop.updates
    final = evaluations.loc[evaluations["final"], "top1"]
    return [
        *begun,
        f"{crossing['version'].iloc[0]:,}" if len(crossing) else "never",
        f"{crossing['payload_up_bytes'].iloc[0] / 1e9:.2f} GB" if len(crossing) else "",
        f"{first['version'].iloc[0]:,}" if len(first) else "never",
        f"{final.iloc[-1]:.2%}" if whole and len(final) else run.state.reason,
    ]


if __name__ == "__main__":
    sys.exit(main())
