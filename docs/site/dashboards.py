"""Pages that show the dashboards with data, for pictures: :func:`pages`.

A Prometheus scrapes two live runs, and has three simulated ones added. It evaluates the queries of
compose/grafana/dashboards, and panels/panels.jsx draws the answers with Grafana's own components
from npm, as Grafana's server is not a package.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
PANELS = Path(__file__).parent / "panels"
BUILD = ROOT / "build/panels"
TOOLS = {"npm": "npm", "node": "nodejs", "prometheus": "prometheus", "promtool": "prometheus"}
"""What is called, and Debian's package that has it."""

LIVE = {
    "faults": ("faults",),
    "streams": ("scadles/devices", "--runtime", "native", "--workers", "8"),
}
"""Live runs, by name."""

COMPARED = {
    "adacomp-1": "{adacomp: {ratio: 0.1}}",
    "asgd-1": "{asgd: {learning_rate: 0.1}}",
    "fedavg-1": "fedavg",
}
"""Simulated runs of the quickstart, and their algorithms."""

SHOWN = {
    "run": "faults",
    "devices": "streams",
    "network": "faults",
    "faults": "faults",
    "compare": "|".join(COMPARED),
}
"""The runs that a dashboard shows."""

WIDTH = 1400
ROW = 38
"""Pixels: of a page, and of a row of Grafana's grid."""

STEP = 5
"""Seconds between the points of a curve: as often as Prometheus scrapes."""

BEFORE_END = 10
"""Seconds before the end of a run at which it is shown."""

PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="panels.css">
<body><div id="dashboard"></div><script>window.page = {}</script><script src="panels.js"></script>
"""

Testbed = Callable[..., str]


@dataclass(frozen=True)
class DrawnPage:
    """A file to take a picture of, and the picture's name and size in pixels."""

    file: Path
    name: str
    shade: str
    size: tuple[int, int]


def missing_packages() -> set[str]:
    """Debian's packages that have to be installed."""
    return {package for tool, package in TOOLS.items() if shutil.which(tool) is None}


def pages(testbed: Testbed, folder: Path, shades: Sequence[str]) -> Iterator[DrawnPage]:
    """Run what is shown, and write a page of each dashboard in each shade.

    Args:
        testbed: calls a command in ``folder``, with its state in ``folder/state``.
        folder: of the runs.
        shades: light and dark.
    """
    build()
    with prometheus(folder, simulated(testbed, folder)) as ask:
        for name, arguments in LIVE.items():
            try:
                testbed("up", *arguments, "--name", name, "--metrics", folder=folder)
            except subprocess.CalledProcessError as error:
                sys.exit(f"{name}: exit code {error.returncode}; 6 means: wait for a quieter host")
        for file in sorted((COMPOSE / "grafana/dashboards").glob("*.json")):
            dashboard = json.loads(file.read_text(encoding="utf-8"))
            places = [panel["gridPos"] for panel in dashboard["panels"]]
            height = ROW * max(place["y"] + place["h"] for place in places) + 8
            content = answered(dashboard, f"({SHOWN[file.stem]})", ask)
            for shade in shades:
                page = BUILD / f"out/{file.stem}-{shade}.html"
                text = json.dumps(content | {"shade": shade, "width": WIDTH})
                page.write_text(PAGE.format(text.replace("</", "<\\/")), encoding="utf-8")
                yield DrawnPage(page, f"dashboard-{file.stem}-{shade}", shade, (WIDTH, height))


