"""Links of a workload's nodes: recordings, tables and laws, by nodes and by the files they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.plan.workload import plan_workload
from testbed.run.prepare_workload import with_files
from testbed.scenario.dump import dump_data
from testbed.scenario.load_workload import load_any, load_workload
from testbed.scenario.own_code import names_of
from testbed.scenario.traces import followings, own_copy, written_links
from testbed.scenario.workload import Workload
from testbed.scenario.workload_links import node_links

TEXT = """\
name: moving
seed: 4
workload:
  server: {command: [serve], link: {down: {delay: {trace: delay.csv, offset: none}}}}
  car:
    command: [ask]
    count: 4
    link: {up: {rate: {trace: rate.csv}}, down: {rate: {each: "uniform(0.5,1.5)", mean: 8mbit}}}
    classes:
      plain: {count: 1}
      listed: {count: 2, link: {up: {rate: {table: {file: ups.csv, column: up}}}}}
      more: {count: 1}
"""


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    (tmp_path / "rate.csv").write_text("time_seconds,bits_per_second\n0,2000000\n1,800000\n4,0\n")
    (tmp_path / "delay.csv").write_text("time_seconds,delay_seconds\n0,0.02\n1,0.04\n2,0\n")
    (tmp_path / "ups.csv").write_text("up\n1mbit\n3mbit\n")
    (tmp_path / "moving.yaml").write_text(TEXT)
    loaded = load_any(tmp_path / "moving.yaml")
    assert isinstance(loaded, Workload)
    return loaded


def test_which_nodes_have_which_link(workload: Workload) -> None:
    found = {".".join(one.path): one.nodes for one in written_links(workload)}
    assert found == {
        "workload.server.link": (0,),
        "workload.car.link": (1, 4),
        "workload.car.classes.listed.link": (2, 3),
    }


def test_each_node_has_the_mean_of_its_recording_its_row_or_its_draw(workload: Workload) -> None:
    """(1 s x 2 mbit/s + 3 s x 0.8 mbit/s) / 4 s = 1.1 mbit/s, and (20 ms + 40 ms) / 2 = 30 ms."""
    server, first, second, third, last = node_links(workload)
    assert server.down.delay == pytest.approx(0.03)
    assert (first.up.rate, last.up.rate) == (pytest.approx(1.1e6), pytest.approx(1.1e6))
    assert (second.up.rate, third.up.rate) == (1e6, 3e6)
    assert first.down.rate != last.down.rate
    planned = plan_workload(workload, "r").nodes
    assert [one.link.up.rate for one in planned[2:4] if one.link is not None] == [1e6, 3e6]


def test_the_nodes_of_a_link_follow_its_recording_from_places_of_their_own(
    workload: Workload, tmp_path: Path
) -> None:
    found = followings(workload, lambda name: tmp_path / name)
    assert [(one.worker, one.direction, one.what) for one in found] == [
        *((0, "down", "delay"), (1, "up", "rate"), (4, "up", "rate")),
    ]
    assert found[0].offset == 0.0
    assert found[1].offset != found[2].offset


def test_a_run_has_copies_of_the_files(workload: Workload, tmp_path: Path) -> None:
    own, copied = with_files(workload, tmp_path)
    assert {file.name for file in copied} == {"rate.csv", "delay.csv", "ups.csv"}
    assert set(names_of(own).values()) == {f"custom/{file.name}" for file in copied}
    run = tmp_path / "run"
    (run / "custom").mkdir(parents=True)
    for file in copied:
        (run / "custom" / file.name).write_bytes(file.read_bytes())
    dumped = own.model_dump(mode="json", by_alias=True, exclude_none=True)
    (run / "scenario.yaml").write_text(dump_data(dumped, "scenario"))
    again = load_workload(run / "scenario.yaml")
    assert node_links(again) == node_links(own)
    beside = followings(workload, lambda name: tmp_path / name)
    assert followings(again, lambda name: own_copy(run, name)) == beside
    assert load_any(run / "scenario.yaml") == again
