"""From a scenario to the plan of its containers. Pure: the same scenario gives the same plan."""

from __future__ import annotations

from ipaddress import IPv4Address

from testbed.errors import Problem, ScenarioError
from testbed.scenario.checks import MOST_WORKERS
from testbed.scenario.links import link_spec
from testbed.scenario.schema import DeviceClass, Link, Scenario
from testbed.seeds import stream
from testbed.topology import LinkSpec, NetworkSpec, NodeSpec, Plan

PREFIX = 16
PS_ADDRESS = IPv4Address("10.77.0.1")

PS_UID = 20000
EVALUATOR_UID = 20001
FIRST_WORKER_UID = 20010

SERVICE_WEIGHT = 10
"""CPU weight of the parameter server and the evaluator: all workers wait for them."""


def plan(scenario: Scenario, run: str) -> Plan:
    """The nodes of a run, with addresses, uids, limits and links in real units.

    Workers are dealt to the classes in the order of the scenario: the first class has w0, w1, ...

    Raises:
        ScenarioError: more workers than a switch has ports.
    """
    _check_ports(scenario)
    workers = [
        _worker(scenario, index, name)
        for index, name in enumerate(deal_classes(scenario.workers.class_counts()))
    ]
    return Plan(
        run=run,
        nodes=(_ps(scenario), _evaluator(), *workers),
        network=NetworkSpec(
            prefix=PREFIX,
            missing=scenario.network.missing,
            offload=scenario.network.offload,
        ),
        launch=scenario.launch,
        labels={"run": run, "scenario": scenario.name},
    )


def deal_classes(counts: dict[str, int]) -> list[str]:
    """The class of each worker by index."""
    return [name for name, count in counts.items() for _ in range(count)]


def address_of(number: int) -> tuple[str, str]:
    """IPv4 and MAC address of the ``number``-th node on the switch; the PS is number 0."""
    address = PS_ADDRESS + number
    return str(address), ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *address.packed))


def _check_ports(scenario: Scenario) -> None:
    count = scenario.workers.count
    if count > MOST_WORKERS and not scenario.simulated:
        expected = f"at most {MOST_WORKERS:,} workers: a switch has one port more, the PS's"
        raise ScenarioError(
            [Problem(f"scenario {scenario.name}", 0, "workers.count", f"{count:,}", expected)]
        )


def _link(scenario: Scenario, link: Link, number: int) -> LinkSpec:
    address, mac = address_of(number)
    seed = int(stream(scenario.seed, "link", address).integers(2**53))  # exact in any JSON
    return link_spec(link, address=address, mac=mac, time_scale=scenario.time_scale, seed=seed)


def _ps(scenario: Scenario) -> NodeSpec:
    return NodeSpec(
        name="ps",
        role="ps",
        index=0,
        device_class="",
        link=_link(scenario, scenario.ps.link, 0),
        cpu=scenario.ps.cpu,
        cpuset=scenario.ps.cpuset,
        memory=scenario.ps.memory,
        cpu_weight=SERVICE_WEIGHT,
        uid=PS_UID,
    )


def _evaluator() -> NodeSpec:
    return NodeSpec(
        name="evaluator",
        role="evaluator",
        index=0,
        device_class="",
        link=None,
        cpu=None,
        memory=None,
        cpu_weight=SERVICE_WEIGHT,
        uid=EVALUATOR_UID,
    )


def _worker(scenario: Scenario, index: int, class_name: str) -> NodeSpec:
    device: DeviceClass = scenario.workers.classes[class_name]
    return NodeSpec(
        name=f"w{index}",
        role="worker",
        index=index,
        device_class=class_name,
        link=_link(scenario, device.link, index + 1),
        cpu=device.cpu,
        cpuset=device.cpuset,
        memory=device.memory,
        cpu_weight=1,
        uid=FIRST_WORKER_UID + index,
        gpus=device.gpus,
    )
