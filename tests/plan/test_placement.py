"""Which node is on which host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.errors import HostError
from testbed.plan.make import plan
from testbed.plan.placement import check_fit, place
from testbed.runtimes.docker import Swarm
from testbed.scenario import load_text
from testbed.values.topology import HostSpec, NodeSpec, Plan
from testbed.values.units import Size

SCENARIO = """
name: placed
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 6
  classes:
    fast: {share: 0.5}
    slow: {share: 0.5, link: {mtu: 1300}}
runtime: {docker: {hosts: swarm}}
stop: {updates: 10}
"""
HERE = HostSpec("a", "10.0.0.1", "", here=True, cpus=2, memory=Size(8000))
LARGE = HostSpec("b", "10.0.0.2", "unix:///b", labels={"rack": "1"}, cpus=4, memory=Size(8000))
SMALL = HostSpec("c", "10.0.0.3", "unix:///c", labels={"rack": "2", "pi": ""}, memory=Size(1500))
HOSTS = (HERE, LARGE, SMALL)


def placed(*hosts: HostSpec, count: int = 6, **wishes: object) -> Plan:
    swarm = Swarm.model_validate({"name": "swarm", **wishes})
    made = plan(load_text(SCENARIO.replace("count: 6", f"count: {count}")), "run")
    return place(made, hosts or HOSTS, swarm, needs=lambda node: 1000)


def names(made: Plan, host: str) -> list[str]:
    return [node.name for node in made.nodes if node.host == host]


def test_workers_are_spread_by_cpus_and_all_others_are_here() -> None:
    # Per CPU: a 0/2, b 0/4, c 0/1; a tie goes to the first: a, b, c; then b (1/4), a and b (2/4).
    made = placed()
    assert names(made, "a") == ["ps", "evaluator", "w0", "w4"]
    assert names(made, "b") == ["w1", "w3", "w5"]
    assert names(made, "c") == ["w2"]
    assert [node.name for node in made.nodes] == ["ps", "evaluator", *(f"w{n}" for n in range(6))]
    assert made.hosts == (HOSTS[0], *(replace(one, controller="a") for one in HOSTS[1:]))


def test_packing_fills_the_memory_of_one_host_after_the_other() -> None:
    made = placed(strategy="pack")
    assert names(made, "a") == ["ps", "evaluator", *(f"w{n}" for n in range(6))]  # 8 of 1000
    made = placed(count=15, strategy="pack")
    assert names(made, "b") == [f"w{n}" for n in range(6, 14)]
    with pytest.raises(HostError, match="host c: its nodes need about 0 MB, it has 0 MB"):
        placed(count=16, strategy="pack")


def test_classes_are_where_their_label_is() -> None:
    made = placed(placement={"slow": "rack=1", "fast": "pi"}, count=2)
    assert (names(made, "b"), names(made, "c")) == (["w1"], ["w0"])
    made = placed(placement={"slow": "rack=1", "fast": "rack=1"}, count=2)
    assert [host.name for host in made.hosts] == ["a", "b"]  # no agent where there is no node


def test_the_server_and_what_opens_its_socket_are_where_its_label_is() -> None:
    made = placed(placement={"ps": "rack=1", "fast": "rack=1", "slow": "rack=1"})
    assert (names(made, "a"), names(made, "b")[:3]) == ([], ["ps", "evaluator", "w0"])
    assert [host.name for host in made.hosts] == ["a", "b"]  # the controller is on the first
    assert (placed().server_host, made.server_host) == ("a", "b")
    made = placed(placement={"ps": "rack"}, strategy="pack")  # both b and c have it
    assert names(made, "b") == ["ps", "evaluator"]
    with pytest.raises(HostError, match=r"placement of ps: no host of the Swarm has .* rack=3"):
        placed(placement={"ps": "rack=3"})


def test_a_label_that_no_host_has_is_refused() -> None:
    with pytest.raises(
        HostError, match=r"class slow: no host of the Swarm has .* rack=3"
    ) as refused:
        placed(placement={"slow": "rack=3"})
    assert "--label-add rack=3" in refused.value.hint


def test_a_label_that_only_a_host_has_that_is_left_out() -> None:
    swarm = Swarm.model_validate({"name": "swarm", "placement": {"slow": "rack=2"}})
    made, left_out = plan(load_text(SCENARIO), "run"), [(SMALL, "it is drained: activate it")]
    with pytest.raises(HostError, match=r"class slow: the host c, .* rack=2, is left out: it is"):
        place(made, (HERE, LARGE), swarm, needs=lambda node: 1000, left_out=left_out)
    swarm = swarm.model_copy(update={"placement": {}})
    made = place(made, (HERE, LARGE), swarm, needs=lambda node: 1000, left_out=left_out)
    assert [host.name for host in made.hosts] == ["a", "b"]


def test_the_memory_of_agents_counts_and_a_model_known_later_is_checked_again() -> None:
    made = placed()
    check_fit(made, needs=lambda node: 1000)
    with pytest.raises(HostError, match="host c: its nodes need about 0 MB"):
        check_fit(made, needs=lambda node: 1000, agent_bytes=501)  # c has 1,500 and a worker


def test_more_nodes_than_a_switch_has_ports_are_refused() -> None:
    here = HostSpec("a", "10.0.0.1", "", here=True)
    with pytest.raises(HostError, match=r"host a: 1,023 nodes with links, expected at most 1,022"):
        placed(here, count=1022)


def test_a_host_without_free_ports_gets_no_more_nodes() -> None:
    hosts = [HostSpec(name, f"10.0.0.{name}", f"unix:///{name}", cpus=int(name)) for name in "91"]
    for strategy in ("spread", "pack"):  # by CPUs and by memory, all but 1,022 would fit on 9, too
        made = placed(replace(hosts[0], here=True), hosts[1], count=1200, strategy=strategy)
        linked = sum(node.link is not None for node in made.nodes)
        on_first = sum(node.link is not None for node in made.on(made.hosts[0]))
        assert (on_first, linked - on_first) == (1022, linked - 1022)


def test_links_leave_room_for_the_tunnel_and_frames_go_to_the_other_host() -> None:
    made = placed()
    mtus = {node.name: node.link.mtu for node in made.nodes if node.link is not None}
    assert (mtus["ps"], mtus["w0"], mtus["w5"]) == (1450, 1450, 1300)

    def route(one: str, other: str) -> str:
        return made.route(made.node(one), made.node(other))

    assert (route("ps", "w0"), route("ps", "w1"), route("w1", "ps")) == ("", "10.0.0.2", "10.0.0.1")
    assert isinstance(made.nodes[0], NodeSpec)
