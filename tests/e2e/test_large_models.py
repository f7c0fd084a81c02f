"""A model sent in chunks, in real containers: exact bytes and bounded memory."""

from __future__ import annotations

from typing import Any

import pytest

import testbed
from testbed.payloads.core_explorer import sizes

pytestmark = [pytest.mark.root, pytest.mark.slow]

LARGE = """\
name: large
seed: 1
algorithm: {slim-dp: {learning_rate: 0.01, alpha: 0.3, epsilon: 0.15}}
model: {mlp: {hidden: [3620, 3620]}}
dataset: digits
ps: {memory: 640MiB}
workers: {count: 4, classes: {default: {memory: 512MiB}}}
stop: {updates: 12}
evaluate: {every: 12, images: 10}
"""
"""Memory limits, enforced by the kernel: 12.5 models for the server, 10 for a worker."""

N = 65 * 3620 + 3621 * 3620 + 3621 * 10  # 13,379,530 parameters: 53.5 MB
HANGS = 300.0  # seconds; a busy host takes a minute


def test_four_workers_train_a_model_that_is_sent_in_chunks(bed: Any) -> None:
    """A worker holds model, gradient, sum and selection; the server K pushes and K replies."""
    bed.scenario("large.yaml", LARGE)
    up = bed.up(file="large.yaml")
    done = up.end(within=HANGS)
    assert done.status in (0, 6), done.err
    updates = testbed.Run(up.folder.path).updates
    core, explorer = sizes(N, 0.3, 0.15)
    sent = 8 + 4 * core + 8 * explorer
    assert updates["payload_up_bytes"].tolist() == 4 * [sent + 4 * core] + 8 * [sent]
    down = 4 * [4 * N] + 4 * [sent + 4 * core] + 4 * [sent]
    assert updates["payload_down_bytes"].tolist() == down
