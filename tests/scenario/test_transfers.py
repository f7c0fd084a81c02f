"""How long samples may be under way, by hand."""

from __future__ import annotations

import pytest

from testbed.scenario.load import load_text
from testbed.scenario.transfers import in_flight_seconds, quiet_seconds

SCENARIO = """\
name: thin
algorithm: {ddl: {learning_rate: 0.05}}
model: digits-cnn
dataset: digits
time_scale: 2.0
workers:
  count: 4
  classes:
    device: {link: {up: {rate: 8mbit, delay: 100ms}, down: {rate: 16mbit, delay: 200ms}}}
streams:
  rates: {constant: {per_second: 20}}
  transport: {kafka: {linger: 50ms}}
  link: {up: {rate: RATE}}
stop: {updates: 8}
"""


@pytest.mark.parametrize(
    ("rate", "transfer"), [("100mbit", 1.048576), ("8mbit", 4 * 1.048576)], ids=["own", "shared"]
)
def test_a_reply_of_a_mebibyte_may_be_under_way(rate: str, transfer: float) -> None:
    """On the device's link of 1 MB/s, or with the three other devices' on the broker's."""
    scenario = load_text(SCENARIO.replace("RATE", rate), file="thin.yaml")
    expected = 2 * 1.0 + 0.05 + transfer + 0.3
    assert in_flight_seconds(scenario) == pytest.approx(expected)
    assert quiet_seconds(scenario) == pytest.approx(expected + 2 * 10.0)
