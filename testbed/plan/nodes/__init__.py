"""The nodes of a run, one role per file. The closed list of them is ``ROLES``.

A role defines everything that differs between kinds of nodes: which of them a scenario
has, what starts them, what they see of the host, what they depend on, and what their end means. A
new role is a file here and a line below.
"""

from __future__ import annotations

from testbed.plan.nodes.base import Role
from testbed.plan.nodes.broker import BrokerRole
from testbed.plan.nodes.compute import ComputeRole
from testbed.plan.nodes.evaluator import EvaluatorRole
from testbed.plan.nodes.probe import ProbeRole
from testbed.plan.nodes.producer import ProducerRole
from testbed.plan.nodes.program import ProgramRole
from testbed.plan.nodes.ps import ParameterServerRole
from testbed.plan.nodes.worker import WorkerRole
from testbed.values.topology import NodeSpec

ROLES: tuple[Role, ...] = (
    ParameterServerRole(),
    EvaluatorRole(),
    ComputeRole(),
    BrokerRole(),
    ProgramRole(),
    ProducerRole(),
    WorkerRole(),
    ProbeRole(),
)
"""In the order in which a run's nodes are listed and started."""

_BY_NAME = {role.name: role for role in ROLES}


def role_of(node: NodeSpec) -> Role:
    """Return the role of a node.

    Raises:
        KeyError: there is no such role.
    """
    return _BY_NAME[node.role]


__all__ = ["ROLES", "Role", "role_of"]
