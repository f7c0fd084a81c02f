"""What a Ray cluster costs: a sweep and a simulation, local and on two nodes of this machine.

    python tests/bench/cluster.py [simulation] [sweep] [--updates 10000] [--rounds 3] [--only Ray]

Local and remote alternate. Prints seconds, and CPU seconds of all processes with Ray's. Needs root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

BASE = """\
name: base
runtime: simulated
algorithm: {{asgd: {{learning_rate: 0.1}}}}
model: {model}
dataset: {dataset}
workers: {{count: 16, batch_size: 32, classes: {{fast: {{speed: 20ms}}}}}}
stop: {{updates: {updates}}}
evaluate: {{every: {updates}, images: 100}}
"""
STUDY = """\
name: own
scenario: base.yaml
seeds: [{seeds}]
vary: {{count: {{all: workers.count=16}}}}
"""
GROUPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))


def main(options: argparse.Namespace) -> None:
    """Start the cluster, measure, print."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        counted() as group,
        cluster() as address,
    ):
        place = Path(folder)
        dataset = "digits" if options.model == "digits-cnn" else "mnist"
        text = BASE.format(model=options.model, dataset=dataset, updates=options.updates)
        (place / "base.yaml").write_text(text)
        seeds = ", ".join(map(str, range(1, options.seeds + 1)))
        (place / "study.yaml").write_text(STUDY.format(seeds=seeds))
        pool = f"runtime={{simulated: {{pool: {{ray: {{address: '{address}'}}}}}}}}"
        commands = {
            "simulation": (["up", "base.yaml"], ["--set", pool]),
            "sweep": (["sweep", "study.yaml"], ["--ray", address]),
        }
        print(f"{'':12}{'':8}{'s':>8}{'CPU s':>8}   load {os.getloadavg()[0]:.1f}")
        for what in options.what:
            command, remote = commands[what]
            for number in range(options.rounds):
                for name, more in (("local", []), ("Ray", remote)):
                    if options.only not in (None, name):
                        continue
                    runs = ["--runs", f"{what}-{name}-{number}"]
                    seconds, cpu = measured([*command, *more, *runs], place, group)
                    print(f"{what:12}{name:8}{seconds:8.2f}{cpu:8.2f}", flush=True)


@contextmanager
def cluster() -> Iterator[str]:
    """The address of two nodes with a CPU each, in which workers have been started."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # the machine may be busy
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(num_cpus=1)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()  # type: ignore[no-untyped-call]


def measured(words: Sequence[str], place: Path, group: Path) -> tuple[float, float]:
    """Execute a command of testbed; return its seconds, and those of CPU of all processes."""
    begun, used = time.monotonic(), cpu_seconds(group)
    subprocess.run(
        [sys.executable, "-m", "testbed", *words], cwd=place, check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - begun, cpu_seconds(group) - used


@contextmanager
def counted() -> Iterator[Path]:
    """A control group with this process and all that it starts: Ray's do not stay its children."""
    parent = next(path for path in GROUPS if (path / "cgroup.procs").exists())
    group = parent / f"bench-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (parent / "cgroup.procs").write_text(pid)
        group.rmdir()


def cpu_seconds(group: Path) -> float:
    """Return the CPU time of a control group."""
    if (file := group / "cpuacct.usage").exists():
        return int(file.read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["simulation", "sweep"])
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--model", default="digits-cnn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--only", choices=["local", "Ray"])
    main(parser.parse_args())
