"""Flower in a workload: what it stands for, and apps and environments that cannot run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from testbed.errors import InvalidValue, ScenarioError
from testbed.scenario.document import Node
from testbed.scenario.flower import Flower, Imports, programs
from testbed.scenario.flower_app import App, Environment
from testbed.scenario.load_workload import load_any
from testbed.scenario.workload import Program, Workload
from testbed.scenario.workload_checks import check_workload

APP = Path(__file__).parents[2] / "scenarios" / "flower" / "app"
GIVEN = Flower.model_validate(
    {
        "app": "./app",
        "rounds": 3,
        "config": {"learning-rate": 0.5, "min-nodes": 2, "seed": "{seed}"},
        "metrics": {"accuracy": "higher"},
        "classes": {"slow": {"count": 1}, "fast": {"count": 2}},
    }
)


def made(version: str, flower: Flower = GIVEN) -> dict[str, Program]:
    imports = Imports(client=("import numpy as np",), server=("import wandb",))
    fields = programs(flower, app=APP, version=Version(version), imports=imports)
    return {name: Program.model_validate(Node.of(one).data) for name, one in fields.items()}


@pytest.mark.parametrize(
    ("version", "control", "fleet", "options"),
    [
        ("1.26.0", 9093, 9092, ()),
        ("1.31.0", 9093, 9092, ()),
        ("1.32.1", 9093, 9092, ("--disable-runtime-dependency-installation",)),
        ("1.39.0", 8000, 9092, ("--disable-runtime-dependency-installation", "--host", "0.0.0.0")),
        ("1.42.0", 8000, 8000, ("--disable-runtime-dependency-installation", "--host", "0.0.0.0")),
    ],
)
def test_commands_suit_the_version(
    version: str, control: int, fleet: int, options: tuple[str, ...]
) -> None:
    superlink = made(version)["superlink"]
    forked = ("python", "flower_warm.py", "--import", "import wandb", "--")
    assert superlink.command == (*forked, "flower-superlink", "--insecure", *options)
    assert superlink.ports == {"control": control, "fleet": fleet}


def test_failures_are_found_in_what_old_and_new_strategies_print() -> None:
    pattern = made("1.42.0")["flwr"].metrics["failures"].regex
    assert pattern is not None
    for line in (
        "INFO :      aggregate_fit: received 2 results and 3 failures",
        "INFO :      aggregate_train: Received 0 results and 3 failures",
    ):
        found = re.search(pattern, line)
        assert found is not None and found[1] == "3"


def test_flower_stands_for_plain_programs() -> None:
    found = made("1.42.0")
    assert [*found] == ["superlink", "supernode", "flwr"]
    assert found["supernode"].count == 3
    options = (
        *("--insecure", "--superlink", "{superlink:fleet}"),
        *("--node-config", "partition-id={index} num-partitions={count}"),
    )
    imports = ("--import", "import numpy as np")
    forked = ("python", "flower_warm.py", *imports, "--", "flower-supernode")
    assert found["supernode"].command == (*forked, *options)
    cold = made("1.42.0", GIVEN.model_copy(update={"launch": "cold"}))["supernode"]
    assert (cold.command, cold.files) == (("flower-supernode", *options), ())
    assert found["flwr"].command == (
        *("python", "flower_run.py", "app", "{superlink:control}"),
        *("learning-rate=0.5", "min-nodes=2", "seed={seed}", "num-server-rounds=3"),
    )
    assert all(one.environment["FLWR_TELEMETRY_ENABLED"] == "0" for one in found.values())
    assert [one.cpu_weight for one in found.values()] == [10, 1, 1]
    named = found["supernode"].model_copy(update={"classes": GIVEN.classes})
    workload = Workload(name="flower", workload={**found, "supernode": named})
    assert list(check_workload(workload)) == []


def test_packages_of_an_app_are_compared_with_those_installed() -> None:
    app = App(
        APP, "app", ("numpy>=1", "Torch_Vision>=0.2", "scipy[x]>=9", "a;python_version<'3'"), {}
    )
    environment = Environment(Path("python"), {"numpy": "2.0", "torch-vision": "0.1"})
    assert list(environment.lacks(app)) == [
        ("Torch_Vision>=0.2", "but 0.1 is installed"),
        ("scipy[x]>=9", "which is not installed"),
    ]


@pytest.mark.parametrize("version", ["1.25.0", "2.0.0", "unknown"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(InvalidValue, match=f"found flwr {version}, expected .*1.26.0 or newer"):
        Environment(Path("python"), {"flwr": version}).flwr()


def test_what_is_missing_is_named_with_its_line(tmp_path: Path) -> None:
    """Flower is not in the environment of testbed: their protobuf versions exclude each other."""
    file = tmp_path / "scenario.yaml"
    file.write_text(
        f"name: bad\nworkload:\n  flower:\n    app: {APP}\n    python: {sys.prefix}\n"
        "    count: 2\n    config: {hidden: many, momentum: 0.9}\n"
    )
    with pytest.raises(ScenarioError) as refused:
        load_any(file)
    python = Path(sys.prefix) / "bin/python"
    assert [str(one).removeprefix(f"{file}:") for one in refused.value.problems] == [
        f"5: workload.flower.python: found the environment of {python}, which has no flwr, "
        "expected one with flwr, apart from that of testbed: "
        "python3 -m venv flower-env && flower-env/bin/pip install 'flwr>=1.26.0'",
        "7: workload.flower.config.hidden: found 'many', expected a value like the app's own, 512",
        "7: workload.flower.config.momentum: found momentum, expected a key of "
        "[tool.flwr.app.config]: num-server-rounds, hidden, learning-rate, fraction-train, "
        "min-nodes",
    ]


HAND_WRITTEN = """\
name: mixed
workload:
  superlink: {command: [flower-superlink, --insecure], python: new, end: fatal}
  supernode: {command: [flower-supernode, --insecure], python: old, end: noticed}
  another: {command: [flower-supernode, --insecure], python: newer, end: noticed}
  run: {command: [flwr, run], python: new}
"""


def test_supernodes_of_another_protocol_are_refused(tmp_path: Path) -> None:
    """From 1.40 on, Flower uses HTTP in place of gRPC; older SuperNodes would try for ever."""
    for name, version in (("old", "1.38.0"), ("new", "1.41.0"), ("newer", "1.42.0")):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin/python").touch()
        (tmp_path / name / f"lib/python3.11/site-packages/flwr-{version}.dist-info").mkdir(
            parents=True
        )
    file = tmp_path / "scenario.yaml"
    file.write_text(HAND_WRITTEN)
    with pytest.raises(ScenarioError) as refused:
        load_any(file)
    assert [str(one).removeprefix(f"{file}:") for one in refused.value.problems] == [
        "4: workload.supernode.python: found flwr 1.38.0, whose SuperNodes use gRPC, expected the "
        "version of superlink, 1.41.0, with HTTP: "
        f"{tmp_path / 'old/bin/python'} -m pip install flwr==1.41.0"
    ]
    second = "  second: {command: [flower-superlink, --insecure], python: old, end: fatal}\n"
    file.write_text(HAND_WRITTEN + second)  # which one a SuperNode uses is not known
    load_any(file)
