"""One training with a meter on every part: a parameter server and workers forked warm, on loopback.

Run by ``cost.py``. Restarts itself with a node's environment, which glibc reads at the start:

    python tests/bench/metered.py '{"folder": ..., "data": ..., "scenario": ..., ...}'

Prints one line of JSON: updates, and for both sides the CPU seconds of each part, of the whole,
page faults, context switches and, of the workers, private memory.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # imports before the fork affect the measurement
    from testbed.algorithms.frame.actions import Loop
    from testbed.roles.device import Device

WORKER = ("gradient", "selection", "encode", "client call", "decode", "copy")
SERVER = ("decode", "check", "staleness and apply", "pull", "encode", "recording")
TOTALS = ("cpu", "system", "faults", "voluntary", "involuntary", "private")


@dataclass
class Meter:
    """Adds up CPU time of parts of a process.

    Attributes:
        sums: seconds by part, then the totals; seen by the parent too.
        parts: their names.
    """

    sums: NDArray[np.float64]
    parts: tuple[str, ...]

    def on(self, part: str, call: Callable[..., Any], *, whole: bool = False) -> Callable[..., Any]:
        """The same call, metered; ``whole`` includes other threads."""
        position = self.parts.index(part)
        clock = time.process_time if whole else time.thread_time

        def metered(*arguments: Any, **named: Any) -> Any:
            begun = clock()
            try:
                return call(*arguments, **named)
            finally:
                self.sums[position] += clock() - begun

        return metered

    def put(self, owner: Any, name: str, part: str, *, whole: bool = False) -> None:
        """Meter the function of that name, if there is one."""
        if hasattr(owner, name):
            setattr(owner, name, self.on(part, getattr(owner, name), whole=whole))

    def total(self, sign: int) -> None:
        """Take the process's totals; once with -1 at the start and once with 1 at the end."""
        usage = getrusage(RUSAGE_SELF)
        now = (
            time.process_time(),
            usage.ru_stime,
            usage.ru_minflt,
            usage.ru_nvcsw,
            usage.ru_nivcsw,
        )
        self.sums[len(self.parts) : len(self.parts) + len(now)] += sign * np.array(now)


def main(order: dict[str, Any]) -> None:
    """Run it and print."""
    from testbed.roles import warm_up

    folder, workers = Path(order["folder"]), int(order["workers"])
    (folder / "ps").mkdir(parents=True)
    (folder / "scenario.yaml").write_text(order["scenario"])
    (folder / "data").symlink_to(order["data"])
    import testbed.roles.ps
    import testbed.roles.worker  # noqa: F401 - shared by all forked processes

    if threading.active_count() > 1:
        raise RuntimeError("there are threads before the fork")
    warm_up.main({"scenario": str(folder / "scenario.yaml"), "data": order["data"]})
    gc.collect()
    gc.freeze()
    shape = (workers + 1, max(len(WORKER), len(SERVER)) + len(TOTALS))
    sums = np.frombuffer(mmap.mmap(-1, 8 * shape[0] * shape[1]), np.float64).reshape(shape)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    if order["alone"]:
        print(json.dumps(_alone(folder, sums, order)))
        return
    common = {"folder": str(folder), "server": f"127.0.0.1:{port}"}
    begun = time.monotonic()
    server = _fork(lambda: _serve(common | {"node": "ps", "token": "bench"}, sums[workers], order))
    while not (folder / "sockets/ps.sock").exists():
        time.sleep(0.01)
    children = [_fork(partial(_work, common | _identity(i), sums[i])) for i in range(workers)]
    events = folder / "ps/events.jsonl"
    while '"drained"' not in events.read_text():
        time.sleep(0.02)
        if os.waitpid(server, os.WNOHANG)[0] or time.monotonic() - begun > order["limit_seconds"]:
            raise RuntimeError(f"the training has not come to its end: {events.read_text()[-500:]}")
    private = [_private_bytes(child) for child in children]
    of_server = _private_bytes(server)
    for child in (*children, server):
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
    print(json.dumps(_result(folder, sums, private) | {"server_private_bytes": of_server}))


def _identity(index: int) -> dict[str, str]:
    from testbed.rpc.tokens import token_of

    name = f"w{index}"
    return {"node": name, "index": str(index), "token": token_of("bench", name)}


def _result(folder: Path, sums: NDArray[np.float64], private: list[int]) -> dict[str, Any]:
    lines = (folder / "ps/events.jsonl").read_text().splitlines()
    events = {event["event"]: event for event in map(json.loads, lines)}
    updates = events["finished"]["version"]
    named = {
        "worker": dict(zip((*WORKER, *TOTALS), sums[:-1].sum(0).tolist(), strict=False)),
        "server": dict(zip((*SERVER, *TOTALS), sums[-1].tolist(), strict=False)),
    }
    seconds = events["finished"]["elapsed_seconds"]
    return {
        "updates": updates,
        "seconds": seconds,
        "private_bytes": float(np.median(private)),
        **named,
    }


