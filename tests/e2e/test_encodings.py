"""A live run with packed pushes and with a law for each class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import testbed
from testbed.values.laws import Law
from testbed.values.seeds import stream

pytestmark = [pytest.mark.root, pytest.mark.slow]

SCENARIO = """\
name: tiny
seed: 1
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
encoding: packed16
workers:
  count: 3
  think: {law: constant, mean: 1ms}
  classes:
    fast: {count: 2}
    slow:
      count: 1
      speed: {law: "lognormal(1,0.5)", mean: 20ms}
      think: {law: "uniform(0.5,1.5)", mean: 30ms}
stop: {updates: 150}
evaluate: {every: 50, images: 100}
paced: false
"""


def test_packed_pushes_and_laws_per_class(bed: Any) -> None:
    bed.scenario("packed.yaml", SCENARIO)
    up = bed.up(file="packed.yaml")
    up.end()
    run = testbed.Run(up.folder.path)
    summary, updates = run.summary, run.updates
    assert (summary["state"], summary["updates"]["total"]) == ("finished", 150)
    assert summary["think_by_class"] == {"slow": {"law": "uniform(0.5,1.5)", "mean_seconds": 0.03}}

    # Raw, an entry takes 8 bytes; packed16 at most 6 and the planes' lengths.
    assert (updates["payload_up_bytes"] < 6 * updates["entries"]).all()
    assert (updates["pickle9_bytes"] == 12 * updates["entries"]).all()
    assert summary["encoding"]["name"] == "packed16"
    assert summary["ingress"]["payload_bytes"] == updates["payload_up_bytes"].sum()
    assert summary["ingress"]["tcp_bytes"] > summary["ingress"]["payload_bytes"]
    assert summary["accuracy"]["final"] > 0.2

    slow = updates[updates["worker"] == 2]
    steps, waits = stream(1, "w2", "speed"), stream(1, "w2", "think")
    drawn = [0.02 * Law("lognormal", 1, 0.5).draw(steps) for _ in slow.index]
    thought = [0.03 * Law("uniform", 0.5, 1.5).draw(waits) for _ in slow.index]
    assert (slow["compute_seconds"] >= np.array(drawn) * 0.9999).all()
    asked = slow["think_seconds"] - slow["overslept_seconds"]
    assert asked.tolist() == pytest.approx(thought, rel=1e-3)
