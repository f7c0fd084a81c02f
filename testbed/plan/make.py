"""From a scenario to the plan of its containers. Pure: the same scenario gives the same plan."""

from __future__ import annotations

from dataclasses import replace

from testbed.errors import Problem, ScenarioError
from testbed.network.offloads import needs_packets
from testbed.payloads import VALUE_BYTES
from testbed.plan.budget import count_parameters
from testbed.plan.nodes import ROLES
from testbed.plan.nodes.base import PREFIX
from testbed.scenario.checks import MOST_WORKERS, SIMULATED_HAVE_MORE, on_one_switch
from testbed.scenario.links import changed_links, linked_nodes
from testbed.scenario.schema import Scenario
from testbed.values.topology import NetworkSpec, NodeSpec, Plan
from testbed.values.units import Size


def plan(scenario: Scenario, run: str) -> Plan:
    """Return the nodes of a run, with addresses, uids, limits and links in real units.

    Raises:
        ScenarioError: more workers than a switch has ports.
    """
    workers, count = scenario.workers.count, len(linked_nodes(scenario)) - 1
    if count > MOST_WORKERS and on_one_switch(scenario):
        others = count - workers
        kinds = "programs, producers or their broker"
        found = f"{workers:,} and {others:,} {kinds}" if others else f"{workers:,}"
        expected = f"at most {MOST_WORKERS:,} in total: one port of a switch is for the PS"
        hint = SIMULATED_HAVE_MORE
        where = f"scenario {scenario.name}"
        raise ScenarioError([Problem(where, 0, "workers.count", found, expected, hint)])
    offload = scenario.network.offload
    if offload == "auto" and any(needs_packets(link) for *_, link in changed_links(scenario)):
        offload = "off"  # from the beginning: it cannot be turned off later
    parameters = count_parameters(scenario)
    message = None if parameters is None else Size(parameters * VALUE_BYTES)
    return Plan(
        run=run,
        nodes=tuple(
            _for_messages(node, message) for role in ROLES for node in role.nodes(scenario)
        ),
        network=NetworkSpec(PREFIX, scenario.network.missing, offload),
        launch=scenario.launch,
        labels={"run": run, "scenario": scenario.name},
        runtime=scenario.runtime.model_dump(mode="json", exclude_none=True),
        time_scale=scenario.time_scale,
    )


def _for_messages(node: NodeSpec, message: Size | None) -> NodeSpec:
    """Return the node with a link that knows the size of the models and pushes it carries."""
    if message is None or node.link is None or node.part == "aside":
        return node
    return replace(node, link=replace(node.link, message=message))
