"""The workers: the devices that train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.plan.nodes.base import FIRST_WORKER_UID, INSIDE, Inputs, Role, link_at
from testbed.plan.nodes.broker import source_of
from testbed.plan.nodes.producer import PORT, ProducerRole
from testbed.rpc.tokens import token_of
from testbed.runtimes.agent.launch import Mount
from testbed.scenario.devices import devices
from testbed.scenario.schema import Scenario
from testbed.telemetry.event_kinds import Joined
from testbed.values.topology import SCRATCH, NodeSpec, Plan


class WorkerRole(Role):
    """Its vectors: model, gradient, the incoming reply, and scratch space for selection."""

    name = "worker"
    part = "client"
    entry = "testbed.roles.worker:main"
    end = "noticed"
    needs = ("ps",)
    reports = Joined
    vectors = 4

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """Return the defaults, and the file with the slowdown by faults."""
        return (*super().mounts(inputs), Mount(inputs.folder.slow, INSIDE / "slow", writable=False))

    def arguments(self, node: NodeSpec, plan: Plan, *, secret: str) -> Mapping[str, str]:
        """Return the source of its samples, if they are streamed, and its token there."""
        feeding = [other for other in plan.nodes if other.role == ProducerRole.name]
        if not feeding:
            return {}
        if through := source_of(plan):
            return through
        producer = feeding[node.index % len(feeding)]
        assert producer.link is not None
        token = token_of(token_of(secret, producer.name), node.name)
        return {"source": f"{producer.link.address}:{PORT}", "source_token": token}

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Yield the workers, numbered by class in order: the first class has w0, w1, ..."""
        for index, own in enumerate(devices(scenario)):
            device = scenario.workers.classes[own.device_class]
            yield NodeSpec(
                name=f"w{index}",
                role=self.name,
                index=index,
                device_class=own.device_class,
                link=link_at(index + 1, scenario, own.link),
                cpu=device.cpu,
                cpuset=device.cpuset,
                memory=device.memory,
                scratch=device.scratch or SCRATCH,
                cpu_weight=self.cpu_weight,
                uid=FIRST_WORKER_UID + index,
                gpus=device.gpus,
                part=self.part,
                end=self.end,
            )
