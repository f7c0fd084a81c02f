"""The dashboards without Docker: an installed Prometheus and a finished run."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow]

COMPOSE = Path(__file__).parents[2] / "compose"
DASHBOARDS = sorted((COMPOSE / "grafana" / "dashboards").glob("*.json"))

STREAMS = """\
name: streams
runtime: simulated
algorithm: scadles
model: digits-cnn
dataset: digits
streams: {rates: {uniform: {mean: 38, deviation: 10}}, policy: truncation}
workers: {count: 3, classes: {device: {speed: 200ms, link: {up: {rate: 20mbit}}}}}
stop: {time: 60s}
evaluate: {every: 10s, images: 50}
"""


NEEDS_LIVE = {
    **{f"testbed_{one}": "a kernel" for one in ("tcp", "wire", "retransmitted", "link_", "host_")},
    "testbed_container_": "containers",
    "testbed_server_": "a process of the parameter server's",
    "fault": "faults",
    "link_changes": "links that are changed",
}
"""Parts of the expressions that a simulated run has no data for, and what that takes."""


def test_an_installed_prometheus_shows_an_added_run(prometheus_at: Any, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "id", "mkdir", "head", "base64", "tr", "grep", "cp", "ln"):
        (tools / name).symlink_to(str(shutil.which(name)))
    for name in ("setsid", "sleep", "tail", "rm", "prometheus"):
        (tools / name).symlink_to(str(shutil.which(name)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **{"PATH": str(tools), "HOME": str(tmp_path)},
        **{"XDG_STATE_HOME": str(tmp_path), "TESTBED_PROMETHEUS_PORT": str(port)},
    }

    def call(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        own = {**environment, **variables}
        return subprocess.run(command, check=False, env=own, cwd=COMPOSE.parent, **pipes)

    def dashboards(verb: str) -> str:
        done = call(sys.executable, "-m", "testbed", "dashboards", verb)
        assert done.returncode == 0, done.stdout
        return done.stdout

    end = add_simulated(tmp_path, call)
    shown = dashboards("up")
    try:
        assert f"Prometheus: http://127.0.0.1:{port} (the installed one)" in shown
        assert "Grafana is missing" in shown
        server = prometheus_at(f"http://127.0.0.1:{port}")
        assert server.answers("/api/v1/rules")
        assert (tmp_path / "testbed" / "grafana-password").stat().st_mode & 0o77 == 0
        dashboards("up")  # idempotent
        window = {"start": str(end - 60), "end": str(end), "step": "5"}
        server.check_panels("streams", DASHBOARDS, NEEDS_LIVE, **window)
    finally:
        assert "ended Prometheus" in dashboards("down")
    assert "nothing of it runs" in dashboards("down")


def add_simulated(folder: Path, call: Callable[..., subprocess.CompletedProcess[str]]) -> float:
    """Make blocks of a simulated run with streams; returns its expected end time."""
    (folder / "streams.yaml").write_text(STREAMS)
    runs = str(folder / "runs")
    up = (sys.executable, "-m", "testbed", "up", str(folder / "streams.yaml"))
    done = call(*up, "--name", "streams", "--runs", runs)
    assert done.returncode == 0, done.stdout
    variables = ("RUN=streams", f"RUNS={runs}", f"VENV={sys.prefix}")
    installed = f"--old-file={sys.prefix}/.installed"
    make = ("make", installed, "blocks", *variables)
    path = {"PATH": os.environ["PATH"]}
    refused = call(*make, **path)
    assert refused.returncode == 2, refused.stdout
    assert not (folder / "testbed" / "prometheus").exists()
    (suggested,) = re.findall(r"testbed dashboards add RUN\.\.\. --at (\S+)", refused.stdout)
    made = call(*make, f"AT={suggested}", **path)
    assert made.returncode == 0, made.stdout
    return datetime.fromisoformat(suggested).timestamp()
