"""Flower's simulation engine compared with the testbed: same model, batch and number of clients.

    python tests/bench/flower.py [--clients 10 50 200] [--seconds 20]

Installs Flower into a separate environment in the user's cache, at the first time; torch is that
of this project. Prints updates a second and memory of both, and what each of them includes, and
writes benches/flower.json. Needs MNIST in TESTBED_DATA.

A client of Flower gets the model, computes one gradient of ten images by the same code as a worker
here, and sends the model back after that step; the server averages all of them in rounds (FedAvg).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from testbed.datasets import load, user_cache
from testbed.models import AdaCompCnn, BoundModel

HERE = Path(__file__).resolve().parent
MARK = "TESTBED_BENCH_FLOWER"  # in the environment of all processes of Flower's and Ray's
BATCH, LEARNING_RATE = 10, 0.1
INSTALL_SECONDS = 300.0
MEMORY_SECONDS = 1.0
"""How often the memory of a simulation is looked at."""
INCLUDED = {
    "flower": "clients are calls in one actor a core (Ray), in rounds that wait for all; no "
    "isolation, no network, the whole model both ways through Ray's object store",
    "own": "every worker a process with namespaces, address and link, asynchronous, "
    "gRPC over an emulated network, AdaComp (17 KB up, 847 KB down), every update recorded",
    "shared": "the same, but a process per core computes the gradients of all workers",
    "simulated": "the same scenario on a virtual clock, a process a core: real gradients, modelled "
    "seconds, every update recorded",
}
SCENARIO = """
name: simulated
runtime: simulated
algorithm: {{adacomp: {{ratio: 0.01, learning_rate: 0.01}}}}
model: adacomp-cnn
dataset: mnist
workers: {{count: {clients}, classes: {{device: {{speed: 50ms}}}}}}
stop: {{updates: {updates}}}
evaluate: {{every: 1000000, images: 100}}
"""
EXPECTED_RATE = 400
"""Updates a second for which a simulation is made as long as the others are."""


def main(options: argparse.Namespace) -> None:
    """Install, measure, print, write."""
    if "TESTBED_DATA" not in os.environ:
        raise SystemExit("TESTBED_DATA is not set: it names the folder that holds MNIST.")
    python = installed(user_cache(os.environ) / "bench-flower")
    results = []
    print(f"{'':10}{'clients':>8}{'updates/s':>11}{'memory MB':>11}")
    for clients in options.clients:
        for name, measured in (
            ("flower", by_flower(python, clients, options.seconds)),
            ("own", by_testbed(clients, "own", options.seconds)),
            ("shared", by_testbed(clients, "shared", options.seconds)),
            ("simulated", by_simulation(clients, options.seconds)),
        ):
            results.append({"engine": name, "clients": clients} | measured)
            rate, memory = measured["updates_per_second"], measured["memory_mb"]
            print(f"{name:10}{clients:8}{rate:11.1f}{memory:11.0f}")
    for name, text in INCLUDED.items():
        print(f"{name}: {text}.")
    target = Path("benches/flower.json")
    target.parent.mkdir(exist_ok=True)
    document = {"included": INCLUDED, "load": os.getloadavg(), "results": results}
    target.write_text(json.dumps(document, indent=2) + "\n")


def installed(folder: Path) -> Path:
    """An interpreter with Flower; torch and this package come from the environment at hand."""
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
        subprocess.run([*pip, "flwr[simulation]"], check=True, timeout=INSTALL_SECONDS)
        own = next(folder.glob("lib/python*/site-packages"))
        # After Flower's own, so that its versions of shared packages are used.
        others = (sysconfig.get_path("purelib"), str(HERE.parents[1]))
        (own / "testbed.pth").write_text("\n".join(others) + "\n")
        (folder / "complete").touch()
    return python


def by_flower(python: Path, clients: int, seconds: float) -> dict[str, float]:
    """Updates per second and memory of Flower's simulation."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = {**os.environ, MARK: "1", "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
        environment |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        command = [python, __file__, "--inside", result, "--clients", str(clients)]
        command += ["--seconds", str(seconds)]
        log = Path(folder) / "log"
        with log.open("w") as output:
            subprocess.run(
                list(map(str, command)),
                env=environment,
                stdout=output,
                stderr=output,
                timeout=6 * seconds + 120,
                check=False,
            )
        if not result.exists():
            raise RuntimeError(f"Flower has not come to its end:\n{log.read_text()[-3000:]}")
        measured: dict[str, float] = json.loads(result.read_text())
        return measured


