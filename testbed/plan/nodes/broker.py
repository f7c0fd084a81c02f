"""The broker of the streams, a Kafka: producers write to it, devices read from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.host.limits import SERVICE_WEIGHT
from testbed.plan.nodes.base import BROKER_UID, Inputs, Role, link_at
from testbed.plan.nodes.broker_files import FOLDER, JARS, JAVA, PORT, START
from testbed.runtimes.agent.launch import Mount
from testbed.scenario.links import BROKER, linked_nodes
from testbed.scenario.schema import Scenario
from testbed.scenario.streams import Kafka
from testbed.values.topology import NodeSpec, Plan
from testbed.values.units import Size

JAVA_BYTES = 200_000_000
"""Memory of its process in addition to its heap: classes, code, threads, buffers. Measured."""


def source_of(plan: Plan) -> Mapping[str, str]:
    """Return the arguments of producers and consumers: the broker's address and the topics' run.

    Empty for a run without a broker.
    """
    for node in plan.nodes:
        if node.role == BrokerRole.name and node.link is not None:
            return {"source": f"{node.link.address}:{PORT}", "topics": plan.run}
    return {}


class BrokerRole(Role):
    """Runs neither Python nor code of ours: the same command works with either image."""

    name = BROKER
    cpu_weight = SERVICE_WEIGHT
    reads_run = False

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Yield the broker, if the streams' transport has one."""
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
            memory_estimate=Size(kafka.heap + JAVA_BYTES),
        )

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """Return its own folder and, if no image provides them, Kafka and Java of the host."""
        own = Mount(inputs.folder.broker, FOLDER, writable=True)
        if inputs.kafka is None:
            return (own,)
        return (own, Mount(inputs.kafka.jars, JARS), Mount(inputs.kafka.java, JAVA))

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Return its limit, if it has one; else its heap plus the memory of Java."""
        return int(node.memory or node.memory_estimate or 0)
