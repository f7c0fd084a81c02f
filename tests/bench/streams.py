"""The cost of streams through a broker, and which of ScaDLES's rates this machine sustains.

    python tests/bench/streams.py [--runtime native docker] [--seconds 10] [--no-rates]

Prints two tables, and JSON to benches/streams.json. Every line is made by `testbed up`: the paper's
CNN (211,690 parameters) on MNIST, a sample of which is a record of 3,182 bytes. Needs MNIST in
TESTBED_DATA, and for a broker Kafka, as docs/streams.md says; lines that need a missing broker are
skipped.

The first table has four devices at 100 samples a second, each of which makes a step a second: CPU
time of producer, broker and device for a record, and how many records a second one core would make
of it. What a device takes for its stream is what it takes beyond a device that has all samples at
hand and makes the same steps; its share of the step is that of the CPU time.

The second has sixteen devices, and for each set of table I the largest share of its rates, halved
until it holds, with which every device got 95 % of its samples, from the sixth second on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from watching import Progress, pids_of, spent, wait_until

import testbed
from testbed.datasets.streams.rates import CLIP, Table1
from testbed.errors import HostError
from testbed.host.kafka import find_kafka
from testbed.telemetry.host import PROC, describe_host
from testbed.values.seeds import stream

DEVICES, PER_SECOND = 4, 100
"""Of the first table: 400 records a second, which two cores hold."""

MANY_DEVICES = 16
SETS = ("S1", "S1'", "S2'", "S2")
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)
HOLDS = 0.95
WARM_UP_SECONDS = 5
RATE_SECONDS = 60
LIMIT_SECONDS = 600
MICRO = 1e6

STREAM = f"streams: {{rates: {{constant: {{per_second: {PER_SECOND}}}}}, transport: "
TRANSPORTS = {"none": "", "direct": f"{STREAM}direct}}", "kafka": f"{STREAM}kafka}}"}
COSTS = f"""
name: streams
algorithm: ddl
model: adacomp-cnn
dataset: mnist
workers: {{count: {DEVICES}, batch_size: {PER_SECOND}, classes: {{device: {{speed: 1s}}}}}}
stop: {{time: {LIMIT_SECONDS}s}}
evaluate: {{every: {LIMIT_SECONDS}s, images: 100}}
"""
RATES = f"""
name: rates
algorithm: {{scadles: {{min_batch: 1}}}}
model: adacomp-cnn
dataset: mnist
workers: {{count: {MANY_DEVICES}}}
streams:
  rates: {{each: {{per_second: %s}}}}
  clip: off
  policy: truncation
  transport: kafka
stop: {{time: {RATE_SECONDS}s}}
evaluate: {{every: {RATE_SECONDS}s, images: 100}}
"""


@dataclass
class Used:
    """CPU seconds by kind of node, steps and records, so far or within a time.

    Attributes:
        cpu: of ``producer``, ``broker`` and ``w``, each for all nodes of the kind.
        steps: of all devices.
        sent: records, by the producers' last reports.
        come: records that reached the devices by their last step.
    """

    cpu: Mapping[str, float]
    steps: int
    sent: int
    come: int


class Streamed(Progress):
    """Progress of a run, and the records that reached each device."""

    def __init__(self, spool: Path) -> None:
        super().__init__(spool)
        self.produced: dict[int, int] = {}

    def add(self, rows: Any) -> None:
        super().add(rows)
        self.produced |= zip(rows["worker"].tolist(), rows["stream_produced"].tolist(), strict=True)


@dataclass(frozen=True)
class Cost:
    """A line of the first table: microseconds of CPU time.

    Attributes:
        device: per record, beyond a device without a stream.
        step: of a device, in total.
        share: of a step, what its stream takes.
    """

    runtime: str
    transport: str
    producer: float
    broker: float
    device: float
    step: float
    share: float


def main(options: argparse.Namespace) -> None:
    """Measure, print, write."""
    document: dict[str, Any] = {
        "host": dict(describe_host(PROC)),
        "load_before": os.getloadavg(),
        "costs": [],
    }
    columns = (
        "producer us",
        "records/s",
        "broker us",
        "device us",
        "records/s",
        "step ms",
        "stream",
    )
    print(f"{'runtime':8}{'transport':10}", *(f"{name:>12}" for name in columns), sep="")
    for cost in costs(options.runtime, options.seconds):
        document["costs"].append(asdict(cost))
        print(f"{cost.runtime:8}{cost.transport:10}{cost.producer:12.0f}", end="")
        print(f"{MICRO / cost.producer:12.0f}{cost.broker:12.0f}{cost.device:12.0f}", end="")
        print(f"{MICRO / cost.device:12.0f}{cost.step / 1000:12.1f}{cost.share:12.1%}", flush=True)
    for runtime in options.runtime:
        if reason := lacks_broker(runtime):
            print(f"{runtime}: not measured with a broker. {reason}")
    if options.rates and not lacks_broker(options.runtime[0]):
        document["rates"] = dict(rates_that_hold(options.runtime[0]))
    target = Path("benches/streams.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n")


def lacks_broker(runtime: str) -> str:
    """Why no broker can be started natively; in Docker, `testbed up` reports it."""
    if runtime == "native":
        try:
            find_kafka(os.environ)
        except HostError as error:
            return str(error)
    return ""


def costs(runtimes: Sequence[str], seconds: float) -> Iterator[Cost]:
    """The lines of the first table."""
    for runtime in runtimes:
        without = used("none", runtime, seconds)
        bare = without.cpu["w"] / without.steps
        for transport in ("direct",) if lacks_broker(runtime) else ("direct", "kafka"):
            found = used(transport, runtime, seconds)
            step = found.cpu["w"] / found.steps
            yield Cost(
                runtime,
                transport,
                producer=MICRO * found.cpu["producer"] / found.sent,
                broker=MICRO * found.cpu["broker"] / found.sent,
                device=MICRO * (step - bare) * found.steps / found.come,
                step=MICRO * step,
                share=1 - bare / step,
            )


def used(transport: str, runtime: str, seconds: float) -> Used:
    """Resource usage of a run over this many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = command_of(Path(folder), COSTS + TRANSPORTS[transport], runtime)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as up:
            try:
                return observe(up, Path(folder) / "bench", seconds)
            finally:
                up.send_signal(signal.SIGINT)


