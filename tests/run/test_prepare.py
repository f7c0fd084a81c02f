"""Files created before a run starts, and the order of refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError, ScenarioError
from testbed.host.users import Users
from testbed.network.netem import kernel_has_netem
from testbed.plan.make import plan
from testbed.plan.written import read_plan
from testbed.run.prepare import RunRequest, prepare
from testbed.runtimes.native.driver import NativeDriver
from testbed.scenario import load_text
from testbed.telemetry.registry import Registry

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z
TEXT = """\
name: quick
algorithm: asgd
model: {name: custom, file: nets/net.py, class: Net}
dataset: digits
workers: {count: 2}
stop: {updates: 10}
"""

pytestmark = pytest.mark.root


@pytest.fixture
def asked(tmp_path: Path) -> RunRequest:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "net.py").write_text("Net = None\n")
    return RunRequest(
        scenario=load_text(TEXT),
        beside=tmp_path,
        runs=tmp_path / "runs",
        name=None,
        argv=("testbed", "up", "quick.yaml"),
        environment={"XDG_STATE_HOME": str(tmp_path / "state")},
        home=tmp_path,
        now=NOON,
    )


def prepared(request: RunRequest) -> Any:
    planned = plan(request.scenario, "any")
    data = request.runs / "data"
    return prepare(request, planned, data, driver=NativeDriver(), users=Users("root"))


def test_a_folder_has_everything_that_the_nodes_need(asked: RunRequest) -> None:
    setup = prepared(asked)
    folder = setup.folder
    assert folder.name == "quick-0101-120000"
    assert (folder.path / "custom" / "net.py").read_text() == "Net = None\n"
    environment = json.loads(folder.environment.read_text())
    assert environment["argv"] == ["testbed", "up", "quick.yaml"]
    assert environment["left_out"] == []
    assert Registry.of_user(asked.environment, asked.home).runs() == [folder.path]
    assert setup.plan.run == folder.name
    assert read_plan(folder) == setup.plan


def test_runs_of_the_same_second_get_different_names(asked: RunRequest) -> None:
    names = [prepared(asked).folder.name for _ in range(3)]
    assert names == [f"quick-0101-120000{end}" for end in ("", "-2", "-3")]


def test_a_name_given_by_the_user_is_used_or_refused(asked: RunRequest) -> None:
    named = replace(asked, name="mine")
    assert prepared(named).folder.name == "mine"
    with pytest.raises(ScenarioError, match="--name: found mine, expected a name that no run"):
        prepared(named)


def test_missing_kernel_features_are_refused_before_anything_is_created(asked: RunRequest) -> None:
    if kernel_has_netem():
        pytest.skip("this kernel has netem")
    text = TEXT + "ps: {link: {up: {delay: 10ms}}}\n"
    with pytest.raises(HostError, match=r"no netem, which is needed for ps: up\.delay 10ms"):
        prepared(replace(asked, scenario=load_text(text)))
    assert not asked.runs.exists()
    warned = load_text(text + "network: {missing: warn}\n")
    setup = prepared(replace(asked, scenario=warned))
    environment = json.loads(setup.folder.environment.read_text())
    assert environment["left_out"] == ["ps: up.delay 10ms"]


def test_every_run_has_its_own_secret(asked: RunRequest) -> None:
    secrets = {prepared(asked).secret for _ in range(3)}
    assert len(secrets) == 3
    assert {len(secret) for secret in secrets} == {32}
