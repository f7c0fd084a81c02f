"""Programs in the plan: addresses, names in braces, neighbours, and the effect of their exit."""

from __future__ import annotations

import pytest

from testbed.plan.make import plan
from testbed.plan.nodes import role_of
from testbed.scenario import load_text
from testbed.scenario.links import addressed, resolve
from testbed.values.topology import Plan
from testbed.values.units import Rate, Size

TEXT = """\
name: crossed
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2}
programs:
  sink: {command: [iperf3, --server]}
  source:
    command: [sh, -c, "iperf3 --client {sink} --bind {source}; echo '{{sink}}' {ps} {w1} ${HOME}"]
    link: {up: {rate: 1mbit}}
    cpu: 0.5
    memory: 64MiB
    end: expected
stop: {updates: 1}
time_scale: 2
"""


@pytest.fixture
def made() -> Plan:
    return plan(load_text(TEXT), "r1")


def test_programs_follow_the_workers_on_the_switch_and_start_before_them(made: Plan) -> None:
    assert [node.name for node in made.nodes] == ["ps", "evaluator", "sink", "source", "w0", "w1"]
    addresses = {node.name: node.link.address for node in made.nodes if node.link}
    assert addresses == {
        "ps": "10.77.0.1",
        "w0": "10.77.0.2",
        "w1": "10.77.0.3",
        "sink": "10.77.0.4",
        "source": "10.77.0.5",
    }
    assert [made.node(name).uid for name in ("sink", "source")] == [20012, 20013]


def test_names_in_braces_are_addresses(made: Plan) -> None:
    *_, script = made.node("source").command
    assert script == (
        "iperf3 --client 10.77.0.4 --bind 10.77.0.5; echo '{sink}' 10.77.0.1 10.77.0.3 ${HOME}"
    )
    assert list(addressed("{a}{{b}}{c-1} {D} {}")) == ["a", "c-1"]
    assert resolve(("{a}:{{a}}",), {"a": "1.2.3.4"}) == ("1.2.3.4:{a}",)


def test_limits_and_links_match_the_scenario(made: Plan) -> None:
    sink, source = made.node("sink"), made.node("source")
    assert (sink.cpu, sink.memory, sink.end) == (None, None, "fatal")
    assert (source.cpu, source.memory, source.end) == (0.5, Size(2**26), "expected")
    assert source.link is not None
    assert source.link.up.rate == Rate(2e6)
    assert (sink.part, sink.role) == ("aside", "program")


def test_programs_and_all_other_nodes_are_neighbours(made: Plan) -> None:
    def known(name: str) -> list[str]:
        node = made.node(name)
        return [other.name for other in role_of(node).neighbours(node, made)]

    assert known("source") == ["ps", "sink", "w0", "w1"]
    assert known("ps") == ["sink", "source", "w0", "w1"]
    assert known("w0") == ["ps", "sink", "source"]
    assert known("evaluator") == []