def by_testbed(clients: int, compute: str, seconds: float) -> dict[str, float]:
    """The same for a whole run here with this ``compute``, by ``workers.py``."""
    program = [sys.executable, HERE / "workers.py", "--no-reference", "--workers", str(clients)]
    program += ["--compute", compute]
    with tempfile.TemporaryDirectory() as folder:
        command = [*program, "--seconds", str(seconds)]
        path = f"{HERE.parents[1]}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run(
            list(map(str, command)),
            check=True,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        (run,) = json.loads((Path(folder) / "benches/workers.json").read_text())["runs"]
    return {"updates_per_second": run["updates_per_second"], "memory_mb": run["memory_mb"]}


def by_simulation(clients: int, seconds: float) -> dict[str, float]:
    """The same for a simulated run: its cost beyond a run of a single update."""
    updates = int(EXPECTED_RATE * seconds)
    begun, _ = timed_simulation(clients, 1)
    taken, memory = timed_simulation(clients, 1 + updates)
    return {"updates_per_second": updates / (taken - begun), "memory_mb": memory}


def timed_simulation(clients: int, updates: int) -> tuple[float, float]:
    """Seconds of a simulated run from its command to its end, and its peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "scenario.yaml").write_text(
            SCENARIO.format(clients=clients, updates=updates)
        )
        begun, most = time.monotonic(), 0.0
        command = [sys.executable, "-m", "testbed", "up", "scenario.yaml"]
        path = f"{HERE.parents[1]}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": folder, MARK: "1"}
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL
        ) as process:
            while process.poll() is None:
                most = max(most, memory_mb())
                with suppress(subprocess.TimeoutExpired):
                    process.wait(MEMORY_SECONDS)
        if process.returncode:
            raise RuntimeError(f"the simulation has ended with {process.returncode}")
        return time.monotonic() - begun, most


# ---- inside Flower's environment


def simulate(result: Path, clients: int, seconds: float) -> None:
    """Rounds until the time is over; the first one, in which actors start, does not count."""
    from flwr.app import ArrayRecord, Context  # type: ignore[import-not-found]
    from flwr.serverapp import Grid, ServerApp  # type: ignore[import-not-found]
    from flwr.serverapp.strategy import FedAvg  # type: ignore[import-not-found]
    from flwr.simulation import run_simulation  # type: ignore[import-not-found]

    server = ServerApp()

    @server.main()  # type: ignore[untyped-decorator]
    def train(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        first = np.zeros(bound()[0].size, np.float32)
        first[:] = bound()[0]
        arrays = strategy.start(grid, ArrayRecord([first]), num_rounds=1).arrays
        begun, rounds = time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            arrays = strategy.start(grid, arrays, num_rounds=1).arrays
            rounds += 1
        taken = time.monotonic() - begun
        measured = {"updates_per_second": rounds * clients / taken, "memory_mb": memory_mb()}
        result.write_text(json.dumps(measured))

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client_app(), num_supernodes=clients, backend_config=resources)


def client_app() -> Any:
    """The client of Flower."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp  # type: ignore[import-not-found]

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        parameters, model, data = bound()
        (received,) = message.content["arrays"].to_numpy_ndarrays()
        parameters[:] = received
        picked = np.random.default_rng().integers(0, len(data.train_labels), BATCH)
        images, labels = data.train_images[picked], data.train_labels[picked]
        _, gradient = model.loss_and_gradient(images, labels)
        arrays = ArrayRecord([parameters - LEARNING_RATE * gradient])
        content = {"arrays": arrays, "metrics": MetricRecord({"num-examples": BATCH})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


@cache
def bound() -> tuple[Any, BoundModel, Any]:
    """Parameters, the model at them, and the data: once per process."""
    import torch

    from testbed.datasets.mnist import prepare_mnist

    torch.set_num_threads(1)
    data = load(prepare_mnist(user_cache(os.environ), environment=os.environ))
    network = AdaCompCnn(name="adacomp-cnn").build((1, 28, 28), 10, folder=Path())
    parameters = network.initial(np.random.default_rng(0))
    return parameters, network.bind(parameters), data


def memory_mb() -> float:
    """Proportional set sizes of all processes with the mark in their environment."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}=1".encode() in (process / "environ").read_bytes():
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # it has just ended, or belongs to another program
    return total / 1000


def stop_at(seconds: float) -> None:
    """End this process unconditionally."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 50, 200])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        stop_at(5 * given.seconds + 100)
        simulate(given.inside, given.clients[0], given.seconds)
    else:
        main(given)
