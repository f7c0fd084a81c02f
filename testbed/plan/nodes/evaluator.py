"""The evaluator: measures the model during training. It uses a socket of its own to the PS."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.host.limits import SERVICE_WEIGHT
from testbed.plan.nodes.base import EVALUATOR_UID, INSIDE, Inputs, Role
from testbed.runtimes.agent.launch import Mount
from testbed.scenario.schema import Scenario
from testbed.values.topology import NodeSpec


class EvaluatorRole(Role):
    """Required: without it there is no accuracy, and so no run."""

    name = "evaluator"
    entry = "testbed.roles.evaluator:main"
    cpu_weight = SERVICE_WEIGHT
    needs = ("ps",)
    opens_socket = True
    vectors = 5  # its own, a network's, a snapshot, a model being saved
    other_bytes = 20_000_000  # an evaluation's activations

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Yield the single evaluator, which has no link."""
        yield NodeSpec(
            name="evaluator",
            role=self.name,
            index=0,
            device_class="",
            link=None,
            cpu=None,
            memory=None,
            cpu_weight=self.cpu_weight,
            uid=EVALUATOR_UID,
            gpus=scenario.evaluate.gpus,
        )

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """Return the defaults, and the folder for saved models."""
        saves = Mount(inputs.folder.model, INSIDE / "model", writable=True)
        return (*super().mounts(inputs), saves)
