"""scenarios/ddp: what the slowest link does to an all-reduce, in a ring and in a tree, by hand."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from marks import in_docker_nightly

pytestmark = [pytest.mark.slow, pytest.mark.alone]
DDP = Path(__file__).parents[2] / "scenarios" / "ddp"
VERDICT = 6
MESSAGE_SECONDS = 1.2e6 * 8 * 1514 / 1448 / 10e6
"""1.2 MB of gradients over the slow link, of 10 mbit/s; the others have four times its rate."""


def run(bed: Any, file: str, runtime: str) -> tuple[list[float], dict[str, Any]]:
    """Run an example; return the times of its steps but the first, and the slow rank's counters."""
    for source in DDP.iterdir():
        shutil.copy(source, bed.path)
    named = []
    if runtime == "native":
        options = [f"workload.{one}.python={sys.prefix}" for one in ("store", "rank")]
        named = [word for option in options for word in ("--set", option)]
    up = bed.up("--runtime", runtime, *named, file=file)
    done = up.end(within=300.0)
    assert done.status in {0, VERDICT}, done.err
    log = up.folder.log("rank2").read_text()
    losses = [float(found) for found in re.findall(r"loss=([\d.]+)", log)]
    assert losses[-1] < losses[0]
    seconds = [
        float(found) for found in re.findall(r"(?:step|round) [1-5] .*seconds=([\d.]+)", log)
    ]
    assert len(seconds) == 5
    return seconds, json.loads(up.folder.summary.read_text())["nodes"]["rank2"]


def check_bytes(slow: dict[str, Any], payload: float) -> None:
    """Compare the sent bytes: frames of this payload, and acknowledgements of as much."""
    by_hand = payload * 1514 / 1448 + payload / 1448 / 2 * 66
    assert abs(slow["up_bytes"] - slow["retransmitted_bytes"] - by_hand) < 0.02 * by_hand


@in_docker_nightly
def test_gloo_averages_gradients_as_fast_as_the_slowest_link(bed: Any, runtime: str) -> None:
    """A ring of n sends 2 (n - 1) / n of the gradients: 1.34 s a step, and 10.25 MB in six."""
    seconds, slow = run(bed, "ddp.yaml", runtime)
    assert statistics.median(seconds) >= 0.95 * 4 / 3 * MESSAGE_SECONDS  # the link permits no less
    check_bytes(slow, 6 * 4 / 3 * 1.2e6)


@pytest.mark.root
@pytest.mark.nightly
def test_a_tree_waits_for_the_slow_leaf_and_then_for_the_root(bed: Any) -> None:
    """1.00 s towards the root, and two messages back over its link of 40 mbit/s, 0.50 s."""
    seconds, slow = run(bed, "tree.yaml", "native")
    assert statistics.median(seconds) >= 0.95 * (1 + 2 / 4) * MESSAGE_SECONDS
    check_bytes(slow, 6 * 1.2e6)


@pytest.mark.root
@pytest.mark.nightly
def test_local_steps_are_exchanged_like_one_step(bed: Any) -> None:
    """Six exchanges of 20 local steps each: the bytes of six steps of DDP."""
    seconds, slow = run(bed, "diloco.yaml", "native")
    assert statistics.median(seconds) >= 0.95 * 4 / 3 * MESSAGE_SECONDS
    check_bytes(slow, 6 * 4 / 3 * 1.2e6)
