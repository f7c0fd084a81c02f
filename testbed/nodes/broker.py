"""The broker of the streams, a Kafka: producers write to it, devices read from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.agent.launch import Mount
from testbed.nodes.base import BROKER_UID, SERVICE_WEIGHT, Inputs, Role, link_at
from testbed.nodes.broker_files import FOLDER, JARS, JAVA, PORT, START
from testbed.scenario.links import BROKER, linked_nodes
from testbed.scenario.schema import Scenario
from testbed.scenario.streams import Kafka
from testbed.topology import NodeSpec, Plan
from testbed.values.units import Size

JAVA_BYTES = 200_000_000
"""What its process takes beside its heap: classes, compiled code, threads, buffers. Measured."""


def source_of(plan: Plan) -> Mapping[str, str]:
    """What those are told who produce or read records: where the broker is, and whose the topics.

    Empty for a run without a broker.
    """
    for node in plan.nodes:
        if node.role == BrokerRole.name and node.link is not None:
            return {"source": f"{node.link.address}:{PORT}", "topics": plan.run}
    return {}


class BrokerRole(Role):
    """No Python runs in it, and no process of ours: the same command does with either image."""

    name = BROKER
    cpu_weight = SERVICE_WEIGHT
    reads_run = False

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """The one, of streams whose transport has one."""
        streams = scenario.streams
        numbers = linked_nodes(scenario)
        if self.name not in numbers or streams is None or not isinstance(streams.transport, Kafka):
            return
        kafka = streams.transport
        yield NodeSpec(
            name=self.name,
            role=self.name,
            index=0,
            device_class="",
            link=link_at(numbers[self.name], scenario, streams.link),
            cpu=kafka.cpu,
            cpuset=kafka.cpuset,
            memory=kafka.memory,
            cpu_weight=self.cpu_weight,
            uid=BROKER_UID,
            end="restarted" if kafka.restart else "fatal",
            command=("/bin/sh", str(FOLDER / START)),
            image="kafka",
            takes=Size(kafka.heap + JAVA_BYTES),
        )

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """Its own folder and, where it comes from no image, Kafka and Java of the host."""
        own = Mount(inputs.folder.broker, FOLDER, writable=True)
        if inputs.kafka is None:
            return (own,)
        return (own, Mount(inputs.kafka.jars, JARS), Mount(inputs.kafka.java, JAVA))

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Its limit, if it has one; else its heap, and what Java takes."""
        return int(node.memory or node.takes or 0)
