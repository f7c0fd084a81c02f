"""Nodes, runtimes and measures: a file and an entry each."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # every command imports torch


def test_a_kind_of_node(copy: Any) -> None:
    copy.add(
        "plan/nodes/witness.py",
        '''
        """A node that does nothing."""

        from collections.abc import Iterator

        from testbed.plan.nodes.base import Role
        from testbed.scenario.schema import Scenario
        from testbed.values.topology import NodeSpec


        class WitnessRole(Role):
            """It has no link."""

            name = "witness"
            entry = "testbed.roles.witness:main"
            end = "expected"

            def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
                yield NodeSpec("witness", self.name, 0, "", None, None, None, 1, 65_000)
        ''',
    )
    copy.enter(
        "plan/nodes/__init__.py",
        "plan.nodes.witness.WitnessRole",
        before="    EvaluatorRole(),",
        entry="    WitnessRole(),\n",
    )
    copy.change("simulated", "native")
    nodes = json.loads(copy("plan", "scenario.yaml", "--json"))["nodes"]
    assert [node["name"] for node in nodes] == ["ps", "witness", "evaluator", "w0", "w1"]


def test_a_runtime(copy: Any) -> None:
    """Its folder has all that the plan, the doctor and messages say about it."""
    copy.add(
        "runtimes/tower/__init__.py",
        '''
        """The native runtime on a host with a door."""

        from collections.abc import Iterator
        from typing import Literal

        from testbed.runtimes.base import Finding, RuntimeDriver
        from testbed.runtimes.config import Capabilities, ContainerRuntime
        from testbed.runtimes.native.driver import NativeDriver


        class Tower(ContainerRuntime):
            """Containers without an engine."""

            capabilities = Capabilities(gpus=True)

            name: Literal["tower"]

            def driver(self) -> RuntimeDriver:
                return TowerDriver()


        class TowerDriver(NativeDriver):
            def examine(self, *, workers: int, gpu: bool, broker: bool) -> Iterator[Finding]:
                yield Finding("door", "warning", f"closed to {workers} workers", "Open it.")
        ''',
    )
    copy.enter(
        "runtimes/__init__.py",
        "runtimes.tower.Tower",
        before="Native | Docker",
        entry="Tower | ",
    )
    copy.change("runtime: simulated", "runtime: tower")
    assert json.loads(copy("plan", "scenario.yaml", "--json"))["runtime"] == "tower"
    findings = json.loads(copy("doctor", "scenario.yaml", "--json", status=None))
    assert ("door", "closed to 2 workers") in {(one["check"], one["found"]) for one in findings}
    copy.change("speed: 20ms", "speed: 20ms, gpus: 1")
    assert "tower or native or docker" in copy("validate", "scenario.yaml", status=2)
    assert "auto or tower or" in copy("doctor", "--runtime", "nothing", status=2)


def test_a_measure(copy: Any) -> None:
    copy.add(
        "reports/samples.py",
        '''
        """The number of samples of all updates."""

        from testbed.reports.frames import Run


        def samples(run: Run) -> float:
            return float(run.updates["samples"].sum())
        ''',
    )
    copy.enter(
        "reports/registry.py",
        "reports.samples.samples",
        before='    "final_accuracy"',
        entry='    "samples": Definition("samples", "count", samples),\n',
    )
    study = "name: s\nscenario: scenario.yaml\nseeds: [1, 2]\n"
    study += "report: {tables: {t: {measures: [samples]}}}\n"
    (copy.folder / "study.yaml").write_text(study)
    copy("sweep", "study.yaml")
    copy("report", "study.yaml")
    assert "|     2 |     200 |" in (copy.folder / "runs" / "s" / "report.md").read_text()
