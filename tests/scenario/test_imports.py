"""Topology files of other tools: what they become, and what is said to be left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from testbed.cli import main
from testbed.errors import ScenarioError
from testbed.plan.workload import plan_workload
from testbed.scenario.imports import READERS, import_topology
from testbed.scenario.load_workload import load_any
from testbed.scenario.workload import Workload
from testbed.values.units import Size

FILES = Path(__file__).parent / "topologies"
LAB = (FILES / "lab.clab.yml").read_text()
EXPERIMENT = (FILES / "experiment.xml").read_text()
MODEL = (FILES / "model.yaml").read_text()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(here: Path, kind: str, text: str) -> tuple[Workload, list[str]]:
    """The scenario that a file becomes, loaded, and its notes without the file's name."""
    (here / "file.x").write_text(text)
    made, notes = import_topology(kind, Path("file.x"), name="made")
    (here / "made.yaml").write_text(made)
    loaded = load_any(here / "made.yaml")
    assert isinstance(loaded, Workload)
    plan_workload(loaded, "made")
    return loaded, [note.removeprefix("file.x:") for note in notes]


def test_a_lab_of_containerlab(here: Path) -> None:
    lab, notes = imported(here, "containerlab", LAB)
    client, other, far = lab.workload.values()
    assert list(lab.workload) == ["client", "other", "far"]
    assert client.command == ("python3", "-m", "http.server", "80")
    assert (client.switch, other.switch, far.switch) == ("s1", "s1", "router")
    assert (client.cpu, client.memory, other.link.mtu) == (1, Size(512e6), 1400)
    assert client.environment == {"SITE": "edge", "ID": "7"}
    assert {name: link.between for name, link in lab.links.items()} == {
        "s1-router": ("s1", "router")
    }
    assert lab.stop is not None  # `other` sleeps
    assert notes == [
        "2: mgmt: no counterpart",
        "9: startup-config of router: no counterpart",
        "9: router is a plain switch: the nokia_srlinux and its configuration do not run",
        "10: client runs its command on this host, without the image alpine:3",
        "15: exec of client: no counterpart",
        "16: other: its command is in the image alpine:3, so it sleeps until you write `command`",
        "17: binds of far: no counterpart",
        "17: far runs its command on this host, without the image alpine:3",
        "18: outside is of kind host: left out, nodes reach nothing outside a run",
        "19: alone: its command is in the image alpine:3, so it sleeps until you write `command`",
        "19: alone has no link to other nodes: left out",
        "28: a link to host: left out, nodes reach nothing outside a run",
        "29: a link of type macvlan: left out, nodes reach nothing outside a run",
    ]


def test_an_experiment_of_kollaps(here: Path) -> None:
    """A node's own link has the direction in which it is written; losses are shares of 1."""
    loaded, notes = imported(here, "kollaps", EXPERIMENT)
    data = yaml.safe_load((here / "made.yaml").read_text())
    assert data["workload"]["client1"]["link"] == {
        "up": {"rate": "5mbit", "delay": "10ms"},
        "down": {"rate": "50mbit", "delay": "10ms"},
    }
    assert data["workload"]["client2"]["link"] == {
        "up": {"rate": "1mbit", "delay": "5ms", "jitter": "0.5ms", "loss": 0.01},
        "down": {"rate": "100mbit", "delay": "5ms", "jitter": "0.5ms", "loss": 0.01},
    }
    assert loaded.workload["server"].count == 3
    assert data["links"] == {
        "s1-s2": {
            "between": ["s1", "s2"],
            "up": {"rate": "20mbit", "delay": "15ms"},
            "down": {"delay": "15ms"},
        }
    }
    assert data["faults"] == [{"kill": {"nodes": ["server0", "server1"], "at": {"time": "60s"}}}]
    assert [note.partition(":")[0] for note in notes] == ["4", "5", "5", "6", "7", "16", "22"]
    assert notes[1].startswith("5: client1: the image iperf3-client got the arguments server 1")
    assert (
        notes[-1] == "22: the change of a link at 10 s is left out: add a fault or a trace for it"
    )


def test_a_model_of_fogify(here: Path) -> None:
    loaded, notes = imported(here, "fogify", MODEL)
    data = yaml.safe_load((here / "made.yaml").read_text())
    assert "links" not in data  # all are on one switch
    sensor, api = loaded.workload["sensor"], loaded.workload["n-controller"]
    assert (sensor.count, sensor.cpu, str(sensor.memory)) == (3, 2, "1GB")
    assert data["workload"]["sensor"]["link"] == {
        "up": {
            **{"rate": "5mbit", "delay": "20ms", "jitter": "5ms", "loss": 0.001},
            "distribution": "normal",
        },
        "down": {"rate": "10mbit", "delay": "20ms", "loss": 0.002},
    }
    assert data["workload"]["n-controller"]["link"] == {"up": {"rate": "50mbit"}}
    assert api.environment == {"A": "1", "B": "x=y"}
    assert [note.partition(":")[2] for note in notes] == [
        " ports of the service api: no counterpart",
        " the service unused is in no topology: left out",
        " correlation of a latency of an uplink: no counterpart",
        " capacity of the network wifi: no counterpart",
        " disk of pi: no counterpart",
        " clock_speed of pi: its cores are as fast as this host's",
        " sensor: its command is in the image sensor:1, so it sleeps until you write `command`",
        " sensor is in one network only: wired left out",
        " controller runs its command on this host, without the image web:1",
        " controller is named n-controller",
    ]


