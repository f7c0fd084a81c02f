"""docker/offline.sh on this host, with its commands missing, failing or interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.runtimes.docker.build import made_here
from testbed.runtimes.docker.image import (
    BASE,
    CONSTRAINTS,
    GPU_WHEELS,
    KAFKA_BASE,
    WHEELS,
    image_sources,
)

WAIT_SECONDS = 180.0
NO_INDEX = "http://127.0.0.1:1/cpu"
SOURCES = image_sources()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands that comes first in PATH."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def add(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def make(part: str) -> str:
    with made_here(part, SOURCES, torch_index=NO_INDEX) as archive:
        return archive.read_text()


@pytest.mark.parametrize("part", [BASE, KAFKA_BASE])
def test_without_mmdebstrap_the_error_says_how_to_install_it(
    part: str, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (commands / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(commands))
    with pytest.raises(HostError) as failure:
        make(part)
    first, *lines = failure.value.message.splitlines()
    assert first == f"docker/offline.sh failed to create the {part}:"
    assert lines == ["  There is no command mmdebstrap."]
    assert "No registry answers" in failure.value.hint
    assert "sudo apt install mmdebstrap" in failure.value.hint


def test_the_last_output_of_mmdebstrap_is_shown(commands: Path) -> None:
    add(commands, "mmdebstrap", "seq 40; echo E: no unshare >&2; exit 25")
    with pytest.raises(HostError) as failure:
        make(BASE)
    lines = failure.value.message.splitlines()
    assert lines[0] == "docker/offline.sh failed to create the base:"
    assert [line.strip() for line in lines[1:]] == [*map(str, range(30, 41)), "E: no unshare"]


def test_mmdebstrap_works_in_the_folder_that_is_removed(commands: Path, tmp_path: Path) -> None:
    add(commands, "mmdebstrap", 'for word; do last=$word; done; echo "$TMPDIR" > $last')
    folder = Path(make(BASE).strip())
    assert folder.parent == tmp_path
    assert not folder.exists()


def test_the_base_of_a_broker_has_java(commands: Path) -> None:
    add(commands, "mmdebstrap", 'for word; do last=$word; done; echo "$@" > $last')
    assert "--include=openjdk-17-jre-headless" in make(KAFKA_BASE)
    assert "--include=python3,tini,iperf3,iputils-ping" in make(BASE)


def test_an_interrupted_command_ends_with_its_children(commands: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    waits = f"sleep 600 & echo $! > {pid_file}.new\nmv {pid_file}.new {pid_file}; wait"
    add(commands, "mmdebstrap", waits)

    def interrupt() -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        make(BASE)
    thread.join()
    status = Path(f"/proc/{int(pid_file.read_text())}/stat")
    deadline = time.monotonic() + WAIT_SECONDS
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["commands", "pid"]


def test_torch_never_includes_cuda() -> None:
    unpinned = {**SOURCES, CONSTRAINTS: b"numpy==2.4\n"}
    with (
        pytest.raises(HostError, match=r"constraints.txt pins no version of torch") as failure,
        made_here(WHEELS, unpinned, torch_index=NO_INDEX),
    ):
        pass
    assert "CPU build of torch" in failure.value.hint


def test_the_torch_for_gpus_is_the_build_without_a_name(commands: Path, tmp_path: Path) -> None:
    """pip prefers torch==2.13.0+cpu to torch==2.13.0 where both are found."""
    python = commands / "recorder"
    add(commands, "recorder", f'echo "$@" > {tmp_path}/asked; exit 1')
    for part, asked in ((WHEELS, "pip torch==2.13.0+cpu"), (GPU_WHEELS, "pip torch===2.13.0")):
        words = ["sh", str(Path(__file__).parents[3] / "docker/offline.sh"), part, str(tmp_path)]
        for name in ("constraints.txt", "docker/requirements.txt"):
            (tmp_path / Path(name).name).write_bytes(SOURCES[name])
        environment = {**os.environ, "PYTHON": str(python), "TORCH_INDEX": NO_INDEX}
        assert subprocess.run(words, env=environment, check=False).returncode == 1
        assert (tmp_path / "asked").read_text().strip().endswith(asked)


@pytest.mark.slow
def test_wheels_fit_the_images_python_and_torch_has_no_cuda() -> None:
    """Needs a package index; skipped without one."""
    import importlib.metadata

    if not importlib.metadata.version("torch").endswith("+cpu"):
        pytest.skip("needs a package index that has a torch without CUDA")
    with made_here(WHEELS, SOURCES, torch_index=NO_INDEX) as archive:
        with tarfile.open(archive) as packed:
            files = [Path(entry.name) for entry in packed if entry.isfile()]
        assert {file.parent.name for file in files} == {"srv"}
        assert not (archive.parent / "srv").exists()
    names = {file.name for file in files}
    (torch,) = (name for name in names if name.startswith("torch-"))
    assert "+cpu-cp311-" in torch
    assert any(name.startswith("pip-") for name in names)
    assert not any(name.startswith(("nvidia", "pandas", "scikit")) for name in names)
