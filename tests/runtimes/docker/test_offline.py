"""Commands that an image build runs on this host: missing, failing, interrupted."""

from __future__ import annotations

import os
import signal
import tarfile
import threading
import time
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.runtimes.docker import offline, sources
from testbed.runtimes.docker.offline import run_command

WAIT_SECONDS = 30.0


def command(folder: Path, name: str, script: str) -> dict[str, str]:
    """An environment in which ``name`` is a command."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_without_mmdebstrap_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostError) as failure:
        offline.make_base(tmp_path, {"PATH": str(tmp_path)})
    assert failure.value.message == "There is no command mmdebstrap, for making the image's base."
    assert "No registry answers" in failure.value.hint
    assert "sudo apt install mmdebstrap" in failure.value.hint


def test_what_mmdebstrap_says_at_its_end_is_shown(tmp_path: Path) -> None:
    environment = command(
        tmp_path / "commands", "mmdebstrap", "seq 40; echo E: no unshare >&2; exit 25"
    )
    with pytest.raises(HostError) as failure:
        offline.make_base(tmp_path, environment)
    lines = failure.value.message.splitlines()
    assert lines[0] == "`mmdebstrap` failed making the image's base:"
    assert [line.strip() for line in lines[1:]] == [*map(str, range(30, 41)), "E: no unshare"]


def test_mmdebstrap_works_below_the_folder_that_is_removed(tmp_path: Path) -> None:
    environment = command(
        tmp_path / "commands", "mmdebstrap", 'for word; do last=$word; done; echo "$TMPDIR" > $last'
    )
    archive = offline.make_base(tmp_path, environment)
    assert archive.read_text() == f"{tmp_path}\n"
    assert archive.parent == tmp_path


def test_an_interrupted_command_ends_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    environment = command(
        tmp_path / "commands",
        "patient",
        f"sleep 600 & echo $! > {pid_file}.new\nmv {pid_file}.new {pid_file}; wait",
    )

    def interrupt() -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_command(["patient"], doing="waiting", environment=environment)
    thread.join()
    status = Path(f"/proc/{int(pid_file.read_text())}/stat")
    deadline = time.monotonic() + WAIT_SECONDS
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_wheels_are_those_of_the_images_python_and_of_torch_without_cuda(tmp_path: Path) -> None:
    """Needs a package index; the one machine that has none skips."""
    import importlib.metadata

    if not importlib.metadata.version("torch").endswith("+cpu"):
        pytest.skip("needs a package index that has a torch without CUDA")
    archive = offline.make_wheels(
        tmp_path, sources.image_sources(), torch_index="http://127.0.0.1:1/cpu"
    )
    with tarfile.open(archive) as packed:
        names = {Path(name).name for name in packed.getnames()}
        assert {Path(name).parent.name for name in packed.getnames()} == {offline.WHEEL_FOLDER}
    (torch,) = (name for name in names if name.startswith("torch-"))
    assert "+cpu-cp311-" in torch
    assert any(name.startswith("pip-") for name in names)
    assert not any(name.startswith(("nvidia", "pandas", "scikit")) for name in names)
    assert [file.name for file in (tmp_path / "wheels").iterdir()] == []
