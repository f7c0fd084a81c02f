"""``plan.json``: it is read back as written, and invalid content is refused by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import ScenarioError, TestbedError
from testbed.plan.make import plan
from testbed.plan.workload import plan_workload
from testbed.plan.written import plan_text, read_plan
from testbed.scenario import load_text
from testbed.scenario.load_workload import load_any
from testbed.scenario.source import shipped
from testbed.scenario.workload import Workload
from testbed.telemetry.folder import RunFolder

SCENARIOS = Path(__file__).parents[2] / "scenarios"
# That of Flower takes an environment with flwr: tests/e2e/test_flower.py plans such nodes.
SHIPPED = sorted(file for file in shipped().values() if file.parent.name != "flower")
TEXT = (SCENARIOS / "adsl.yaml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run's folder with the plan of a shipped scenario."""
    return RunFolder.create(
        tmp_path,
        "r1",
        scenario="adsl",
        text=TEXT,
        classes=(),
        now=0.0,
        plan=plan_text(plan(load_text(TEXT), "r1")),
    )


def changed(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def without(key: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = json.loads(path.read_text())
        del content[key]
        path.write_text(json.dumps(content))

    return change


def cut_short(path: Path) -> None:
    path.write_text(path.read_text()[:-100])


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def empty(path: Path) -> None:
    path.write_text("")


def a_list(path: Path) -> None:
    path.write_text("[]")


def nested(path: Path) -> None:
    path.write_text("[" * 100_000)


@pytest.mark.parametrize("scenario", SHIPPED, ids=lambda path: path.stem)
def test_a_plan_is_read_as_written(tmp_path: Path, scenario: Path) -> None:
    loaded = load_any(scenario)
    made = plan_workload(loaded, "r1") if isinstance(loaded, Workload) else plan(loaded, "r1")
    written = RunFolder(tmp_path)
    written.plan.write_text(plan_text(made))
    assert read_plan(written) == made


def test_a_plan_has_version_host_and_runtime(folder: RunFolder) -> None:
    content = json.loads(folder.plan.read_text())
    assert content["plan"] == 2
    assert {node["host"] for node in content["nodes"]} == {"localhost"}
    assert content["runtime"] == {"name": "native"}


def test_the_plan_takes_precedence_over_the_scenario(folder: RunFolder) -> None:
    folder.scenario.unlink()
    assert read_plan(folder).run == "r1"


def test_a_run_without_a_plan(folder: RunFolder) -> None:
    made = read_plan(folder)
    folder.plan.unlink()
    assert read_plan(folder) == made
    folder.scenario.unlink()
    with pytest.raises(ScenarioError, match=r"scenario\.yaml"):
        read_plan(folder)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (
            changed(plan=3),
            r": found version 3, expected 2\. Use the version of testbed that",
        ),
        (changed(plan="1"), "its version is '1', expected 2"),
        (without("plan"), "its version is None, expected 2"),
        (cut_short, r"not valid JSON, or truncated \("),
        (empty, r"not valid JSON, or truncated \("),
        (nested, r"not valid JSON, or truncated \("),
        (a_list, "it is not a JSON object"),
        (link, "found a symbolic link, expected a regular file"),
        (directory, "found a folder, expected a regular file"),
        (pipe, "found a pipe or a device, expected a regular file"),
        (without("network"), "network is missing"),
        (without("nodes"), "nodes is missing"),
        (changed(nodes=[]), "it contains neither a parameter server nor a workload"),
        (changed(nodes=[{"name": "ps"}]), r"nodes\.0\.role is missing"),
        (changed(runtime={"name": "podman"}), "not a valid plan: .*podman"),
    ],
)
def test_an_invalid_plan_is_refused(
    folder: RunFolder, spoil: Callable[[Path], None], what: str
) -> None:
    spoil(folder.plan)
    with pytest.raises(TestbedError, match=what) as refused:
        read_plan(folder)
    assert refused.value.message.startswith(f"{folder.plan}: ")
    newer = "found version 3" in refused.value.message
    assert refused.value.exit_code == (1 if newer else 4)
    assert refused.value.hint