def build() -> None:
    """Install Grafana's components into the folder ``build``, and bundle the program."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "panels.jsx"):
        shutil.copy(PANELS / name, BUILD)
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    subprocess.run(("npm", "install", *quiet), cwd=BUILD, check=True)
    subprocess.run(
        ("npm", "run", "--silent", "build", "--", "--log-level=error"), cwd=BUILD, check=True
    )


def simulated(testbed: Testbed, folder: Path) -> Path:
    """Simulate runs to compare, and export them as if they had ended four hours ago."""
    for name, algorithm in COMPARED.items():
        chosen = ("--set", f"algorithm={algorithm}", "--set", "stop={time: 100s}")
        testbed(
            "up", "quickstart", "--runtime", "simulated", "--name", name, *chosen, folder=folder
        )
    ended = datetime.now() - timedelta(hours=4)
    at = ended.strftime("%Y-%m-%dT%H:%M")
    testbed("export", "prometheus", *COMPARED, "--at", at, "--out", "runs.txt", folder=folder)
    return folder / "runs.txt"


@contextmanager
def prometheus(folder: Path, exported: Path) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Start Prometheus with exported runs; yields what answers its requests."""
    config, stored = folder / "prometheus", folder / "prometheus/data"
    targets = folder / "state/testbed/metrics"
    shutil.copytree(COMPOSE / "prometheus", config)
    targets.mkdir(parents=True, exist_ok=True)
    (config / "targets").symlink_to(targets)
    blocks = ("promtool", "tsdb", "create-blocks-from", "openmetrics", exported, stored)
    subprocess.run(blocks, check=True, stdout=subprocess.DEVNULL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    files = (f"--config.file={config}/prometheus.yml", f"--storage.tsdb.path={stored}")
    command = ("prometheus", *files, f"--web.listen-address={address}")

    def ask(what: str, **parameters: object) -> list[dict[str, Any]]:
        with urlopen(f"http://{address}/api/v1/{what}?{urlencode(parameters)}") as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            if not any("ready to receive" in line for line in process.stderr):
                raise RuntimeError(f"Prometheus has ended: {command}")
            yield ask
        finally:
            process.terminate()


def answered(dashboard: dict[str, Any], runs: str, ask: Callable[..., Any]) -> dict[str, Any]:
    """The dashboard, and the answers to its queries during the training of the runs."""
    start, end = training(runs, ask)
    window = {"start": start, "end": end, "step": STEP}

    def series(query: Mapping[str, Any]) -> list[dict[str, Any]]:
        last = window | {"start": end} if query.get("instant") else window
        return ask("query_range", query=expanded(query["expr"], runs), **last)  # type: ignore[no-any-return]

    answers = [
        [
            curve(query["legendFormat"], one)
            for query in panel.get("targets", ())
            for one in series(query)
        ]
        for panel in dashboard["panels"]
    ]
    marks = [
        {"time": 1000 * time, "color": note["iconColor"]}
        for note in dashboard["annotations"]["list"]
        for one in series(note)
        for time, _ in one["values"]
    ]
    shown = {"start": 1000 * start, "end": 1000 * end, "step": 1000 * STEP}
    return {"dashboard": dashboard, "answers": answers, "marks": marks} | shown


def training(runs: str, ask: Callable[..., Any]) -> tuple[float, float]:
    """When the runs began to train, and a whole number of steps later, a moment before the end."""
    now = datetime.now().timestamp()
    query = f'timestamp(testbed_run_state{{run=~"{runs}", state="training"}})'
    found = ask("query_range", query=query, start=now - 6 * 3600, end=now, step=STEP)
    times = [float(sampled) for one in found for _, sampled in one["values"]]
    start = min(times)
    return start, start + (max(times) - BEFORE_END - start) // STEP * STEP


def expanded(expression: str, runs: str) -> str:
    """The expression with Grafana's variables replaced, as Grafana does it for these scrapes."""
    variables = {"run": runs, "class": ".*", "worker": ".*"}
    variables |= {"__interval": f"{STEP}s", "__rate_interval": f"{4 * STEP}s"}
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expression)


def curve(legend: str, series: Mapping[str, Any]) -> dict[str, Any]:
    """A series by its name, its times in milliseconds."""
    labels = series["metric"]
    return {
        "name": re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend).strip(),
        "times": [1000 * time for time, _ in series["values"]],
        "values": [None if value == "NaN" else float(value) for _, value in series["values"]],
    }
