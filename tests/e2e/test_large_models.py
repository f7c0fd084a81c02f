"""A model that is sent in pieces, in real containers: every byte, and memory that is bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.compress.core_explorer import sizes

pytestmark = [pytest.mark.root, pytest.mark.slow]

LARGE = """\
name: large
seed: 1
algorithm: {slim-dp: {learning_rate: 0.01, alpha: 0.3, epsilon: 0.15}}
model: {mlp: {hidden: [3620, 3620]}}
dataset: digits
workers: {count: 4}
stop: {updates: 12}
evaluate: {every: 12, images: 10}
"""
N = 65 * 3620 + 3621 * 3620 + 3621 * 10  # 13,379,530 parameters: 53.5 MB


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])


def test_four_workers_train_a_model_that_is_sent_in_pieces(bed: Any) -> None:
    """A worker has its model, gradient, sum and what it selects; the server K pushes, K replies."""
    bed.scenario("large.yaml", LARGE)
    up = bed.up(file="large.yaml")
    up.wait_for_updates(8)  # two rounds: each has had its pushes and replies at once
    peaks = {node: peak_bytes(row["pid"]) for node, row in bed.nodes(up.name).items()}
    done = up.end()
    assert done.status in (0, 6), done.err
    updates = testbed.Run(up.folder.path).updates
    core, explorer = sizes(N, 0.3, 0.15)
    sent = 8 + 4 * core + 8 * explorer
    assert updates["payload_up_bytes"].tolist() == 4 * [sent + 4 * core] + 8 * [sent]
    down = 4 * [4 * N] + 4 * [sent + 4 * core] + 4 * [sent]
    assert updates["payload_down_bytes"].tolist() == down
    assert peaks["ps"] < 400e6 + 20 * 4 * N
    assert peaks["w0"] < 400e6 + 12 * 4 * N
