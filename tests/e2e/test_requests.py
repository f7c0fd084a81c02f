"""``testbed plan`` shows what ``testbed up`` sends: recorded here, and compared in full."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import LAUNCH, LaunchSpec
from testbed.runtimes.agent.settings import AgentSettings
from testbed.runtimes.docker import driver as docker_driver
from testbed.runtimes.docker.containers import Container

TEXT = """\
name: sent
seed: 3
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 2
  classes: {fast: {share: 0.5, link: {up: {rate: 50mbit}}}, slow: {share: 0.5}}
programs: {aside: {command: [sleep, "1000"], cpu: 0.5}}
stop: {updates: 40}
evaluate: {every: 20, images: 100}
"""
VERDICT = 6
HOST_TELLS = ("hierarchies",)
"""Part of the agent's start request."""

pytestmark = [pytest.mark.slow]


def record(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    """The requests that a run in this process sends from now on; they are still sent."""
    sent: list[tuple[str, str, Any]] = []
    launch, create = AgentClient.begin_launch, docker_driver.make_all
    tell = AgentSettings.to_json

    def launching(client: AgentClient, asked: LaunchSpec) -> Any:
        if asked.node.role != "probe":
            body = LAUNCH.dump_python(asked, mode="json") | {"container": None}
            sent.append(("agent", f"launch {asked.node.name}", body))
        return launch(client, asked)

    def creating(engine: Any, wanted: list[Container], *rest: Any, **options: Any) -> Any:
        sent.extend(
            ("engine", f"create {one.whose}", one.body)
            for one in wanted
            if not one.whose.startswith("probe")
        )
        return create(engine, wanted, *rest, **options)

    def telling(settings: AgentSettings) -> str:
        text = tell(settings)
        sent.append(("agent", "start", json.loads(text)))
        return text

    monkeypatch.setattr(AgentClient, "begin_launch", launching)
    monkeypatch.setattr(docker_driver, "make_all", creating)
    monkeypatch.setattr(AgentSettings, "to_json", telling)
    return sent


def comparable(sent: list[tuple[str, str, Any]], *, secret: str, data: str) -> dict[Any, Any]:
    """Requests by kind, without values that are only known at the start."""
    found = {}
    for to, name, body in sent:
        text = json.dumps(body).replace(secret, "SECRET").replace(data, "DATA")
        text = re.sub(r'"token": "(\w+):[0-9a-f]{64}"', r'"token": "of \1"', text)
        found[to, name] = {
            key: value for key, value in json.loads(text).items() if key not in HOST_TELLS
        }
    return found


def test_the_planned_requests_are_sent(
    tmp_path: Path,
    runtime: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    name = f"sent-{os.getpid()}"  # the other runtime may be tested at the same time
    Path("sent.yaml").write_text(TEXT.replace("name: sent", f"name: {name}"))
    assert main(["plan", "sent.yaml", "--runtime", runtime, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["requests"]
    sent = record(monkeypatch)
    assert main(["up", "sent.yaml", "--runtime", runtime, "--name", name]) in {0, VERDICT}
    launched = {name: body for _, name, body in sent if name in ("launch ps", "launch w0")}
    (data,) = (
        one["source"] for one in launched["launch w0"]["mounts"] if one["target"].endswith("/data")
    )
    secret = launched["launch ps"]["arguments"]["token"]
    expected = [(one["to"], one["name"], one["body"]) for one in planned]
    found = comparable(sent, secret=secret, data=data)
    if runtime == "docker":  # the agent's container is listed as its request to the engine
        found.pop(("agent", "start"))
        found.pop(("engine", "create the agent"), None)
        expected = [one for one in expected if one[1] != "create the agent"]
    assert found == comparable(expected, secret="drawn by up", data="/prepared by up")
