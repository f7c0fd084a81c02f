"""Seconds of coding as configured in a scenario, by hand."""

from __future__ import annotations

import pytest

from testbed.payloads import Dense, Keyed, Payload, Quantized, Sparse
from testbed.scenario.durations import CodecTimes

TIMES = CodecTimes.model_validate(
    {
        "select": "32ms",
        "extract": "16ms",
        "merge": "8ms",
        "add": "4ms",
        "quantise": "2ms",
        "dequantise": "1ms",
    }
)


@pytest.mark.parametrize(
    ("kind", "selected", "to_send", "to_take"),
    [
        (Dense, False, 0, 4),
        (Dense, True, 32, 4),
        (Keyed, False, 16, 8),
        (Keyed, True, 16 + 32, 8),
        (Sparse, False, 16 + 32, 8),  # selected for every push
        (Quantized, False, 2, 1 + 4),
    ],
)
def test_seconds_are_per_million_parameters(
    kind: type[Payload], selected: bool, to_send: int, to_take: int
) -> None:
    """Half a million parameters: half the milliseconds of the steps of each kind."""
    assert TIMES.send_seconds(kind, 500_000, selected=selected) == pytest.approx(to_send / 2000)
    assert TIMES.take_seconds(kind, 500_000) == pytest.approx(to_take / 2000)


@pytest.mark.parametrize("kind", [Dense, Keyed, Sparse, Quantized])
def test_omitted_steps_take_no_time(kind: type[Payload]) -> None:
    assert CodecTimes().send_seconds(kind, 10**9, selected=True) == 0.0
    assert CodecTimes().take_seconds(kind, 10**9) == 0.0
