"""Updates per second of whole runs next to gradients alone: a table, and benches/workers.json.

    python tests/bench/workers.py [--workers 10 50 200] [--algorithm adacomp asgd] [--links unshaped
        shaped] [--runtime native docker] [--compute own shared] [--seconds 10] [--no-reference]

Every runtime, `compute` and number of workers is measured with the first algorithm and the first
kind of links; each other algorithm or kind of links in the first runtime, with the fewest and the
most workers. The paper's CNN (211,690 parameters), MNIST, batches of 10, AdaComp with c = 0.01 or
ASGD, which pushes all 847 KB; no think time, nothing measured but the updates. Every run is what
`testbed up` makes of a scenario. Shaped links have 100 Mbit/s each way. Counted is from when every
worker has pushed three times on average, for this many seconds; a run costs these, what the first
pushes take, bring-up and tear-down. The reference is in ``references.py``. Needs MNIST in
TESTBED_DATA; without it only the reference is measured.
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from watching import Progress, bytes_of, descendants, pids_of, spent, wait_until

from testbed.telemetry.host import PROC, describe_host

HERE = Path(__file__).resolve().parent
SCENARIO = """
name: bench
algorithm: {algorithm}
model: adacomp-cnn
dataset: mnist
workers:
  count: {workers}
  classes: {{device: {{link: {link}}}}}
stop: {{time: {limit_seconds}s}}
evaluate: {{every: 1000000, images: 100}}
"""
ALGORITHMS = {
    "adacomp": "{adacomp: {ratio: 0.01, learning_rate: 0.01}}",
    "asgd": "{asgd: {learning_rate: 0.01}}",
}
LINKS = {"unshaped": "{}", "shaped": "{up: {rate: 100mbit}, down: {rate: 100mbit}}"}
WORKER = re.compile(r"w\d+")
LIMIT_SECONDS = 600.0
FIRST_UPDATES = 3


@dataclass(frozen=True)
class Case:
    """One run of the table."""

    runtime: str
    algorithm: str
    links: str
    compute: str
    workers: int


@dataclass(frozen=True)
class Moment:
    """How far a run is.

    Attributes:
        updates: that were applied.
        seconds: since the start of the training, at the last of them.
        cpu_seconds: what all its processes have taken so far.
    """

    updates: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Memory:
    """Bytes: of all processes, what they share counted once; of a worker alone, the median."""

    together: float
    of_worker: float


def main(options: argparse.Namespace) -> None:
    """Measure, print, write."""
    document: dict[str, Any] = {
        "host": dict(describe_host(PROC)),
        "versions": {name: version(name) for name in ("torch", "numpy", "grpcio")},
        "load_before": os.getloadavg(),
    }
    print(f"{document['host']['cpu']}, {document['host']['usable_cores']} cores in use")
    if options.reference:
        document["gradients_per_second"] = references(max(options.workers), options.seconds)
        for name, rate in document["gradients_per_second"].items():
            print(f"gradients a second, {name:32} {rate:8.0f}")
    document["runs"] = []
    print(f"{'runtime':8}{'algorithm':10}{'links':10}{'compute':8}", end="")
    print(f"{'workers':>8}{'updates/s':>10}", end="")
    print(f"{'CPU ms each':>12}{'private MB':>11}{'up s':>6}{'down s':>7}")
    for case in cases_of(options) if "TESTBED_DATA" in os.environ else ():
        measured = whole_run(case, options.seconds)
        document["runs"].append(asdict(case) | measured)
        print(f"{case.runtime:8}{case.algorithm:10}{case.links:10}{case.compute:8}", end="")
        print(f"{case.workers:8}", end="")
        print("{updates_per_second:10.1f}{cpu_ms:12.2f}".format(**measured), end="")
        print("{private_mb:11.1f}{up_seconds:6.1f}{down_seconds:7.2f}".format(**measured))
    target = Path("benches/workers.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n")


def cases_of(options: argparse.Namespace) -> Iterator[Case]:
    """The first algorithm and links in every way, the others at the ends; see above."""
    sizes = sorted(options.workers)
    first, *others = product(options.algorithm, options.links)
    for runtime, compute in product(options.runtime, options.compute):
        if compute == "own" or runtime != "docker":
            yield from (Case(runtime, *first, compute, size) for size in sizes)
    for algorithm, links in others:
        if algorithm == first[0] or links == first[1]:
            for size in sorted({sizes[0], sizes[-1]}):
                yield Case(options.runtime[0], algorithm, links, options.compute[0], size)


def references(workers: int, seconds: float) -> dict[str, float]:
    """See ``references.py``."""
    program = [sys.executable, str(HERE / "references.py")]
    command = [*program, "--workers", str(workers), "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def whole_run(case: Case, seconds: float) -> dict[str, float]:
    """One run by `testbed up`, and what it says of itself."""
    with tempfile.TemporaryDirectory() as folder:
        scenario, run = Path(folder) / "bench.yaml", Path(folder) / "bench"
        text = SCENARIO.format(
            algorithm=ALGORITHMS[case.algorithm],
            workers=case.workers,
            link=LINKS[case.links],
            limit_seconds=LIMIT_SECONDS,
        )
        scenario.write_text(text)
        command = [sys.executable, "-m", "testbed", "up", str(scenario), "--runs", folder]
        command += ["--name", run.name, "--runtime", case.runtime]
        command += ["--set", f"compute={case.compute}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as up:
            try:
                begun, ended, memory = observe(up, run, case.workers, seconds)
            finally:
                up.send_signal(signal.SIGINT)
        summary = json.loads((run / "summary.json").read_text())
    updates = ended.updates - begun.updates
    return {
        "updates_per_second": updates / (ended.seconds - begun.seconds),
        "cpu_ms": (ended.cpu_seconds - begun.cpu_seconds) / updates * 1000,
        "memory_mb": memory.together / 1e6,
        "private_mb": memory.of_worker / 1e6,
        "up_seconds": summary["bring_up_seconds"],
        "down_seconds": summary["tear_down_seconds"],
    }


def observe(
    up: subprocess.Popen[bytes], run: Path, workers: int, seconds: float
) -> tuple[Moment, Moment, Memory]:
    """Two samples of the training this many seconds apart, and its memory usage at the second."""
    progress = Progress(run / "ps/updates.bin")
    wait_until(lambda: progress.look().updates >= FIRST_UPDATES * workers, up)
    nodes = pids_of(run)
    processes = set(nodes.values()) | set(descendants(up.pid))
    begun = look(progress, processes)
    wait_until(lambda: progress.look().seconds >= begun.seconds + seconds, up)
    ended = look(progress, processes)
    together = sum(bytes_of(pid, "Pss:") for pid in processes)
    of_workers = [pid for node, pid in nodes.items() if WORKER.fullmatch(node)]
    return begun, ended, Memory(together, median(bytes_of(pid, "Private_") for pid in of_workers))


def look(progress: Progress, processes: set[int]) -> Moment:
    """The run as it is now."""
    progress.look()
    return Moment(progress.updates, progress.seconds, sum(spent(pid)[0] for pid in processes))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("--workers", type=int, nargs="+", default=[10, 50, 200])
    made.add_argument("--algorithm", nargs="+", choices=ALGORITHMS, default=["adacomp"])
    made.add_argument("--links", nargs="+", choices=LINKS, default=["unshaped"])
    made.add_argument("--runtime", nargs="+", default=["native"])
    made.add_argument("--compute", nargs="+", choices=("own", "shared"), default=["own"])
    made.add_argument("--seconds", type=float, default=10.0)
    made.add_argument("--no-reference", dest="reference", action="store_false")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
