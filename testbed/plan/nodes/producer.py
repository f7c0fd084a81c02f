"""Producers: they generate the samples of the devices' streams, in as many processes as needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.host.limits import SERVICE_WEIGHT
from testbed.plan.nodes.base import FIRST_WORKER_UID, Role, link_at
from testbed.plan.nodes.broker import source_of
from testbed.scenario.links import link_of_feeder, linked_nodes, producers
from testbed.scenario.schema import Scenario
from testbed.values.topology import NodeSpec, Plan

PORT = 5001
"""Port at which a producer answers devices that fetch from it."""


class ProducerRole(Role):
    """Each feeds its share of the devices; without it, their streams have no data."""

    name = "producer"
    entry = "testbed.roles.producer:main"
    cpu_weight = SERVICE_WEIGHT
    end = "noticed"
    needs = ("ps",)
    opens_socket = True
    vectors = 1  # the network's, which comes with the scenario's data
    other_bytes = 64_000_000  # records that no device has fetched

    def arguments(self, node: NodeSpec, plan: Plan, *, secret: str) -> Mapping[str, str]:
        """Return the broker's address or, without a broker, its own port for the devices."""
        if through := source_of(plan):
            return through
        assert node.link is not None
        return {"source": f"{node.link.address}:{PORT}"}

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Yield the producers; their addresses and uids follow the programs'."""
        numbers = linked_nodes(scenario)
        before = FIRST_WORKER_UID + scenario.workers.count + len(scenario.programs)
        for index, name in enumerate(producers(scenario)):
            streams = scenario.streams
            assert streams is not None, "only scenarios with streams have producers"
            yield NodeSpec(
                name=name,
                role=self.name,
                index=index,
                device_class="",
                link=link_at(numbers[name], scenario, link_of_feeder(scenario, name)),
                cpu=None,
                memory=None,
                cpu_weight=self.cpu_weight,
                uid=before + index,
                end="restarted" if streams.restarts else self.end,
            )