def test_nodes_that_are_linked_to_each_other_get_switches(here: Path) -> None:
    """A chain of three: the middle one is on a switch of its own, where both links end."""
    chain = "topology:\n  nodes: {a: {kind: linux}, b: {kind: linux}, c: {kind: linux}}\n"
    chain += (
        '  links:\n    - endpoints: ["a:eth1", "b:eth1"]\n    - endpoints: ["b:eth2", "c:eth1"]\n'
    )
    loaded, _ = imported(here, "containerlab", chain)
    assert not loaded.links  # a single switch, which is the core
    chain += '    - endpoints: ["c:eth2", "a:eth2"]\n'
    loaded, _ = imported(here, "containerlab", chain)
    assert [program.switch for program in loaded.workload.values()] == ["a", "b", "c"]
    assert len(loaded.links) == 3


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        ("containerlab", "S1:eth1", "S9:eth1", "file.x:21: topology.links: found S9, expected"),
        ("containerlab", "memory: 512Mb", "memory: much", "file.x:10: client.memory: found 'much'"),
        ("containerlab", "topology:", "topo:", "topology.nodes: found no nodes"),
        ("containerlab", '"S1:eth3", "router:e1-1"', '"S1:eth3"', "found 1 endpoints"),
        ("containerlab", '"router:e1-1"', '"other:e1"', "file.x:17: far: found no path to"),
        ("containerlab", "env: {ID: 7}", "env: [ID=7]", "file.x:14: topology.nodes.client.env:"),
        ("containerlab", "other: {}", "other: 3", "topology.nodes.other: found 3, expected a map"),
        ("containerlab", "cpu: 1", "cpu: many", "file.x: workload.client.cpu: found 'many'"),
        ("containerlab", "kinds:", "kinds: 3 #", "file.x:"),
        ("containerlab", "  nodes:", "  nodes: [", "file.x:"),
        ("kollaps", '"20Mbps"', '"fast"', "file.x:16: link: found 'fast', expected a rate like"),
        ("kollaps", 'dest="s2"', 'dest="s3"', "file.x:16: link: found s3, expected a service or"),
        ("kollaps", "</links>", "", "file.x:25: found mismatched tag, expected XML"),
        ("kollaps", 'jitter="0.5"', 'jitter="9"', "file.x:15: link: found a jitter of 9ms"),
        ("kollaps", "<experiment", "<!DOCTYPE x><experiment", "file.x:2: found a document type"),
        ("kollaps", 'amount="3"', 'amount="no"', "file.x:21: schedule.amount: found 'no'"),
        ("fogify", "service: sensor,", "service: none,", "x-fogify.topology.0.service: found none"),
        ("fogify", "[wifi, wired]", "[wimax]", "networks.0: found wimax, expected a network"),
        ("fogify", "replicas: 3", "replicas: 0", "topology.0.replicas: found 0"),
        ("fogify", "drop: 0.2%", "drop: 200%", "downlink: found 200%"),
        ("fogify", "processor: {cores: 2", "processor: {cores: many", "cpu: found 'many'"),
        ("fogify", "latency: {delay: 20ms}", "latency: [20ms]", "networks.0.downlink: found"),
        ("fogify", "  topology:", "  topologies:", "x-fogify: found no topology"),
    ],
)  # fmt: skip
def test_a_bad_file_is_named_and_nothing_is_written(
    here: Path, kind: str, old: str, new: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = {"containerlab": LAB, "kollaps": EXPERIMENT, "fogify": MODEL}[kind]
    assert old in text
    (here / "file.x").write_text(text.replace(old, new, 1))
    assert main(["init", "made", f"--from-{kind}", "file.x"]) == 2
    assert expected in capsys.readouterr().err
    assert [path.name for path in here.iterdir()] == ["file.x"]


def test_init_writes_the_scenario_and_says_what_it_lacks(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "lab.clab.yml").write_text(LAB)
    assert main(["init", "--from-containerlab", "lab.clab.yml"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "wrote lab.yaml"
    assert "lab.clab.yml:15: exec of client: no counterpart" in said.err
    assert main(["validate", "lab.yaml"]) == 0
    assert main(["init", "--from-containerlab", "lab.clab.yml"]) == 2
    assert main(["init", "x", "--from-kollaps", "a", "--from-fogify", "b"]) == 2
    assert "found --from-kollaps and --from-fogify, expected one" in capsys.readouterr().err
    assert main(["init", "x", "--from-kollaps", "missing.xml"]) == 2
    assert sorted(READERS) == ["containerlab", "fogify", "kollaps"]


def test_braces_in_a_command_stay_as_they_are(here: Path) -> None:
    text = LAB.replace("python3 -m http.server 80", "echo {client} {}")
    loaded, _ = imported(here, "containerlab", text)
    assert loaded.workload["client"].command == ("echo", "{{client}}", "{}")
    node = plan_workload(loaded, "made").node("client")
    assert node.command == ("echo", "{client}", "{}")


def test_an_event_of_a_service_without_a_link_is_left_out_with_it(here: Path) -> None:
    link = next(line for line in EXPERIMENT.splitlines() if 'dest="server"' in line)
    loaded, notes = imported(here, "kollaps", EXPERIMENT.replace(link, ""))
    assert not loaded.faults
    assert "7: server has no link to other nodes: left out" in notes


def test_unconnected_nodes_are_refused(here: Path) -> None:
    (here / "file.x").write_text(
        EXPERIMENT.replace('<link origin="s1" dest="s2"', '<link origin="s1" dest="client1"')
    )
    with pytest.raises(ScenarioError, match="server: found no path to client1, expected links"):
        import_topology("kollaps", Path("file.x"), name="made")
