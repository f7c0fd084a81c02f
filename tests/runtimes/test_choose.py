"""The driver of a run is found by what its folder says."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.runtimes import Docker, Native
from testbed.runtimes.choose import choose, runtime_of, users_of
from testbed.telemetry.folder import RunFolder


def folder(place: Path, text: str) -> RunFolder:
    made = RunFolder(place / "run")
    made.path.mkdir()
    made.scenario.write_text(text)
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runtime:\n  name: native\n", Native(name="native")),
        ("runtime:\n  name: docker\n", Docker(name="docker")),
        ("runtime:\n  name: docker\n  image: mine:1\n", Docker(name="docker", image="mine:1")),
        ("runtime: {name: simulated}\n", Native(name="native")),
        ("runtime: {name: podman}\n", Native(name="native")),
        ("name: old\n", Native(name="native")),
        ("- a list\n", Native(name="native")),
        ("runtime: [\n", Native(name="native")),
        ("", Native(name="native")),
    ],
)
def test_what_made_the_containers_of_a_run(tmp_path: Path, text: str, expected: object) -> None:
    assert runtime_of(folder(tmp_path, text)) == expected


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    assert runtime_of(RunFolder(tmp_path / "gone")) == Native(name="native")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("tcp://10.0.0.1:2375", "DOCKER_HOST is tcp://10.0.0.1:2375"),
        ("ssh://elsewhere", "DOCKER_HOST is ssh://elsewhere"),
        ("unix:///nowhere/docker.sock", "No Docker engine answers at /nowhere/docker.sock"),
    ],
)
def test_native_is_taken_where_no_engine_of_this_machine_answers(
    monkeypatch: pytest.MonkeyPatch, address: str, reason: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    choice = choose(gpu=False)
    assert choice.runtime == Native(name="native")
    assert choice.why.startswith(reason)


def test_an_engine_has_every_uid() -> None:
    assert users_of(Docker(name="docker")).kind == "root"
