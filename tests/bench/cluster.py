"""What a Ray cluster costs: a sweep and a simulation, local and on nodes of this machine.

    python tests/bench/cluster.py [simulation] [sweep] [--updates 10000] [--rounds 3] [--only Ray]

Local and remote alternate. Prints seconds, and CPU seconds of all processes with Ray's. A
simulation is also measured with --start updates: the difference is that of updates without the
start. Needs root.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
        cluster(options.nodes, options.cpus) as address,
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
        print(f"{'':12}{'':8}{'updates':>8}{'s':>8}{'CPU s':>8}{'load':>6}")
        for what in options.what:
            command, remote = commands[what]
            sizes = (options.start, options.updates) if what == "simulation" else (options.updates,)
            found = defaultdict[tuple[str, int], list[float]](list)
            for number, size, (name, more) in itertools.product(
                range(options.rounds), sizes, (("local", []), ("Ray", remote))
            ):
                if options.only not in (None, name):
                    continue
                words = [*command, *more, "--runs", f"{what}-{name}-{number}-{size}"]
                if what == "simulation":
                    words += ["--set", f"stop.updates={size}", "--set", f"evaluate.every={size}"]
                seconds, cpu = measured(words, place, group)
                found[name, size].append(cpu)
                load = os.getloadavg()[0]
                line = f"{what:12}{name:8}{size:8}{seconds:8.2f}{cpu:8.2f}{load:6.1f}"
                print(line, flush=True)
            conclude(found, *sizes)


def conclude(found: Mapping[tuple[str, int], Sequence[float]], *sizes: int) -> None:
    """Print the medians of CPU seconds, and with two sizes those of an update between them."""
    first, last = sizes[0], sizes[-1]
    whole = {key: statistics.median(some) for key, some in found.items()}
    names = dict.fromkeys(name for name, _ in whole)
    for name in names:
        print(f"{name}: {whole[name, last]:.1f} CPU s for {last} updates", end="")
        if first != last:
            each = (whole[name, last] - whole[name, first]) / (last - first)
            print(
                f", {whole[name, first]:.1f} for {first}: {1000 * each:.3f} ms per update", end=""
            )
        print()
    if len(names) == 2:
        print(f"local in {whole['local', last] / whole['Ray', last]:.2f} of the CPU time of Ray")


@contextmanager
def cluster(count: int = 2, cpus: int = 1) -> Iterator[str]:
    """The address of a node with two CPUs; or of one with one CPU, and another with ``cpus``."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # the machine may be busy
    os.environ.setdefault("RAY_worker_niceness", "0")  # these nodes share their cores
    from ray.cluster_utils import Cluster

    store = 2**30  # bytes; by default, this class gives nodes too little for MNIST
    head = {"num_cpus": 2 // count, "include_dashboard": False, "object_store_memory": store}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    if count > 1:
        nodes.add_node(num_cpus=cpus, object_store_memory=store)
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
    parser.add_argument("--start", type=int, default=100)
    parser.add_argument("--model", default="digits-cnn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, choices=[1, 2], default=2)
    parser.add_argument("--cpus", type=int, default=1, help="of the second node, as Ray sees it")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--only", choices=["local", "Ray"])
    main(parser.parse_args())
