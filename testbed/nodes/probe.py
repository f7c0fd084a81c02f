"""Probes: spare nodes that measure a link, and are gone again. No scenario has them."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.agent.launch import Mount
from testbed.nodes.base import Inputs, Role
from testbed.scenario.schema import Scenario
from testbed.topology import NodeSpec


class Probe(Role):
    """See testbed.run.probe."""

    name = "probe"
    entry = "testbed.roles.prober:main"
    end = "expected"

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """None."""
        return iter(())

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """It needs nothing."""
        return ()