def _alone(folder: Path, sums: NDArray[np.float64], order: dict[str, Any]) -> dict[str, Any]:
    """Only gradients, in as many processes: the reference."""
    workers = int(order["workers"])
    each = int(order["updates"]) // workers
    begun = time.monotonic()
    children = [_fork(partial(_differentiate, folder, i, sums[i], each)) for i in range(workers)]
    for child in children:
        os.waitpid(child, 0)
    return {
        "updates": each * workers,
        "seconds": time.monotonic() - begun,
        "private_bytes": float(np.median(sums[:-1, -1])),
        "server_private_bytes": 0.0,
        "worker": dict(zip((*WORKER, *TOTALS), sums[:-1].sum(0).tolist(), strict=False)),
        "server": dict.fromkeys((*SERVER, *TOTALS), 0.0),
    }


def _differentiate(folder: Path, index: int, sums: NDArray[np.float64], count: int) -> int:
    from testbed.scenario.experiment import Experiment

    meter = Meter(sums, WORKER)
    experiment = Experiment.open(folder)
    made = experiment.worker(index)
    made.half.parameters[:] = experiment.network.initial(np.random.default_rng(0))
    bound, data = experiment.network.bind(made.half.parameters), experiment.data
    assert made.source is not None
    meter.total(-1)
    for _ in range(count):
        samples = made.source.take(made.stream.batch_size)
        begun = time.thread_time()
        bound.loss_and_gradient(*data.batch(samples))
        sums[0] += time.thread_time() - begun
    meter.total(1)
    sums[-1] = _private_bytes(os.getpid())
    return 0


def _serve(arguments: dict[str, str], sums: NDArray[np.float64], order: dict[str, Any]) -> int:
    from testbed.algorithms.frame.server import Server
    from testbed.roles import ps, servicer, training
    from testbed.roles.record import Record
    from testbed.scenario.experiment import Experiment
    from testbed.telemetry.event import Event
    from testbed.telemetry.events import EventLog
    from testbed.telemetry.ps_events import Finished, Started

    meter = Meter(sums, SERVER)
    if order["metered"]:
        meter.put(servicer, "decode_push", "decode")
        meter.put(Server, "check", "check")
        meter.put(training, "encode_delivery", "encode")
        meter.put(Record, "enter_all", "recording")
        opened = Experiment.server

        def metered_server(self: Experiment) -> Server:
            server = opened(self)
            meter.put(server.half, "push", "staleness and apply")
            meter.put(server.half, "pull", "pull")
            return server

        Experiment.server = metered_server  # type: ignore[method-assign]
    if not order["record"]:
        Record.enter_all = lambda self, applied: None  # type: ignore[method-assign]
    write = EventLog.write

    def watched(self: EventLog, event: Event) -> None:
        write(self, event)
        if isinstance(event, Started | Finished):
            meter.total(-1 if isinstance(event, Started) else 1)

    EventLog.write = watched  # type: ignore[method-assign]
    return ps.main(arguments)


def _work(arguments: dict[str, str], sums: NDArray[np.float64]) -> int:
    from testbed.roles import device, worker
    from testbed.scenario.experiment import Experiment

    meter = Meter(sums, WORKER)
    meter.put(device, "encode_push", "encode")
    meter.put(device, "decode_delivery", "decode")
    meter.put(device.Device, "_step", "gradient")
    opened, drive = Experiment.worker, worker.drive

    def metered_worker(self: Experiment, index: int, **named: Any) -> Any:
        made = opened(self, index, **named)
        meter.put(made.half, "step", "selection")
        meter.put(made.half, "receive", "copy")
        return made

    def watched(loop: Loop, device: Device, *, own: bool = False) -> None:
        meter.put(device.connection, "call", "client call", whole=True)
        meter.total(-1)
        drive(loop, device, own=own)
        meter.total(1)

    Experiment.worker = metered_worker  # type: ignore[method-assign]
    worker.drive = watched
    return worker.main(arguments)


def _fork(body: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = body()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def _take_environment() -> None:
    """Restart with the environment of a node of this package, unless it is set already."""
    from testbed.host.environment import agent_environment

    wanted = agent_environment({"PYTHONPATH": os.environ["PYTHONPATH"]})
    if dict(os.environ) != wanted:
        os.execve(sys.executable, [sys.executable, "-P", *sys.argv], wanted)


if __name__ == "__main__":
    _take_environment()
    main(json.loads(sys.argv[1]))
