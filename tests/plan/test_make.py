"""From scenarios to plans, with numbers worked out by hand."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from testbed.errors import ScenarioError
from testbed.plan.make import plan
from testbed.plan.nodes.base import address_of
from testbed.runtimes import Docker
from testbed.scenario import Scenario, load_text
from testbed.values.topology import Direction, LinkSpec, Plan
from testbed.values.units import Duration, Rate, Size

TEXT = """\
name: planned
algorithm: asgd
model: digits-cnn
dataset: digits
ps: {link: {down: {rate: 100mbit}}, cpu: 2, cpuset: '2,0-1', memory: 1GB}
workers:
  count: 10
  classes:
    fast:
      {share: 0.3, cpu: 0.5, cpuset: '0', memory: 64MiB, scratch: 1MB,
       link: {up: {rate: 10mbit, queue: 200ms}}}
    medium: {share: 0.4}
    slow: {share: 0.3, link: {up: {rate: 1mbit}, down: {delay: 40ms, jitter: 4ms, loss: 0.01}}}
network: {missing: warn, offload: "off"}
stop: {updates: 100}
launch: cold
"""


@pytest.fixture
def scenario() -> Scenario:
    return load_text(TEXT)


def test_the_order_is_ps_evaluator_workers(scenario: Scenario) -> None:
    made = plan(scenario, "planned-1")
    assert [node.name for node in made.nodes] == ["ps", "evaluator", *(f"w{i}" for i in range(10))]
    assert [node.role for node in made.nodes] == ["ps", "evaluator", *["worker"] * 10]
    assert made.ps.name == "ps"
    assert [node.index for node in made.workers] == list(range(10))


def test_classes_are_assigned_in_order(scenario: Scenario) -> None:
    classes = [node.device_class for node in plan(scenario, "r").workers]
    assert classes == ["fast"] * 3 + ["medium"] * 4 + ["slow"] * 3


def test_limits_weights_and_uids(scenario: Scenario) -> None:
    made = plan(scenario, "r")
    ps, evaluator, fast, medium = (made.node(name) for name in ("ps", "evaluator", "w2", "w3"))
    assert (ps.cpu, ps.memory, ps.cpu_weight, ps.uid) == (2, Size(10**9), 10, 20000)
    assert (evaluator.cpu, evaluator.memory, evaluator.cpu_weight) == (None, None, 10)
    assert (evaluator.uid, evaluator.link) == (20001, None)
    assert (fast.cpu, fast.memory, fast.cpu_weight, fast.uid) == (0.5, Size(2**26), 1, 20012)
    assert (ps.cpuset, evaluator.cpuset) == ("0-2", None)
    assert (fast.cpuset, medium.cpuset) == ("0", None)
    assert (medium.cpu, medium.memory, medium.uid) == (None, None, 20013)
    assert (fast.scratch, medium.scratch, ps.scratch) == (Size(10**6), Size(2**24), Size(2**24))


def link(made: Plan, name: str) -> LinkSpec:
    """A node's link without its seed and the message size."""
    found = made.node(name).link
    assert found is not None
    return replace(found, seed=0, message=None)


def test_links_know_the_size_of_the_model(scenario: Scenario) -> None:
    """digits-cnn has 17,258 parameters of four bytes; the messages of a program are unknown."""
    made = plan(scenario, "r")
    for name in ("ps", "w0", "w9"):
        found = made.node(name).link
        assert found is not None
        assert found.message == Size(69_032)


def test_links(scenario: Scenario) -> None:
    made = plan(scenario, "r")
    assert link(made, "ps") == LinkSpec(
        "10.77.0.1", "02:00:0a:4d:00:01", up=Direction(), down=Direction(rate=Rate(100e6))
    )
    assert link(made, "w0") == LinkSpec(
        "10.77.0.2",
        "02:00:0a:4d:00:02",
        up=Direction(rate=Rate(10e6), queue=Duration(0.2)),
        down=Direction(),
    )
    assert link(made, "w9") == LinkSpec(
        "10.77.0.11",
        "02:00:0a:4d:00:0b",
        up=Direction(rate=Rate(1e6)),
        down=Direction(delay=Duration(0.04), jitter=Duration(0.004), loss=0.01),
    )


def test_every_link_has_its_own_reproducible_seed(scenario: Scenario) -> None:
    first, again = (
        [node.link.seed for node in plan(scenario, run).nodes if node.link is not None]
        for run in ("r", "s")
    )
    assert first == again
    assert len(set(first)) == len(first)
    other = load_text(TEXT.replace("name:", "seed: 99\nname:"))
    assert plan(other, "r").ps.link != plan(scenario, "r").ps.link


def test_emulated_time_is_converted_to_real_time() -> None:
    """Four emulated seconds per real one: rates times four, durations a quarter."""
    scenario = load_text(TEXT + "time_scale: 4\n")
    made = plan(scenario, "r")
    fast, slow = link(made, "w0"), link(made, "w9")
    assert fast.up == Direction(rate=Rate(40e6), queue=Duration(0.05))
    assert slow.down == Direction(delay=Duration(0.01), jitter=Duration(0.001), loss=0.01)


def test_other_values_are_copied(scenario: Scenario) -> None:
    made = plan(scenario, "planned-7")
    assert made.run == "planned-7"
    assert made.labels == {"run": "planned-7", "scenario": "planned"}
    assert made.launch == "cold"
    assert (made.network.prefix, made.network.missing, made.network.offload) == (16, "warn", "off")


def test_the_same_scenario_gives_the_same_plan(scenario: Scenario) -> None:
    assert plan(scenario, "r") == plan(scenario, "r")


def test_addresses_of_the_largest_plan_are_all_different() -> None:
    made = plan(load_text(TEXT.replace("count: 10", "count: 1022")), "r")
    links = [node.link for node in made.nodes if node.link is not None]
    assert len(links) == 1023
    assert len({link.address for link in links}) == len({link.mac for link in links}) == 1023
    network = IPv4Network("10.77.0.0/16")
    ends = {network.network_address, network.broadcast_address}
    assert all(IPv4Address(link.address) in network for link in links)
    assert not ends & {IPv4Address(link.address) for link in links}
    assert len({node.uid for node in made.nodes}) == len(made.nodes)
    assert len({node.name for node in made.nodes}) == len(made.nodes)


def test_addresses_continue_in_the_third_byte() -> None:
    assert address_of(254) == ("10.77.0.255", "02:00:0a:4d:00:ff")
    assert address_of(255) == ("10.77.1.0", "02:00:0a:4d:01:00")


def test_more_workers_than_ports_of_a_switch_are_refused(scenario: Scenario) -> None:
    workers = scenario.workers.model_copy(update={"count": 1023})
    with pytest.raises(ScenarioError, match=r"workers.count: found 1,023, expected at most 1,022"):
        plan(scenario.model_copy(update={"workers": workers}), "r")
    runtime = Docker.model_validate({"name": "docker", "hosts": "swarm"})  # each has a switch
    several = scenario.model_copy(update={"workers": workers, "runtime": runtime})
    assert len(plan(several, "r").workers) == 1023


def test_producers_beyond_the_ports_are_refused_as_producers() -> None:
    streams = "{rates: {constant: {per_second: 10}}, producers: 23}"
    text = TEXT.replace("count: 10", "count: 1000").replace("asgd", "ddl")
    found = (
        "workers.count: found 1,000 and 23 programs, producers or their broker, expected at most"
    )
    with pytest.raises(ScenarioError, match=found):
        plan(load_text(f"{text}streams: {streams}\n"), "r")