def command_of(folder: Path, scenario: str, runtime: str) -> list[str]:
    """The command of a run ``bench`` in a folder."""
    file = folder / "bench.yaml"
    file.write_text(scenario)
    command = [sys.executable, "-m", "testbed", "up", str(file), "--runs", str(folder)]
    return [*command, "--name", "bench", "--runtime", runtime]


def observe(up: subprocess.Popen[bytes], run: Path, seconds: float) -> Used:
    """Usage between two times of the training, the first after some steps of it."""
    progress = Streamed(run / "ps/updates.bin")
    wait_until(lambda: progress.look().updates >= WARM_UP_SECONDS * DEVICES, up, every=0.1)
    begun = look(progress, run)
    time.sleep(seconds)  # the measured interval
    progress.look()
    ended = look(progress, run)
    kinds = ("producer", "broker", "w")
    cpu = {kind: ended.cpu.get(kind, 0.0) - begun.cpu.get(kind, 0.0) for kind in kinds}
    sent, come = ended.sent - begun.sent, ended.come - begun.come
    return Used(cpu, ended.steps - begun.steps, sent, come)


def look(progress: Streamed, run: Path) -> Used:
    """The usage so far."""
    cpu: dict[str, float] = defaultdict(float)
    for node, pid in pids_of(run).items():
        cpu[node.rstrip("0123456789")] += spent(pid)[0]
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    sent = {one["producer"]: one["sent"] for one in events if one["event"] == "produced"}
    return Used(cpu, progress.updates, sum(sent.values()), sum(progress.produced.values()))


def rates_that_hold(runtime: str) -> Iterator[tuple[str, Mapping[str, float]]]:
    """The lines of the second table, by set."""
    print(f"\n{'set':6}{'share':>8}{'asked/s':>9}{'worst device':>14}")
    for name in SETS:
        rng = stream(1, "streams", "rates")
        rates = Table1(name="table1", set=name).of(MANY_DEVICES, clip=CLIP, rng=rng)
        for share in SHARES:
            asked = [round(share * rate, 3) for rate in rates]
            worst = least_share(asked, runtime)
            print(f"{name:6}{share:8.4g}{sum(asked):9.0f}{worst:14.1%}", flush=True)
            if worst >= HOLDS:
                break
        yield name, {"share": share, "asked_per_second": sum(asked), "worst_device": worst}


def least_share(rates: Sequence[float], runtime: str) -> float:
    """For the device that got the fewest, the received share of the requested samples."""
    with tempfile.TemporaryDirectory() as folder:
        command = command_of(Path(folder), RATES % list(rates), runtime)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        updates = testbed.Run(Path(folder) / "bench").updates
    shares = []
    for device, rows in updates[updates["time_seconds"] >= WARM_UP_SECONDS].groupby("worker"):
        ends = rows[["time_seconds", "stream_produced"]].iloc[[0, -1]].to_numpy()
        seconds, samples = (ends[1] - ends[0]).tolist()
        shares.append(samples / seconds / rates[int(str(device))] if seconds else 0.0)
    return min(shares, default=0.0)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("--runtime", nargs="+", default=["native"])
    made.add_argument("--seconds", type=float, default=10.0)
    made.add_argument("--no-rates", dest="rates", action="store_false")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
