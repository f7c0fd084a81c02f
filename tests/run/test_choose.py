"""What `auto` resolves to, and which uids a runtime has."""

from __future__ import annotations

import pytest

from testbed.run.settle import choose, users_of
from testbed.runtimes import Docker, Native


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("tcp://10.0.0.1:2375", "DOCKER_HOST is tcp://10.0.0.1:2375"),
        ("ssh://elsewhere", "DOCKER_HOST is ssh://elsewhere"),
        ("unix:///nowhere/docker.sock", "No Docker engine answers at /nowhere/docker.sock"),
    ],
)
def test_auto_is_native_where_no_local_engine_answers(
    monkeypatch: pytest.MonkeyPatch, address: str, reason: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    choice = choose(gpu=False)
    assert choice.runtime == Native(name="native")
    assert choice.why.startswith(reason)


def test_an_engine_can_use_every_uid() -> None:
    assert users_of(Docker(name="docker")).kind == "root"
