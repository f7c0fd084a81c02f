"""CPU time per update, part by part: gradient, selection, both ends of the call, recording.

    python tests/bench/cost.py [--workers 10] [--updates 2000] [--rounds 3] [--algorithm asgd]
        [--package FOLDER ...] [--reference] [--recording] [--document docs/performance.md]

It counts CPU time of all processes, so that other load on the machine matters less.
Several ``--package`` folders (checkouts of this project) are compared in turn, one round after the
other, and with ``--reference`` processes that only compute gradients: as
many as there are cores, and as many as workers. ``--recording`` compares a run that writes down
every update with one that does not. Needs MNIST in TESTBED_DATA. Prints a table, and writes
benches/cost.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from testbed.datasets import user_cache
from testbed.datasets.mnist import prepare_mnist
from testbed.telemetry.host import PROC, describe_host

HERE = Path(__file__).resolve().parent
ALGORITHMS = {
    "adacomp": "{adacomp: {ratio: 0.01, learning_rate: 0.01}}",
    "asgd": "{asgd: {learning_rate: 0.01}}",
}
SCENARIO = """
name: cost
algorithm: ALGORITHM
model: adacomp-cnn
dataset: mnist
workers: {count: WORKERS}
stop: {updates: UPDATES}
evaluate: {every: 1000000, images: 100}
"""
LIMIT_SECONDS = 240.0
BEGIN, END = "<!-- written by tests/bench/cost.py -->", "<!-- end -->"


@dataclass(frozen=True)
class Case:
    """One of the compared cases.

    Attributes:
        name: title of its column.
        package: folder with the package.
        record: whether updates are recorded.
        alone: number of processes that only compute gradients; 0 for a whole training.
    """

    name: str
    package: Path
    record: bool = True
    alone: int = 0


def main(arguments: argparse.Namespace) -> None:
    """Measure, print, write."""
    cases = cases_of(arguments)
    data = prepare_mnist(user_cache(os.environ), environment=os.environ)
    found: dict[str, list[dict[str, float]]] = {case.name: [] for case in cases}
    for _ in range(arguments.rounds):
        for case in cases:
            found[case.name].append(dict(rows(run(case, data, arguments))))
    results = {
        name: {row: median(one[row] for one in many) for row in many[0]}
        for name, many in found.items()
    }
    show(results)
    if arguments.document:
        insert(arguments.document, markdown(results, arguments))
    document = {
        "host": dict(describe_host(PROC)),
        "workers": arguments.workers,
        "updates": arguments.updates,
        "rounds": arguments.rounds,
        "algorithm": arguments.algorithm,
        "medians": results,
    }
    target = Path("benches/cost.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n")


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    """The compared cases, in the order of the columns."""
    here = HERE.parents[1]
    cases = [Case(folder.name, folder.resolve()) for folder in arguments.package]
    if arguments.recording:
        cases += [Case("recorded", here), Case("not recorded", here, record=False)]
    cases = cases or [Case("now", here)]
    if arguments.reference:
        package = cases[-1].package
        counts = (len(os.sched_getaffinity(0)), arguments.workers)
        cases += [Case(f"{count} alone", package, alone=count) for count in counts]
    return cases


def run(case: Case, data: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One training."""
    with tempfile.TemporaryDirectory() as folder:
        text = SCENARIO.replace("ALGORITHM", ALGORITHMS[arguments.algorithm])
        text = text.replace("WORKERS", str(case.alone or arguments.workers))
        order = {
            "folder": f"{folder}/run",
            "data": str(data),
            "scenario": text.replace("UPDATES", str(arguments.updates)),
            "workers": case.alone or arguments.workers,
            "alone": case.alone > 0,
            "updates": arguments.updates,
            "limit_seconds": LIMIT_SECONDS,
            "metered": not arguments.recording,
            "record": case.record,
        }
        environment = {**os.environ, "PYTHONPATH": str(case.package)}
        command = [sys.executable, "-P", str(HERE / "metered.py"), json.dumps(order)]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def rows(result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The lines of the table: microseconds of CPU per update, and related values."""
    updates = result["updates"]
    both = 0.0
    for side, rest in (("worker", "loop and clock"), ("server", "server call")):
        sums = dict(result[side])
        cpu, system = sums.pop("cpu"), sums.pop("system")
        counts = {name: sums.pop(name) for name in ("faults", "voluntary", "involuntary")}
        sums.pop("private", None)
        for part, seconds in sums.items():
            yield f"{side}: {part}", seconds / updates * 1e6
        yield f"{side}: {rest}", (cpu - sum(sums.values())) / updates * 1e6
        yield f"{side}: all", cpu / updates * 1e6
        yield f"{side}: of it in the kernel", system / updates * 1e6
        yield f"{side}: page faults", counts["faults"] / updates
        yield f"{side}: waits", counts["voluntary"] / updates
        yield f"{side}: preemptions", counts["involuntary"] / updates
        both += cpu
    yield "both: all", both / updates * 1e6
    yield "worker: private MB", result["private_bytes"] / 1e6
    yield "server: private MB", result["server_private_bytes"] / 1e6
    yield "updates per second", updates / result["seconds"]


def show(results: Mapping[str, Mapping[str, float]]) -> None:
    """Print a column for each case."""
    print(f"{'us of CPU an update':32}" + "".join(f"{name:>14}" for name in results))
    for row in next(iter(results.values())):
        print(f"{row:32}" + "".join(f"{values[row]:14.1f}" for values in results.values()))


def markdown(results: Mapping[str, Mapping[str, float]], arguments: argparse.Namespace) -> str:
    """The table for a document, and how it was made."""
    host = describe_host(PROC)
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "grpcio"))
    lines = [
        f"{host['cpu']}, {host['usable_cores']} cores; {versions}; {arguments.algorithm}, "
        f"{arguments.workers} workers, {arguments.updates} updates a run, medians of "
        f"{arguments.rounds} runs taken in turn; load of the machine "
        f"{os.getloadavg()[1]:.0f} meanwhile.",
        "",
        "| microseconds of CPU an update | " + " | ".join(results) + " |",
        "| --- |" + " ---: |" * len(results),
    ]
    for row in next(iter(results.values())):
        cells = " | ".join(f"{values[row]:,.1f}" for values in results.values())
        lines.append(f"| {row} | {cells} |")
    return "\n".join(lines)


def insert(document: Path, table: str) -> None:
    """Put the table into a document, between the two marks."""
    before, _, rest = document.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="adacomp")
    parser.add_argument("--package", type=Path, action="append", default=[])
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--document", type=Path, help="takes the table between its two marks")
    parser.add_argument("--recording", action="store_true")
    return parser


if __name__ == "__main__":
    main(options().parse_args())
