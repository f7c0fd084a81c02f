"""The maximum message size of a role, by scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.roles.arguments import limits
from testbed.scenario import load
from testbed.scenario.experiment import Experiment

SHARES = """
from testbed.algorithms.bsp import Bsp

class Sharing(Bsp):
    def most_shared(self, batch_size):
        return 2 * batch_size
"""
SCENARIO = """
name: limits
algorithm: {algorithm}
model: digits-cnn
dataset: digits
workers: {{count: 2, batch_size: 10}}
stop: {{updates: 10}}
"""
DIGIT_BYTES = 4 * 8 * 8 + 8 + 8
"""Pixels in float32, a label, a number."""


def longest(algorithm: str, folder: Path) -> int:
    """The longest message with this algorithm."""
    run = folder / algorithm[:4]
    (run / "custom").mkdir(parents=True)
    (run / "custom" / "mine.py").write_text(SHARES, encoding="utf-8")
    file = run / "scenario.yaml"
    file.write_text(SCENARIO.format(algorithm=algorithm), encoding="utf-8")
    scenario = load(file, custom_files=run / "custom")
    data = scenario.dataset.prepare(folder / "cache", environment={}, folder=run)
    return limits(Experiment.open(run, data=data)).message_bytes


@pytest.mark.parametrize(
    ("algorithm", "samples"),
    [
        ("bsp", 0),
        ("{scadles: {alpha: 0.5, beta: 0.25, max_batch: 50}}", 12),  # floor(.25 * 50)
        ("{custom: {file: mine.py, class: Sharing}}", 20),  # twice 10
    ],
)
def test_the_message_limit_allows_for_shared_samples(
    algorithm: str, samples: int, tmp_path: Path
) -> None:
    assert longest(algorithm, tmp_path) - longest("tap", tmp_path) == samples * DIGIT_BYTES
