"""The digits with Plump-DP, Quant-DP and Slim-DP: 200 rounds of four workers, as in the studies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import Run

DIGITS = Path(__file__).parents[2] / "scenarios" / "slim_dp" / "digits.yaml"
ROUNDS, WORKERS = 200, 4

N = 17_258
QUANTISED = N + 4 * 38
"""Tensors of 144, 16, 16,384, 64, 640 and 10 entries have 1, 1, 32, 1, 2 and 1 buckets of 512."""

CORE, EXPLORER = 2589, 2588
"""0.15 N is 2,588.7, and 0.3 N is 5,177.4, of which 5,177 - 2,589 are left."""

KNOWN = 8 + 4 * CORE + 8 * EXPLORER
NEW = KNOWN + 4 * CORE
OPTIONS = "learning_rate: 0.05, momentum: 0.9"


def in_fifties(first: int, others: int) -> list[int]:
    """Per round of one worker: a core is chosen in every fiftieth."""
    return ROUNDS // 50 * [first, *49 * [others]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "up", "down"),
    [
        (f"plump-dp: {{{OPTIONS}}}", ROUNDS * [4 * N], ROUNDS * [4 * N]),
        (f"quant-dp: {{{OPTIONS}}}", ROUNDS * [QUANTISED], [4 * N, *(ROUNDS - 1) * [QUANTISED]]),
        (f"slim-dp: {{{OPTIONS}}}", in_fifties(NEW, KNOWN), [4 * N, *in_fifties(NEW, KNOWN)[:-1]]),
    ],
    ids=["plump", "quant", "slim"],
)
def test_two_hundred_rounds(
    run_simulation: Callable[..., Run], algorithm: str, up: list[int], down: list[int]
) -> None:
    """Every byte matches the formulas, and all three learn the digits."""
    run = run_simulation(
        "digits",
        f"algorithm={{{algorithm}}}",
        f"stop={{updates: {ROUNDS * WORKERS}}}",
        text=DIGITS.read_text(encoding="utf-8"),
    )
    for worker in range(WORKERS):
        own = run.updates[run.updates["worker"] == worker]
        assert own["payload_up_bytes"].tolist() == up
        assert own["payload_down_bytes"].tolist() == down
    assert run.evaluations["top1"].iloc[-1] > 0.9
