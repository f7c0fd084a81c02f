"""``testbed doctor`` on the host that the tests run on."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]

CHECKS = [
    *("kernel", "namespaces", "capabilities", "control groups"),
    *("address space", "open files", "Kafka", "processes", "inotify"),
    *("memory", "CPUs", "disk", "Python", "packages", "data"),
    *("container", "link", "netem"),
]


def test_every_check_reports_its_finding(bed: Any) -> None:
    findings = json.loads(bed("doctor", "--json").stdout)
    assert [finding["check"] for finding in findings] == CHECKS
    assert all(finding["found"] for finding in findings)
    assert all(finding["fix"] for finding in findings if finding["level"] != "ok")


def test_missing_requirements_of_a_scenario(bed: Any) -> None:
    more = "speed: 20ms, cpu: 1, link: {up: {delay: 20ms}}"
    bed.scenario.write_text(bed.scenario.read_text().replace("speed: 20ms", more))
    many = ("--workers", "1022")
    findings = json.loads(bed("doctor", bed.scenario, *many, "--json", status=(0, 3)).stdout)
    found = {finding["check"]: finding for finding in findings}
    assert found["netem"]["level"] in ("ok", "missing")  # without netem, a delay is refused
    assert "1,022 workers" in found["memory"]["found"]
    assert "add up to 1022" in found["CPUs"]["found"]


def test_what_up_refuses_of_a_scenario_s_nodes(bed: Any) -> None:
    text = bed.scenario.read_text()
    for more, check, told in (
        ("cpuset: '999'", "nodes", "cpuset 999 contains CPUs that this host does not have"),
        ("gpus: 64", "GPUs", "gpus 64, but "),
    ):
        bed.scenario.write_text(text.replace("speed: 20ms", f"speed: 20ms, {more}"))
        findings = json.loads(bed("doctor", bed.scenario, "--json", status=3).stdout)
        (found,) = (one for one in findings if one["check"] == check)
        assert found["level"] == "missing"
        assert told in found["found"]
        assert told in bed("up", bed.scenario, status=3).stderr
