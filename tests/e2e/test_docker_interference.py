"""What users do to the containers of a run with the engine's own commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

import testbed
from testbed.runtimes.docker.image import check_image
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.docker, pytest.mark.slow]

NODES = ("agent", "ps", "evaluator", "w0", "w1", "w2")
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


@pytest.mark.root
def test_a_parameter_server_is_restarted_in_its_container_and_after_it(
    bed: Any, engine: Any
) -> None:
    """Its process is killed, and later its container; the bytes of both links are counted once.

    A push that arrives after a kill reaches no socket: at most one of each worker. A reset has no
    time stamps, 12 bytes less than expected: at most one for each of two connections of a worker.
    """
    bed.scenario("docked.yaml", SCENARIO)
    sets = ("--set", "checkpoint.every=20", "--set", "stop.updates=160")
    up = bed.up(*sets, file="docked.yaml")
    up.wait_for(lambda: up.events().count("saved") >= 2)
    bed.kill_node(up, "ps")
    up.wait_for_event("restored")
    up.wait_for(lambda: up.events().count("saved") >= 5)
    engine.kill(f"testbed-{up.name}-ps")
    done = up.end()
    assert done.status == 6, done
    run = testbed.Run(up.folder.path)
    assert run.state.reason == "160 updates applied"
    assert run.summary["restarts"]["total"] == 2
    counted = run.summary["ingress"]
    excess = counted["wire_bytes"] - counted["reconciliation"]["expected_wire_bytes"]
    kills, workers = 2, 3
    most = kills * workers * 1.1 * run.updates["payload_up_bytes"].max()
    assert -12 * kills * workers * 2 <= excess < most
    ends = [one.how for one in only(read_events(up.folder.events), Exited) if one.restarted]
    assert ends == ["ps was ended by SIGKILL", "ps: its container was stopped or removed"]
    assert bed.remains(up.name) == []


def test_what_was_done_to_the_containers_of_workers_is_told(bed: Any, engine: Any) -> None:
    """In a run that is pinned to an image by its ID."""
    identity = engine.inspect_image(check_image(engine))["Id"]
    pinned = f'runtime: {{docker: {{image: "{identity}"}}}}'
    bed.scenario("docked.yaml", SCENARIO.replace("runtime: docker", pinned))
    up = bed.up(file="docked.yaml")
    up.wait_for_updates(20)
    images = {one: engine.inspect_container(f"testbed-{up.name}-{one}")["Image"] for one in NODES}
    assert images == dict.fromkeys(NODES, identity)
    assert json.loads(up.folder.environment.read_text())["images"] == {"nodes": identity}
    engine.restart(f"testbed-{up.name}-w0", timeout=1)
    engine.remove_container(f"testbed-{up.name}-w1", force=True)
    up.wait_for(lambda: up.events().count("exited") == 2)
    conditions = {name: row["condition"] for name, row in bed.nodes(up.name).items()}
    assert conditions == {
        **{"ps": "running", "evaluator": "running"},
        **{"w0": "ended", "w1": "ended", "w2": "running"},
    }
    assert engine.inspect_container(f"testbed-{up.name}-w0")["State"]["Running"]  # without a role
    assert bed.run("net", "set", up.name, "w2", "--up", "90mbit").status == 0
    up.wait_for_event("link_changed")
    engine.update_container(f"testbed-{up.name}-w2", cpu_quota=90_000)
    up.wait_for_event("limits_changed")
    assert bed.run("down", up.name).status == 0
    verdict = testbed.Run(up.folder.path).verdict
    assert (
        "The run was changed by hand: links (w2), limits of containers (w2). Its results are not "
        "of its scenario alone."
    ) in verdict.warnings
    assert list(verdict.reasons[1:3]) == [
        f"{node} was lost before the end: its container was stopped or removed. "
        "Run the scenario again, and do not stop or remove its containers."
        for node in ("w0", "w1")
    ]
