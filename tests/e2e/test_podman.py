"""A run in Podman's containers from the command line, by its socket in DOCKER_HOST."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.lifecycle import find_containers
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow]

SCENARIO = """\
name: podded
seed: 1
runtime: docker
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 3
  classes:
    fast: {share: 0.67}
    slow: {share: 0.33, cpu: 0.5, memory: 256MiB}
stop: {updates: 150}
evaluate: {every: 50, images: 100}
faults:
  - freeze: {workers: [w0], at: {version: 30}, for: 500ms}
  - kill: {workers: [w2], at: {version: 60}}
"""


def test_a_run_with_faults_and_the_image_after_a_prune(
    bed: Any, podman: str, eventually: Any
) -> None:
    def run(*words: str) -> Any:
        return bed.run(*words, DOCKER_HOST=podman)

    file, name = bed.scenario("podded.yaml", SCENARIO), bed.new_name()
    up = bed.start("up", file, "--name", name, "--keep", DOCKER_HOST=podman)
    done = up.end()
    assert done.status in (0, 6), done  # a busy host may make the run invalid
    assert "150 updates applied" in done.out
    assert {fault.kind for fault in only(read_events(up.folder.events), FaultApplied)} == {
        "freeze",
        "kill",
    }

    assert run("exec", name, "w1", "--", "sh", "-c", "hostname; exit 7").status == 7
    rows = {row["node"]: row for row in json.loads(run("ps", name, "--json").out)}
    assert {"ps", "w0", "w1"} <= set(rows)
    assert run("down", name).status == 0
    with closing(connect(podman)) as engine:
        assert [one for one in find_containers(engine) if one.run == name] == []
    left = [line for line in bed.remains(name) if "conmon" not in line]  # Podman's, of the `exec`
    assert left == []

    image = run("image", "check").out.strip()
    shown = json.loads(run("image", "show", "--json").out)
    assert [one["name"] for one in shown if one["current"]] == [image]
    assert run("image", "prune").out == ""
    assert run("image", "check").out.strip() == image
    assert "Podman" in run("doctor", "--runtime", "docker").out
