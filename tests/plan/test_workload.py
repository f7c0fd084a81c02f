"""The nodes of a workload: addresses, limits, links, commands and environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.plan.nodes import role_of
from testbed.plan.workload import plan_workload
from testbed.run.prepare_workload import with_files
from testbed.run.probe import shaped_links
from testbed.scenario.load_workload import load_any
from testbed.scenario.workload import Workload
from testbed.values.laws import Law
from testbed.values.seeds import stream
from testbed.values.units import Rate, Size

TEXT = """\
name: pair
workload:
  server:
    command: [serve, "{port:web}"]
    ports: {web: 8000}
    end: fatal
    cpu_weight: 10
  client:
    count: 3
    command: [ask, "{server:web}", "{index}"]
    environment: {OTHERS: "{client0},{client2}"}
    files: [ask.py, data]
    memory: 64MiB
    link: {down: {rate: 8mbit}}
    classes:
      fast: {count: 2, link: {up: {rate: 2mbit}}}
      slow: {count: 1, cpu: 0.5, memory: 32MiB}
"""


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    (tmp_path / "pair.yaml").write_text(TEXT)
    (tmp_path / "ask.py").write_text("print(1)\n")
    (tmp_path / "data").mkdir()
    loaded = load_any(tmp_path / "pair.yaml")
    assert isinstance(loaded, Workload)
    return loaded


def test_every_node_has_an_address_limits_and_a_link(workload: Workload) -> None:
    made = plan_workload(workload, "r1")
    assert [node.name for node in made.nodes] == ["server", "client0", "client1", "client2"]
    addresses = [node.link.address for node in made.nodes if node.link]
    assert addresses == ["10.77.0.1", "10.77.0.2", "10.77.0.3", "10.77.0.4"]
    assert [node.uid for node in made.nodes] == [20010, 20011, 20012, 20013]
    assert [node.device_class for node in made.devices] == ["server", "fast", "fast", "slow"]
    assert {node.part for node in made.nodes} == {"peer"}
    fast, slow = made.node("client1"), made.node("client2")
    assert fast.link and (fast.link.up.rate, fast.link.down.rate) == (Rate(2e6), None)
    assert slow.link and (slow.link.up.rate, slow.link.down.rate) == (None, Rate(8e6))
    assert [(node.cpu, node.memory) for node in (fast, slow)] == [
        (None, Size(64 * 2**20)),
        (0.5, Size(32 * 2**20)),
    ]
    assert [node.end for node in made.nodes] == ["fatal", "final", "final", "final"]
    assert [node.cpu_weight for node in made.nodes] == [10, 1, 1, 1]
    assert (made.launch, made.workers) == ("cold", ())


def test_commands_and_environments_are_filled_in(workload: Workload) -> None:
    made = plan_workload(workload, "r1")
    assert made.node("server").command == ("serve", "8000")
    assert made.node("client1").command == ("ask", "10.77.0.1:8000", "1")
    environment = made.node("client1").environment
    assert environment == {"HOME": "/run/testbed/home", "OTHERS": "10.77.0.2,10.77.0.4"}


def test_every_pair_of_nodes_can_talk(workload: Workload) -> None:
    made = plan_workload(workload, "r1")
    node = made.node("client0")
    others = [other.name for other in role_of(node).neighbours(node, made)]
    assert others == ["server", "client1", "client2"]


def test_files_are_copied_and_folders_are_shown(workload: Workload, tmp_path: Path) -> None:
    own, copied = with_files(workload, tmp_path)
    assert copied == (tmp_path / "ask.py",)
    assert own.workload["client"].files == ("custom/ask.py", str(tmp_path / "data"))


def test_a_python_environment_is_shown_with_its_interpreter(tmp_path: Path) -> None:
    real = tmp_path / "pythons" / "3.12" / "bin" / "python3"
    real.parent.mkdir(parents=True)
    real.touch(0o755)
    bin_folder = tmp_path / "env" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").symlink_to(real)
    file = tmp_path / "one.yaml"
    file.write_text("name: one\nworkload: {job: {command: [python], python: env}}\n")
    loaded = load_any(file)
    assert isinstance(loaded, Workload)
    own, _ = with_files(loaded, tmp_path)
    (node,) = plan_workload(own, "r1").nodes
    assert node.folders == (str(tmp_path / "env"), str(tmp_path / "pythons" / "3.12"))
    assert node.environment["PATH"].startswith(f"{bin_folder}:/usr/local/sbin:")
    assert node.environment["VIRTUAL_ENV"] == str(tmp_path / "env")


def test_links_may_be_drawn_for_each_node(tmp_path: Path) -> None:
    file = tmp_path / "drawn.yaml"
    law = '{each: "uniform(0.5,1.5)", mean: 10mbit}'
    file.write_text(
        "name: drawn\nseed: 3\nworkload: {job: {command: [x], count: 40, "
        f"link: {{up: {{rate: {law}}}, down: {{rate: 5mbit}}}}}}}}\n"
    )
    loaded = load_any(file)
    assert isinstance(loaded, Workload)
    links = [node.link for node in plan_workload(loaded, "r1").nodes if node.link]
    rates = [float(link.up.rate or 0) for link in links]
    draws = stream(3, "job7", "device", "up.rate")
    assert rates[7] == Law.parse("uniform(0.5,1.5)").draw(draws) * 10e6
    assert len(set(rates)) == 40
    assert 5e6 <= min(rates) < max(rates) <= 15e6
    assert {link.down.rate for link in links} == {Rate(5e6)}


def test_links_between_switches_are_planned(tmp_path: Path) -> None:
    """Their MTU is the largest of any node's, so that no switch drops a frame for its size."""
    (tmp_path / "sites.yaml").write_text("""\
name: sites
workload:
  server: {command: [serve], link: {mtu: 9000}}
  client:
    command: [ask]
    count: 2
    switch: edge
    classes: {near: {count: 1}, far: {count: 1, switch: far}}
links:
  uplink: {between: [edge, core], up: {rate: 2mbit}, down: {rate: 8mbit}}
  wan: {between: [far, edge], up: {delay: 30ms}, down: {delay: 30ms}}
""")
    loaded = load_any(tmp_path / "sites.yaml")
    assert isinstance(loaded, Workload)
    made = plan_workload(loaded, "r1")
    assert [node.link.switch for node in made.nodes if node.link] == ["core", "edge", "far"]
    uplink, wan = made.network.trunks
    assert (uplink.name, uplink.ends, uplink.link.mtu) == ("uplink", ("edge", "core"), 9000)
    assert (uplink.link.up.rate, uplink.link.down.rate) == (Rate(2e6), Rate(8e6))
    assert (wan.ends, wan.link.up.needs_netem) == (("far", "edge"), True)
    assert made.network.offload == "on"  # no loss, and no rate below a delay
    assert len({trunk.link.seed for trunk in made.network.trunks}) == 2
    assert [one.owner for one in shaped_links(made)] == ["link uplink", "link wan"]
