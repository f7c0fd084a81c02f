"""Workloads: which nodes a scenario has, what stands in braces, and what is no workload."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import Scenario, load, load_text
from testbed.scenario.load_workload import is_workload_file, load_any, load_workload
from testbed.scenario.override import Override
from testbed.scenario.workload import Workload
from testbed.scenario.workload_names import fill, in_braces, placed, workload_timeline

TEXT = """\
name: pair
workload:
  server:
    command: [serve]
    ports: {web: 8000}
    end: fatal
  client:
    count: 3
    command: [ask]
    ports: {own: 9000}
    classes: {fast: {count: 2, cpu: 2}, slow: {count: 1}}
    cpu: 0.5
faults:
  - freeze: {nodes: ["client*"], at: {time: 3s}, for: 1s}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def workload(file: Path) -> Workload:
    return load_workload(file)


def test_a_single_node_has_the_name_of_its_program(workload: Workload) -> None:
    assert workload.node_names() == ("server", "client0", "client1", "client2")
    names = [name for name, _ in workload.workload["client"].node_classes("client")]
    assert names == ["fast", "fast", "slow"]
    assert [name for name, _ in workload.workload["server"].node_classes("server")] == ["server"]


def test_names_in_braces_are_filled_in(workload: Workload) -> None:
    addresses = {name: f"10.0.0.{n}" for n, name in enumerate(workload.node_names())}
    own = placed(workload)[2]
    assert (own.name, own.program, own.index) == ("client1", "client", 1)
    for text, filled in {
        "{server}": "10.0.0.0",
        "http://{server:web}/": "http://10.0.0.0:8000/",
        "{client2:17}": "10.0.0.3:17",
        "{port:own}": "9000",
        "{index}/{count}": "1/3",
        "--seed={seed}": f"--seed={workload.seed}",
        "--host {hosts:client}": "--host client0,client1,client2",
        "{{index}} ${HOME} {A}": "{index} ${HOME} {A}",
        "{{server:web}}": "{server:web}",
    }.items():
        assert fill(text, own, workload, addresses) == filled
    assert list(in_braces("{a}{{b}}{c-1:x}")) == [("a", ""), ("c-1", "x")]


def test_faults_select_nodes_by_their_names(workload: Workload) -> None:
    timeline = workload_timeline(workload)
    assert timeline.named(timeline.targets[0]) == ("client0", "client1", "client2")
    assert timeline.next_time == 3.0


def test_either_kind_is_loaded(file: Path) -> None:
    assert is_workload_file(file)
    loaded = load_any(file, overrides=[Override.parse("workload.client.cpu=3")])
    assert isinstance(loaded, Workload)
    assert loaded.workload["client"].cpu == 3
    assert isinstance(load_any("quickstart"), Scenario)
    with pytest.raises(ScenarioError, match="found a workload, expected a training"):
        load(file)


def test_a_workload_extends_another(file: Path) -> None:
    more = file.with_name("more.yaml")
    more.write_text("extends: pair.yaml\nname: more\nworkload: {server: {end: noticed}}\n")
    loaded = load_any(more)
    assert isinstance(loaded, Workload)
    assert loaded.workload["server"].end == "noticed"
    assert loaded.workload["server"].command == ("serve",)


def test_the_faults_of_a_training_wait_for_no_line(small: str) -> None:
    fault = "faults: [{freeze: {at: {log: round 5}, for: 1s}}]"
    with pytest.raises(ScenarioError, match="a line with 'round 5', expected a time, a version"):
        load_text(f"{small}{fault}\n")


def test_the_faults_of_a_training_end_at_no_line(small: str) -> None:
    fault = "faults: [{freeze: {at: {time: 1s}, until: {log: round 5}}}]"
    with pytest.raises(ScenarioError, match="until: found a line with 'round 5', expected `for`"):
        load_text(f"{small}{fault}\n")


def test_links_between_switches_are_for_workloads(small: str) -> None:
    links = "links: {uplink: {between: [edge, core]}}"
    with pytest.raises(ScenarioError, match=r"links between switches, expected a `workload`"):
        load_text(f"{small}{links}\n")
