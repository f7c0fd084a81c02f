"""External damage to a run: a clear error or a clean end, and no partial run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import BROKEN_PIPE

pytestmark = [pytest.mark.root, pytest.mark.slow]
ENDED = (0, 6)
ENDLESS = ("--set", "stop.updates=1000000")


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a separate file system over the folder of runs."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / "runs"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_disk_without_space_for_the_run_folder(
    bed: Any, name: str, tmpfs: Callable[[str], Path]
) -> None:
    runs = tmpfs("size=12k")
    up = bed("up", bed.scenario, "--name", name, status=3)
    assert "No space left on device" in up.stderr
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize("size", ["20k", "100k"], ids=["at the start", "in training"])
def test_a_full_disk(bed: Any, name: str, tmpfs: Callable[[str], Path], size: str) -> None:
    tmpfs(f"size={size}")
    up = bed("up", bed.scenario, "--name", name, *ENDLESS, status=(3, 5))
    assert "No space left on device" in up.stderr
    assert "Traceback" not in up.stderr
    assert bed.state(name) != "finished"
    assert bed.leftovers(name) == []


def test_a_read_only_folder_of_runs(bed: Any, name: str, tmpfs: Callable[[str], Path]) -> None:
    tmpfs("ro")
    up = bed("up", bed.scenario, "--name", name, status=3)
    assert "Read-only file system" in up.stderr
    assert "--runs" in up.stderr
    assert "testbed doctor" in up.stderr
    doctor = bed("doctor", bed.scenario, status=3)
    assert "cannot be written to" in doctor.stdout


@pytest.mark.parametrize("evaluations", [0, 3], ids=["at once", "with updates to write down"])
@pytest.mark.parametrize("runtime", ["native", "simulated"])
def test_a_run_folder_that_is_deleted(bed: Any, name: str, runtime: str, evaluations: int) -> None:
    up = bed.start("up", bed.scenario, "--runtime", runtime, "--name", name, *ENDLESS)
    bed.wait_until_training(name)
    rows = bed.runs / name / "evaluations.csv"
    bed.wait_until(lambda: len(rows.read_text().splitlines()) > evaluations)
    while (bed.runs / name).exists():  # the run may recreate a file
        shutil.rmtree(bed.runs / name, ignore_errors=True)
    _, errors = up.communicate(timeout=180)
    assert up.returncode == 3
    assert "was deleted while the run was active" in errors
    assert bed.leftovers(name) == []


@pytest.mark.parametrize("runtime", ["native", "simulated"])
def test_a_closed_pipe(bed: Any, name: str, runtime: str) -> None:
    with bed.start("up", bed.scenario, "--runtime", runtime, "--name", name, *ENDLESS) as up:
        bed.wait_until_training(name)
        up.stdout.close()
        assert up.stderr.read() == ""
    assert up.returncode == BROKEN_PIPE
    assert bed.state(name) == "interrupted"


def test_a_simulation_on_a_full_disk(bed: Any, name: str, tmpfs: Callable[[str], Path]) -> None:
    tmpfs("size=100k")
    up = bed("up", bed.scenario, "--runtime", "simulated", "--name", name, *ENDLESS, status=3)
    assert "No space left on device" in up.stderr
    assert "Traceback" not in up.stderr
    assert bed.state(name) != "finished"


@pytest.mark.nightly
def test_five_runs_at_once(bed: Any, name: str) -> None:
    few = ("--set", "stop.updates=20")
    names = [f"{name}-{index}" for index in range(5)]
    runs = {one: bed.start("up", bed.scenario, "--name", one, *few) for one in names}
    for one, up in runs.items():
        _, errors = up.communicate(timeout=60)
        assert up.returncode in ENDED, errors
        assert bed.state(one) == "finished"
        assert bed.leftovers(one) == []


def test_two_runs_without_a_name(bed: Any) -> None:
    runs = [bed.start("up", bed.scenario) for _ in range(2)]
    for up in runs:
        _, errors = up.communicate(timeout=60)
        assert up.returncode in ENDED, errors
    folders = [path.parent.name for path in bed.runs.glob("*/run.json")]
    assert len(folders) == 2
    assert {bed.state(folder) for folder in folders} == {"finished"}


def test_a_host_without_enough_memory(bed: Any, name: str) -> None:
    many = ("--workers", "1022", "--set", "launch=cold")
    up = bed("up", bed.scenario, "--name", name, *many, status=3)
    assert "not enough memory for 1,022 workers" in up.stderr
    assert "--workers" in up.stderr
    assert not bed.runs.exists()
