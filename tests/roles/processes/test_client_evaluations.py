"""Workers that evaluate, with the roles as processes and simulated: the same results."""

from __future__ import annotations

from typing import Any

import pytest

Make = Any


@pytest.mark.parametrize("options", ["", ", fine_tune: {learning_rate: 0.05}"])
def test_workers_evaluate_live_and_simulated(
    make: Make, play_both: Any, simulated: Any, options: str
) -> None:
    """Two of three workers in each round; a float64 in addition to the 17,258 parameters."""
    metric = f"{{clients: {{by: workers{options}}}}}"
    parts = {
        "algorithm": "{name: fedavg, learning_rate: 0.1, fraction: 0.67}",
        "dataset": "{name: digits, held_out: 0.2}",
        "workers": "{count: 3, batch_size: 50, classes: {any: {speed: 1ms}}}",
        "stop": "{updates: 12}",
        "evaluate": f"{{every: 2, images: 20, metrics: [top1, {metric}]}}",
    }
    cast, virtual = make(**parts), make(**parts, runtime="simulated")
    play_both(cast, virtual, simulated)
    live = cast.events("clients_evaluated")
    assert [len(one["accuracies"]) for one in live] == [2] * 6
    for ours, theirs in zip(live, simulated.found, strict=True):
        assert ours["accuracies"] == theirs.accuracies
        assert (ours["distribution"], ours["version"]) == (theirs.distribution, theirs.version)
    evaluated = cast.events("evaluated")
    assert evaluated[-1]["final"]
    for one in evaluated:  # a late evaluator skips some
        there = simulated.values[one["version"]]
        assert {name: one[name] for name in there} == there
    assert set(cast.rows()["payload_up_bytes"]) == {4 * 17_258 + 8}
