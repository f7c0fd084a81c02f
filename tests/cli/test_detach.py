"""Detached runs train, end like attached ones, and never stay forever."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import Any
from urllib.request import urlopen

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]
ENDED = (0, 6)
LONGER = ("--set", "stop.updates=600")
"""Six seconds, in which the first commands are given."""


def test_a_detached_run_ends_as_an_attached_one(bed: Any, name: str) -> None:
    up = bed("up", bed.scenario, "--detach", "--name", name, *LONGER)
    assert f"testbed wait {name}" in up.stdout
    assert bed.state(name) == "training"
    assert "is still running" in bed("wait", name, "--timeout", "0", status=124).stderr
    assert bed("wait", name, status=ENDED).returncode == bed.verdict(name)
    folder = bed.runs / name
    assert bed.state(name) == "finished"
    assert (folder / "accuracy-ingress.png").exists()
    assert "600 updates applied" in (folder / "logs" / "controller.log").read_text()
    assert bed.leftovers(name) == []
    bed("wait", name, status=bed.verdict(name))  # of an ended run


def test_an_error_during_the_start_is_reported_by_the_command(bed: Any, name: str) -> None:
    little = "workers.classes.fast.memory=3MB"
    up = bed("up", bed.scenario, "--detach", "--name", name, "--set", little, status=5)
    assert re.match("w[0-9] ran out of memory", up.stderr)  # all do, one is the first
    bed("wait", name, status=5)
    assert bed.leftovers(name) == []


def test_an_error_before_the_run_exists(bed: Any, name: str) -> None:
    wrong = ("--set", "workers.count=none")
    assert "workers.count" in bed("up", bed.scenario, "--detach", *wrong, status=2).stderr
    assert "no run named" in bed("wait", name, status=7).stderr


def test_a_signal_during_the_start_is_forwarded(bed: Any, name: str) -> None:
    up = bed.start("up", bed.scenario, "--detach", "--name", name)
    bed.wait_until((bed.runs / name / "control" / "agent.pid").exists)
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=60)
    assert up.returncode == 130
    bed("wait", name, status=130)
    assert bed.leftovers(name) == []


def test_a_run_without_its_controller_trains_to_the_end(bed: Any, name: str) -> None:
    up = bed("up", bed.scenario, "--detach", "--name", name, *LONGER, "--metrics")
    url = json.loads((bed.runs / name / "run.json").read_text())["metrics"]
    assert f"metrics: {url}\n" in up.stderr
    with urlopen(url) as answer:
        assert f'testbed_version{{algorithm="asgd",run="{name}"}}'.encode() in answer.read()
    os.kill(bed.controller(name), signal.SIGKILL)
    (registered,) = (bed.folder / "state" / "testbed" / "metrics").iterdir()
    assert "testbed report" in bed("wait", name, status=6).stderr
    assert not registered.exists()  # the controller died before it could remove it
    assert bed.leftovers(name) == []
    report = json.loads(bed("report", name, "--json").stdout)
    assert report["updates"]["total"] == 600
    assert "controller died" in report["verdict"]["reasons"][0]


def test_down_reports_finished_for_a_run_that_ended_without_its_controller(
    bed: Any, name: str
) -> None:
    bed("up", bed.scenario, "--detach", "--name", name, *LONGER)
    os.kill(bed.controller(name), signal.SIGKILL)
    bed("wait", name, status=6)
    assert bed.state(name) == "training"
    assert bed("down", name).stdout == f"{name}: stopped\n"
    assert bed.state(name) == "finished"
    bed("wait", name, status=6)
    report = json.loads(bed("report", name, "--json").stdout)
    assert (report["reason"], report["updates"]["total"]) == ("600 updates applied", 600)
    assert "after its controller had died" in report["verdict"]["reasons"][0]


@pytest.mark.parametrize("role", ["ps", "w"])
def test_a_run_without_its_controller_ends_with_its_nodes(bed: Any, name: str, role: str) -> None:
    bed("up", bed.scenario, "--detach", "--name", name, "--set", "stop.updates=100000")
    os.kill(bed.controller(name), signal.SIGKILL)
    nodes = json.loads(bed("ps", name, "--json").stdout)
    for node in nodes:
        if node["node"].startswith(role):
            os.kill(node["pid"], signal.SIGKILL)
    assert "was killed" in bed("wait", name, status=5).stderr
    assert bed.leftovers(name) == []


def test_terminating_the_controller_ends_the_run(bed: Any, name: str) -> None:
    bed("up", bed.scenario, "--detach", "--name", name, "--set", "stop.updates=100000")
    os.kill(bed.controller(name), signal.SIGTERM)
    bed("wait", name, status=130)
    assert bed.state(name) == "interrupted"
    assert bed.leftovers(name) == []


def test_down_ends_a_detached_run(bed: Any, name: str) -> None:
    bed("up", bed.scenario, "--detach", "--name", name, "--set", "stop.updates=100000")
    bed("down", name)
    assert (bed.runs / name / "summary.json").exists()
    bed("wait", name, status=130)
    assert bed.leftovers(name) == []


def test_kept_containers_can_be_inspected(bed: Any, name: str) -> None:
    up = bed("up", bed.scenario, "--keep", "--name", name, status=ENDED)
    assert f"testbed down {name}" in up.stdout
    assert "kept" in bed("ps", "--json").stdout
    bed("wait", name, status=up.returncode)
    command = bed.words("exec", name, "w0", "--", "cat")
    given = {"env": bed.environment, "input": b"hello", "timeout": 60}
    assert subprocess.run(command, check=True, capture_output=True, **given).stdout == b"hello"
    looked = bed("exec", name, "w1", "--", "sh", "-c", "hostname; id -u; cat /proc/self/status")
    assert looked.stdout.splitlines()[:2] == ["w1", "20011"]
    assert "CapEff:\t0000000000000000" in looked.stdout
    bed("exec", name, "w1", "--", "sh", "-c", "exit 17", status=17)
    assert "w0 to w1" in bed("exec", name, "w2", "--", "true", status=2).stderr
    bed("down", name)
    assert "ended" in bed("exec", name, "w0", "--", "true", status=5).stderr
    assert bed.state(name) == "finished"
    assert bed.leftovers(name) == []


def test_a_failed_run_is_kept_too(bed: Any, name: str) -> None:
    little = "workers.classes.fast.memory=3MB"
    up = bed("up", bed.scenario, "--keep", "--name", name, "--set", little, status=5)
    assert "kept" in up.stdout
    assert bed("exec", name, "ps", "--", "hostname").stdout == "ps\n"
    bed("down", name)
    assert bed.leftovers(name) == []
