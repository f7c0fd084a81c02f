"""CPU time of the start of a run, part by part: agent, template, workers, PS, controller.

    python tests/bench/launches.py [--workers 200] [--rounds 1] [--compute shared]
        [--package FOLDER ...]

The scenario scenarios/adacomp/mnist-200.yaml natively, from the moment in which a tenth of the
workers are launched to that in which all have joined; then the run is interrupted. CPU time is
counted, so other load on the host matters less than for the seconds. Several ``--package`` folders
(checkouts of this project) are measured in turn, one round after the other. Needs MNIST in
TESTBED_DATA. Prints a table of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from watching import children, read, spent, wait_until

from testbed.host.process import name_of

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = "scenarios/adacomp/mnist-200.yaml"
SETTINGS = {"stop.updates": "1000000", "time_scale": "0.2", "paced": "true"}
WORKER = re.compile(r"w\d+")
TEMPLATE = "testbed.runtimes.agent.template"


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    packages = [folder.resolve() for folder in options.package or [ROOT]]
    found: dict[Path, list[dict[str, float]]] = {package: [] for package in packages}
    for _ in range(options.rounds):
        for package in packages:
            found[package].append(start(package, options))
    print(f"{'CPU ms per worker':24}" + "".join(f"{one.name:>12}" for one in packages))
    for part in found[packages[0]][0]:
        medians = (median(one[part] for one in found[package]) for package in packages)
        print(f"{part:24}" + "".join(f"{value:12.2f}" for value in medians))


def start(package: Path, options: argparse.Namespace) -> dict[str, float]:
    """One start; CPU milliseconds per worker of each part."""
    settings = SETTINGS | {"workers.count": str(options.workers), "compute": options.compute}
    with tempfile.TemporaryDirectory() as runs:
        run = Path(runs) / "launches"
        command = [sys.executable, "-m", "testbed", "up", SCENARIO, "--runtime", "native"]
        command += ["--runs", runs, "--name", run.name]
        command += [word for pair in settings.items() for word in ("--set", "=".join(pair))]
        environment = {**os.environ, "PYTHONPATH": str(package)}
        with subprocess.Popen(
            command, cwd=package, env=environment, stdout=subprocess.DEVNULL
        ) as up:
            try:
                some = workers_of(wait_for("launched", options.workers // 10, run, up))
                before = cpu_seconds(up.pid)
                events = wait_for("brought_up", 1, run, up)
                after, workers = cpu_seconds(up.pid), workers_of(events)
                spent_by_workers = sum(spent(pid)[0] for pid in workers)
            finally:
                up.send_signal(signal.SIGINT)
    launched = len(workers) - len(some)
    each = {part: 1000 * (after[part] - before[part]) / launched for part in after}
    each["workers"] = 1000 * spent_by_workers / len(workers)
    return each | {"all": sum(each.values()), "seconds in all": events[-1]["seconds"]}


def wait_for(kind: str, count: int, run: Path, up: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """Wait for that many events of a kind; return all events up to the last of them."""
    file = run / "events.jsonl"

    def events() -> list[dict[str, Any]]:
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        found = [number for number, one in enumerate(events) if one["event"] == kind]
        return events[: found[-1] + 1] if len(found) >= count else []

    return wait_until(events, up, every=0.2)


def workers_of(events: list[dict[str, Any]]) -> list[int]:
    """The pids of the launched workers."""
    launched = (one for one in events if one["event"] == "launched")
    return [one["pid"] for one in launched if WORKER.fullmatch(one["node"])]


def cpu_seconds(controller: int) -> dict[str, float]:
    """CPU time of each part; that of the template with the processes that it has waited for."""
    (outer,) = children(controller)
    (agent,) = children(outer)
    template = next(pid for pid in children(agent) if TEMPLATE in words_of(pid))
    server = next(pid for pid in children(agent) if name_of(pid) == "ps")
    own, ended = spent(template)
    return {
        "controller": spent(controller)[0],
        "agent": spent(agent)[0],
        "template: fork": own,
        "template: namespaces": ended,
        "parameter server": spent(server)[0],
    }


def words_of(pid: int) -> list[str]:
    """A process's command line."""
    return read(pid, "cmdline").split("\0")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("--workers", type=int, default=200)
    made.add_argument("--rounds", type=int, default=1)
    made.add_argument("--compute", choices=("own", "shared"), default="shared")
    made.add_argument("--package", type=Path, action="append")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
