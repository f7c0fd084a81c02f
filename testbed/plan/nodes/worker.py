"""The workers: the devices that train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.plan.nodes.base import FIRST_WORKER_UID, INSIDE, Inputs, Role, link_at
from testbed.plan.nodes.broker import source_of
from testbed.plan.nodes.compute import FOLDER, ComputeRole, shares_compute
from testbed.plan.nodes.producer import PORT, ProducerRole
from testbed.rpc.tokens import token_of
from testbed.runtimes.agent.launch import Mount
from testbed.scenario.devices import devices
from testbed.scenario.schema import Scenario
from testbed.telemetry.ps_events import Joined
from testbed.values.topology import SCRATCH, NodeSpec, Plan

SHARING_BYTES = 14_000_000
"""Private memory of a worker that computes no gradients, in addition to its vectors. Measured."""


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
        """Return the defaults, the slowdown by faults, and the socket of `compute`."""
        mounts = [*super().mounts(inputs), Mount(inputs.folder.slow, INSIDE / "slow")]
        if inputs.shared_compute:
            mounts.append(Mount(inputs.folder.compute_sockets, FOLDER))
        return tuple(mounts)

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Count its model and gradient as its own also where it shares their memory."""
        if not shares_compute(plan):
            return super().memory_bytes(node, plan, vector=vector)
        return SHARING_BYTES + self.vectors * vector

    def arguments(self, node: NodeSpec, plan: Plan, *, secret: str) -> Mapping[str, str]:
        """Return where its samples or gradients come from, if not from itself, and its token."""
        if shares_compute(plan):  # without streams
            return {"compute_token": token_of(token_of(secret, ComputeRole.name), node.name)}
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
