"""What users do to the containers of a run with the engine's own commands."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import testbed
from testbed.errors import HostError
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.image import check_image
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited, Launched
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SCENARIO = """\
name: docked
seed: 1
runtime: docker
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers: {count: 3, think: {mean: 20ms}}
stop: {updates: 100000000}
evaluate: {every: 50, images: 100}
"""


@pytest.fixture
def engine() -> Iterator[Any]:
    """An engine that has the image of nodes."""
    try:
        api = connect()
    except HostError as reason:
        pytest.skip(str(reason))
    with api:
        try:
            check_image(api)
        except HostError as reason:
            pytest.skip(str(reason))
        yield api


def launches(up: Any, node: str) -> list[int]:
    """The pids of a node's processes, first to last."""
    return [one.pid for one in only(read_events(up.folder.events), Launched) if one.node == node]


@pytest.mark.root
def test_a_parameter_server_is_restarted_in_its_container_and_after_it(
    bed: Any, engine: Any
) -> None:
    """Its process is killed, and later its container; all bytes of both links are counted once."""
    bed.scenario("docked.yaml", SCENARIO)
    ends = ("--set", "checkpoint.every=20", "--set", "stop.updates=160")
    up = bed.up(*ends, file="docked.yaml")
    up.wait_for(lambda: up.events().count("saved") >= 2)
    os.kill(launches(up, "ps")[0], signal.SIGKILL)
    up.wait_for_event("restored")
    up.wait_for(lambda: up.events().count("saved") >= 5)
    engine.kill(f"testbed-{up.name}-ps")
    done = up.end()
    assert done.status == 6, done
    run = testbed.Run(up.folder.path)
    assert run.state.reason == "160 updates applied"
    assert run.summary["restarts"]["total"] == 2
    assert run.summary["ingress"]["reconciliation"]["difference_ratio"] < 0.01
    ends = [one.how for one in only(read_events(up.folder.events), Exited) if one.restarted]
    assert ends == ["ps was ended by SIGKILL", "ps: its container was stopped or removed"]
    assert bed.remains(up.name) == []
