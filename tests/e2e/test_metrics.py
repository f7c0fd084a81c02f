"""A run of thirty workers with faults, as Prometheus sees it during the run and at its end."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

import testbed
from testbed.reports.metrics.declared import METRICS

pytestmark = [pytest.mark.root, pytest.mark.slow]

COMPOSE = Path(__file__).parents[2] / "compose"
DASHBOARDS = sorted((COMPOSE / "grafana" / "dashboards").glob("*.json"))

SCENARIO = """\
name: metrics
seed: 1
paced: false
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 30
  think: {mean: 300ms}
  classes:
    fast: {share: 0.5, memory: 1GiB, speed: 20ms, link: {up: {rate: 20mbit}, down: {rate: 50mbit}}}
    slow: {share: 0.5, speed: 60ms, link: {up: {rate: 5mbit}, down: {rate: 20mbit}}}
faults:
  - freeze: {workers: [w1], at: {time: 3s}, for: 2s}
  - kill: {workers: [w28], at: {time: 4s}}
stop: {time: 30s} # commands are given meanwhile, and take seconds on a busy host
evaluate: {every: 1s, images: 50}
"""

Point = tuple[str, tuple[tuple[str, str], ...]]


@dataclass
class Scraper:
    """Scrapes an exporter repeatedly until it no longer answers."""

    url: str
    last: str = ""
    count: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def scrape(self) -> bool:
        try:
            with urlopen(self.url, timeout=5) as answer:
                self.last = answer.read().decode()
        except (URLError, ConnectionError):
            return False
        self.count += 1
        return True

    def follow(self) -> None:
        while self.scrape():
            time.sleep(0.1)
        self.over.set()

    def points(self) -> dict[Point, float]:
        return {
            (one.name, tuple(sorted(one.labels.items()))): one.value
            for family in parse(self.last)
            for one in family.samples
        }

    def total(self, name: str, **labels: str) -> float:
        return sum(
            value
            for (found, pairs), value in self.points().items()
            if found == name and labels.items() <= dict(pairs).items()
        )


@contextmanager
def prometheus(at: Any, folder: Path, targets: Path, log: Path) -> Iterator[Any]:
    """A Prometheus that finds runs and evaluates rules every second; otherwise as shipped."""
    folder.mkdir()
    for name in ("prometheus.yml", "rules.yml"):
        text = (COMPOSE / "prometheus" / name).read_text()
        text = re.sub(r"((?:evaluation|refresh)_interval): 5s", r"\1: 1s", text)
        (folder / name).write_text(text)
    targets.mkdir(parents=True, exist_ok=True)
    (folder / "targets").symlink_to(targets)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml"]
    command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"]
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as process:
        try:
            server = at(f"http://{address}")
            deadline = time.monotonic() + 30
            while not server.answers("/-/ready"):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield server
        finally:
            process.terminate()


@dataclass
class Seen:
    """Observations of the run."""

    up: Any
    run: testbed.Run
    scraper: Scraper
    registered: list[Any]
    left: list[Path]  # still registered after its end
    prometheus: Any
    begin: float
    end: float
    alerts: set[str]


@pytest.fixture(scope="module")
def seen(
    shared_bed: Any, prometheus_at: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    bed, folder = shared_bed, tmp_path_factory.mktemp("prometheus")
    bed.scenario("metrics.yaml", SCENARIO)
    targets = bed.path / "state" / "testbed" / "metrics"
    with prometheus(prometheus_at, folder / "prometheus", targets, folder / "log") as server:
        begin = time.time()
        up = bed.up("--metrics", file="metrics.yaml")
        up.wait_for_event("started")
        scraper = Scraper(json.loads(up.folder.run_file.read_text())["metrics"])
        thread = threading.Thread(target=scraper.follow)
        thread.start()
        registered = [json.loads(path.read_text()) for path in targets.glob("*.json")]
        up.wait_for_updates(100)
        bed.kill_node(up, "w29")
        assert bed.run("net", "set", up.name, "w2", "--up", "10mbit").status == 0
        done = up.end()
        assert done.status in (0, 6), done.err
        thread.join()
        window = {"start": str(begin), "end": str(time.time()), "step": "1"}
        fired = server.ask("query_range", query='ALERTS{alertstate="firing"}', **window)
        alerts = {one["metric"]["alertname"] for one in fired}
        left = list(targets.glob("*.json"))
        run = testbed.Run(up.folder.path)
        yield Seen(up, run, scraper, registered, left, server, begin, time.time(), alerts)


def test_the_last_scrape_agrees_with_the_summary(seen: Seen) -> None:
    scraper, run = seen.scraper, seen.run
    summary = run.summary
    assert scraper.total("testbed_run_state", state=summary["state"]) == 1
    for name, updates in summary["updates"]["by_class"].items():
        assert scraper.total("testbed_updates_total", **{"class": name}) == updates
        assert scraper.total("testbed_staleness_updates_count", **{"class": name}) == updates
    assert scraper.total("testbed_worker_updates_total") == summary["updates"]["total"]
    payload = {"up": "ingress", "down": "egress"}
    for direction, key in payload.items():
        total = scraper.total("testbed_payload_bytes_total", direction=direction)
        assert total == summary[key]["payload_bytes"]
        wire = scraper.total("testbed_wire_bytes_total", direction=direction)
        assert wire == summary[key]["wire_bytes"]
    staleness = scraper.total("testbed_staleness_updates_sum")
    assert staleness == run.updates["staleness"].sum()
    assert staleness / summary["updates"]["total"] == pytest.approx(summary["staleness"]["mean"])
    assert scraper.total("testbed_rejected_total") == summary["updates"]["rejected"]
    assert scraper.total("testbed_late_steps_total") == summary["lateness"]["late_steps"]
    assert scraper.total("testbed_faults_total", fault="freeze") == summary["faults"]["freeze"] == 1
    assert scraper.total("testbed_workers", state="lost") == 1


def test_prometheus_sees_the_end_of_the_run(seen: Seen) -> None:
    """Its last sample of each counter is the final one, and the state is that of the summary."""
    summary, run = seen.run.summary, f'{{run="{seen.up.name}"}}[5m]'
    asked = {"query": f"last_over_time(testbed_run_state{run})", "time": str(seen.end)}
    states = [one["metric"]["state"] for one in seen.prometheus.ask("query", **asked)]
    assert summary["state"] in states, states
    asked["query"] = f"sum(last_over_time(testbed_updates_total{run}))"
    (updates,) = seen.prometheus.ask("query", **asked)
    assert float(updates["value"][1]) == summary["updates"]["total"]


def test_the_exporter_registers_and_unregisters(seen: Seen) -> None:
    ((entry,),) = seen.registered
    assert entry["targets"] == [re.sub("http://|/metrics", "", seen.scraper.url)]
    assert entry["labels"]["run"] == seen.up.name
    assert seen.left == []


def test_scrapes_are_small_and_well_formed(seen: Seen) -> None:
    assert seen.scraper.count > 20
    assert len(seen.scraper.points()) < 30 * 12 + 200
    names = {name for name, _ in seen.scraper.points()}
    known = {re.sub("_(bucket|sum|count)$", "", name) for name in names}
    # Only running nodes have memory; some kernels do not report the others, and this run has
    # no data streams.
    beside = {"testbed_host_cpu_pressure_ratio", "testbed_container_memory_bytes"}
    beside |= {"testbed_container_cpu_seconds_total"}
    beside |= {one.name for one in METRICS if one.name.startswith("testbed_stream_")}
    beside |= {f"testbed_link_{one}_round_trip_seconds" for one in ("configured", "probed")}
    assert {one.name for one in METRICS} - known <= beside
    lint = ["promtool", "check", "metrics"]
    text = seen.scraper.last
    checked = subprocess.run(lint, check=False, input=text, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_exactly_the_expected_alerts_fire(seen: Seen) -> None:
    assert "WorkerLost" in seen.alerts
    assert seen.alerts.isdisjoint({"RunStalled", "PushesRejected"})


def test_a_prometheus_accepts_the_exported_metrics(
    seen: Seen, shared_bed: Any, tmp_path: Path
) -> None:
    out, blocks = tmp_path / "run.txt", tmp_path / "blocks"
    done = shared_bed.run("export", "prometheus", seen.up.name, "--out", str(out))
    assert done.status == 0, done.err
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(out), str(blocks)]
    made = subprocess.run(make, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    metas = [json.loads(meta.read_text()) for meta in blocks.glob("*/meta.json")]
    samples = sum(1 for line in out.read_text().splitlines() if not line.startswith("#"))
    assert sum(meta["stats"]["numSamples"] for meta in metas) == samples > 1000


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_panel_has_data(seen: Seen, file: Path) -> None:
    window = {"start": str(seen.begin), "end": str(seen.end), "step": "1"}
    seen.prometheus.check_panels(seen.up.name, [file], NEEDS_MORE, **window)


NEEDS_MORE = {
    "testbed_host_cpu_pressure_ratio": "a kernel that tells of pressure",
    "configured_round_trip": "delays, for which a kernel needs netem",
    "probed_round_trip": "the same",
    "testbed_stream_": "data streams",
}
"""Parts of the expressions that the live run need not have data for, and what that takes."""
