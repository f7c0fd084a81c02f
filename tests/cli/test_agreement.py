"""One scenario live and simulated: they differ by no more than docs/simulation.md says."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]

SCENARIO = """
name: twenty
seed: 5
algorithm: {adacomp: {ratio: 0.1, learning_rate: 0.02}} # at 0.1 the loss jumps
model: digits-cnn
dataset: digits
ps: {link: {up: {rate: 50mbit, queue: 200ms}, down: {rate: 50mbit, queue: 200ms}}}
workers:
  count: 20
  think: {law: "uniform(0.5,1.5)", mean: 200ms}
  classes:
    fast: {share: 0.3, speed: 40ms, link: {up: {rate: 10mbit}, down: {rate: 40mbit}}}
    medium: {share: 0.4, speed: 100ms, link: {up: {rate: 4mbit}, down: {rate: 16mbit}}}
    slow: {share: 0.3, speed: 400ms, link: {up: {rate: 1mbit}, down: {rate: 4mbit, queue: 400ms}}}
stop: {updates: 1500}
evaluate: {every: 250, images: 200}
"""

TOLERANCES = {
    "final accuracy, all test samples": 0.1,  # 360 images
    "best accuracy during training": 0.1,
    "final loss, all test samples": 0.5,
    "ingress": 0.01,
    "egress": 0.01,
    "payload of a push (bytes, mean)": 0.01,  # zeros are not sent
    "payload of a pull (bytes, mean)": 0.0,
    "staleness (updates, mean)": 0.01,
    "step scale (mean)": 0.25,  # the touched entries depend on the whole training
    "1/max(1, staleness) (mean)": 0.05,
    "share of class fast": 0.03,
    "share of class medium": 0.03,
    "share of class slow": 0.03,
    "distribution of staleness": 0.06,
    "time between updates (s, mean)": 0.05,
}


def test_live_and_simulated_runs_agree(bed: Any, name: str) -> None:
    bed.scenario.write_text(SCENARIO)
    live, virtual = f"{name}-live", f"{name}-virtual"
    bed("up", bed.scenario, "--name", live, status=(0, 6), timeout=180.0)
    verdict = json.loads(bed("report", live, "--json").stdout)["verdict"]
    if not verdict["valid"]:
        pytest.skip(f"the host could not keep the live run's pace: {'; '.join(verdict['reasons'])}")
    bed("up", bed.scenario, "--name", virtual, "--runtime", "simulated", timeout=180.0)
    done = bed("compare", live, virtual, "--json", "--tolerance", "1")
    found = json.loads(done.stdout)
    assert found["scenario"].keys() == {
        "runtime.name",
        "runtime.device",
        "runtime.pool.name",
        "runtime.vmap",
    }  # of gradients
    differences = {one["measure"]: one["ratio"] for one in found["measures"]}
    assert differences.keys() == TOLERANCES.keys()
    beyond = {name: ratio for name, ratio in differences.items() if ratio > TOLERANCES[name]}
    assert beyond == {}
