from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import testbed
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import (
    Circumstances,
    describe_commit,
    describe_host,
    parse_torch_build,
    torch_build,
    write_environment,
)

PACKAGE = Path(testbed.__file__).parent


def test_everything_is_written(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "r", scenario="s", text="", classes=[], now=0.0)
    circumstances = Circumstances(
        argv=["testbed", "up", "s.yaml"],
        time_scale=2.0,
        launch="warm",
        runtime="native",
        uid_mode="own uid per worker",
        offload="auto",
        left_out=["w0 up: delay 30ms"],
    )
    write_environment(folder, circumstances, package=PACKAGE)
    content = json.loads(folder.environment.read_text())
    assert content["format"] == 1
    assert content["argv"] == ["testbed", "up", "s.yaml"]
    assert content["time_scale"] == 2.0
    assert content["uid_mode"] == "own uid per worker"
    assert content["left_out"] == ["w0 up: delay 30ms"]
    assert content["host"]["cores"] >= 1
    assert content["host"]["memory_bytes"] > 0
    assert content["software"]["numpy"]
    assert content["software"]["python"].count(".") == 2


def test_a_host_with_little_information(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("")
    (tmp_path / "meminfo").write_text("")
    host = describe_host(tmp_path)
    assert host["cpu"] is None
    assert host["memory_bytes"] is None


def test_the_build_of_torch() -> None:
    cpu = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
    assert parse_torch_build(cpu) == "cpu"
    assert parse_torch_build("cuda: Optional[str] = '12.8'\nhip = None\n") == "cuda 12.8"
    assert parse_torch_build("cuda = None\nhip: Optional[str] = '6.2'\n") == "rocm 6.2"
    assert torch_build() is not None


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    assert describe_commit(tmp_path) is None
    git(tmp_path, "init")
    assert describe_commit(tmp_path) is None
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    found = describe_commit(tmp_path)
    assert found is not None
    assert len(found["hash"]) == 40
    assert found["changed"] is False
    (tmp_path / "file").write_text("two")
    found = describe_commit(tmp_path)
    assert found is not None
    assert found["changed"] is True
