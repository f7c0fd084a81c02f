"""Updates a second of 200 warm workers, first the gradient alone, then everything: as root or user.

    python tests/bench/workers.py [workers, default 200] [seconds each, default 15]

The paper's CNN (211,690 parameters), batches of 10, AdaComp with c = 0.01, no think time, no shaped
links, nothing measured but the updates. The reference is the gradient alone, in as many processes
forked from one that has everything imported, which is how workers start. Without MNIST in
TESTBED_DATA the run of everything is left out. Prints a table, and JSON to benches/workers.json.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from testbed.telemetry.environment import describe_host
from testbed.telemetry.host import PROC

SCENARIO = """
name: bench
algorithm: {{adacomp: {{ratio: 0.01}}}}
model: adacomp-cnn
dataset: mnist
workers: {{count: {workers}}}
stop: {{time: {seconds}s}}
evaluate: {{every: 1000000, images: 100}}
"""


def main(workers: int, seconds: float) -> None:
    """Measure, print, write."""
    results: dict[str, Any] = {"host": dict(describe_host(PROC)), "workers": workers}
    cores = len(os.sched_getaffinity(0))
    results["gradient_per_second_one_process_a_core"] = gradients(cores, seconds)
    results["gradient_per_second"] = gradients(workers, seconds)
    if "TESTBED_DATA" in os.environ:
        summary = everything(workers, seconds)
        results["updates_per_second"] = summary["updates"]["per_real_second"]
        results["bring_up_seconds"] = summary["bring_up_seconds"]
        results["tear_down_seconds"] = summary["tear_down_seconds"]
        results["private_bytes_median"] = summary["memory"]["worker_private_bytes_median"]
    for name, value in results.items():
        print(f"{name:40} {value if not isinstance(value, float) else round(value, 1)}")
    target = Path("benches/workers.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=2) + "\n")


def gradients(processes: int, seconds: float) -> float:
    """Gradients a second of so many processes forked warm, each with a model of its own."""
    import torch

    from testbed.models import AdaCompCnn

    torch.set_num_threads(1)
    network = AdaCompCnn(name="adacomp-cnn").build((1, 28, 28), 10, folder=Path())
    rng = np.random.default_rng(0)
    parameters = network.initial(rng)
    images = rng.standard_normal((10, 1, 28, 28)).astype(np.float32)
    labels = rng.integers(0, 10, 10)
    network.bind(parameters).loss_and_gradient(images, labels)
    counts = np.frombuffer(mmap.mmap(-1, 8 * processes), np.int64)
    begin = time.monotonic() + 1.0 + 0.03 * processes
    children = []
    for index in range(processes):
        child = os.fork()
        if child == 0:
            bound = network.bind(parameters.copy())
            bound.loss_and_gradient(images, labels)
            while time.monotonic() < begin:
                time.sleep(0.01)  # all start together
            while time.monotonic() < begin + seconds:
                bound.loss_and_gradient(images, labels)
                counts[index] += 1
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return float(counts.sum() / seconds)


def everything(workers: int, seconds: float) -> dict[str, Any]:
    """The summary of a whole run with so many workers."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "bench.yaml"
        scenario.write_text(SCENARIO.format(workers=workers, seconds=seconds))
        command = [sys.executable, "-m", "testbed", "up", scenario, "--runs", folder]
        subprocess.run([*command, "--name", "bench"], check=False, stdout=subprocess.DEVNULL)
        summary: dict[str, Any] = json.loads((Path(folder) / "bench/summary.json").read_text())
    return summary


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # forked children end with it too
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 200,
        float(sys.argv[2]) if len(sys.argv) > 2 else 15.0,
    )
