"""The cost of metrics: time and samples of a scrape, and their share of the run's CPU time.

    python tests/bench/metrics.py --workers 200

One live run is scraped twenty times while it trains, and then every five seconds to its end. The
exit status is 1 if one of the three is over its bound.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families as parse

SCRAPES = 20
EVERY_SECONDS = 5.0
MOST_SECONDS = 0.1
"""That a scrape takes, the median."""

MOST_SAMPLES = 6000
MOST_SHARE = 0.01
"""Of the run's CPU time."""

SCENARIO = """\
name: metrics
algorithm: {{adacomp: {{ratio: 0.1}}}}
model: digits-cnn
dataset: digits
workers:
  count: {workers}
  think: {{mean: {think}s}}
  classes: {{fast: {{share: 0.5, speed: 20ms}}, slow: {{share: 0.5, speed: 60ms}}}}
stop: {{time: {seconds}s}}
evaluate: {{every: 10s, images: 200}}
"""


def scrape(url: str) -> str:
    with urlopen(url) as answer:
        text: str = answer.read().decode()
    return text


def value(text: str, name: str) -> float:
    return sum(one.value for family in parse(text) for one in family.samples if one.name == name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=60)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder), workers=asked.workers, seconds=asked.seconds)


def measure(folder: Path, *, workers: int, seconds: int) -> int:
    """Execute the run and print; returns the exit status of a run that does not train, or 1."""
    scenario = SCENARIO.format(workers=workers, think=workers / 100, seconds=seconds)
    (folder / "metrics.yaml").write_text(scenario)
    command = [sys.executable, "-m", "testbed", "up", "metrics.yaml", "--name", "metrics"]
    with subprocess.Popen([*command, "--metrics"], cwd=folder, stdout=subprocess.DEVNULL) as run:
        record = folder / "runs" / "metrics"
        while '"event": "started"' not in _text(record / "events.jsonl"):
            if run.poll() is not None:
                return run.returncode
            time.sleep(0.1)
        url = json.loads((record / "run.json").read_text())["metrics"]
        taken = [_timed(url) for _ in range(SCRAPES)]
        before, first = used(run.pid), scrape(url)
        last, after = follow(url, run.pid)
    samples = sum(1 for family in parse(last) for _ in family.samples)
    median = statistics.median(taken)
    own, run_seconds = spent(last) - spent(first), after - before
    share = own / run_seconds
    print(f"{workers} workers: {samples:,} samples a scrape (at most {MOST_SAMPLES:,})")
    print(f"a scrape takes {median * 1e3:.1f} ms, the median of {SCRAPES} (at most 100 ms)")
    print(
        f"scraped every {EVERY_SECONDS:g} s: {share:.2%} of the run's CPU time (at most 1 %), "
        f"{own:.2f} s of {run_seconds:.1f} s"
    )
    return int(samples >= MOST_SAMPLES or median >= MOST_SECONDS or share > MOST_SHARE)


def _timed(url: str) -> float:
    start = time.perf_counter()
    scrape(url)
    seconds = time.perf_counter() - start
    time.sleep(0.5)
    return seconds


def follow(url: str, controller: int) -> tuple[str, float]:
    """Scrape every few seconds until the training is nearly over; returns the last scrape.

    And the CPU seconds that the run had used by then.
    """
    last = scrape(url)
    while value(last, "testbed_progress_ratio") < 0.9:
        time.sleep(EVERY_SECONDS)
        last = scrape(url)
    return last, used(controller)


def spent(text: str) -> float:
    """CPU seconds of the metrics."""
    return value(text, "testbed_exporter_cpu_seconds_total")


def used(controller: int) -> float:
    """CPU seconds of the controller and of all processes in the run's control groups."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) == controller or "/testbed/metrics" in _text(process / "cgroup"):
                fields = _text(process / "stat").rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])  # utime and stime
        except (OSError, IndexError):  # it has just ended
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
