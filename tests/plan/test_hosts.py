"""The names of nodes in /etc/hosts."""

from __future__ import annotations

from testbed.plan.hosts import hosts_text
from testbed.plan.make import plan
from testbed.scenario.load import load_text

TEXT = """\
name: named
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2}
programs: {noise: {command: ["true"]}}
stop: {updates: 100}
"""


def test_every_node_has_a_name_and_without_a_link_it_is_the_loopback() -> None:
    assert hosts_text(plan(load_text(TEXT), "r")) == (
        "127.0.0.1 localhost\n"
        "::1 localhost\n"
        "10.77.0.1 ps\n"
        "127.0.0.1 evaluator\n"
        "10.77.0.4 noise\n"
        "10.77.0.2 w0\n"
        "10.77.0.3 w1\n"
    )
