"""Docker engines of the tests that stop, die or run out of disk during a run."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.runtimes.docker.image import SOURCE_LABEL, check_image, image_name, source_hash

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow]

END_SECONDS = 180.0
DISK_BYTES = 64 << 20

SCENARIO = """\
name: docked
seed: 1
runtime: docker
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers: {count: 3, think: {mean: 20ms}}
stop: {updates: 100000000}
evaluate: {every: 50, images: 100}
"""


@pytest.fixture(scope="module")
def engine(engine: Any, own_engine: Callable[..., Any], tmp_path_factory: Any) -> Iterator[Any]:
    """An engine for this module with a copy of the machine's image."""
    image = check_image(engine)
    with own_engine(tmp_path_factory.mktemp("engine") / "dockerd.log") as own:
        load = ["docker", "--host", own.address, "load"]
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
            subprocess.run(load, stdin=saved.stdout, stdout=subprocess.DEVNULL, check=True)
        yield own


def containers(engine: Any, *, run: str) -> list[str]:
    found = engine.api.containers(all=True, filters={"label": [f"org.edge-testbed.run={run}"]})
    return sorted(one["Names"][0].removeprefix(f"/testbed-{run}-") for one in found)


def up(bed: Any, engine: Any) -> Any:
    bed.scenario("docked.yaml", SCENARIO)
    name = bed.new_name()
    return bed.start("up", "docked.yaml", "--name", name, DOCKER_HOST=engine.address)


def up_and_training(bed: Any, engine: Any) -> Any:
    begun = up(bed, engine)
    begun.wait_for_updates(20)
    return begun


def down(bed: Any, engine: Any, *names: str) -> Any:
    done = bed.run("down", *(names or ("--all",)), DOCKER_HOST=engine.address)
    assert done.status == 0, done
    return done


def no_processes(bed: Any, run: str) -> bool:
    return not [line for line in bed.remains(run) if line.startswith("process")]


def test_an_engine_stopped_and_restarted_during_a_run(bed: Any, engine: Any) -> None:
    run = up_and_training(bed, engine)
    begun = time.monotonic()
    engine.stop(signal.SIGTERM)
    done = run.end()
    assert time.monotonic() - begun < END_SECONDS
    assert done.status == HostError.exit_code
    assert "No Docker engine answers" in done.err
    assert f"Then: testbed down {run.name}" in done.err
    assert "all containers are removed" not in done.out
    state = run.folder.state()
    assert (state.state, state.exit_code) == ("failed", HostError.exit_code)
    assert "No Docker engine answers" in state.reason
    assert run.folder.log("w0").exists()
    assert json.loads(run.folder.summary.read_text())["updates"]["total"] >= 20
    engine.start()
    assert "agent" in containers(engine, run=run.name)
    assert f"{run.name}: stopped" in down(bed, engine).out
    assert containers(engine, run=run.name) == []
    assert bed.remains(run.name) == []


def test_an_engine_killed_and_restarted_during_a_run(bed: Any, engine: Any) -> None:
    run = up_and_training(bed, engine)
    engine.stop(signal.SIGKILL)
    before = run.folder.spool.stat().st_size
    run.wait_for(lambda: run.folder.spool.stat().st_size > before)  # it continues without it
    engine.start()  # which ends containers left from before
    done = run.end()
    state = run.folder.state()
    assert (done.status, state.state, state.exit_code) == (5, "failed", 5), done
    # The engine ends them in any order: the agent's container, or first that of the PS.
    reasons = "or the Docker engine was restarted", "ps: its container was stopped or removed"
    assert any(reason in state.reason for reason in reasons), state
    assert state.reason in done.err
    assert run.folder.log("w0").exists()
    down(bed, engine)
    assert containers(engine, run=run.name) == []
    assert bed.remains(run.name) == []


def test_a_run_can_be_interrupted_without_its_engine(bed: Any, engine: Any) -> None:
    run = up_and_training(bed, engine)
    engine.stop(signal.SIGKILL)
    done = run.signal(signal.SIGINT)
    assert done.status == HostError.exit_code
    assert "(interrupted: by SIGINT), but parts of it remain on this host" in done.err
    assert run.folder.state().state == "interrupted"
    assert no_processes(bed, run.name)  # the agent has ended them
    engine.start()
    assert f"{run.name}: stopped" in down(bed, engine, run.name).out
    assert containers(engine, run=run.name) == []


def test_a_run_with_a_deleted_folder_is_ended(bed: Any, engine: Any) -> None:
    bed.scenario("docked.yaml", SCENARIO)
    elsewhere = bed.path / "elsewhere"
    mine, theirs = bed.new_name(), bed.new_name()
    for name in (mine, theirs):
        words = ("--name", name, "--runs", str(elsewhere), "--detach")
        assert bed.start("up", "docked.yaml", *words, DOCKER_HOST=engine.address).end().status == 0
        controller = (elsewhere / name / "control/lock").read_text().split()[0]
        os.kill(int(controller), signal.SIGKILL)  # it would notice the deleted folder
    shutil.rmtree(elsewhere / mine)
    shutil.rmtree(bed.path / "state")  # as if both belonged to another user
    said = down(bed, engine).out.splitlines()
    assert f"{mine}: stopped" in said
    assert f"{theirs}: skipped: it is active and belongs to another user" in said
    assert containers(engine, run=mine) == []
    assert no_processes(bed, mine)
    assert len(containers(engine, run=theirs)) == 6
    down(bed, engine, str(elsewhere / theirs))
    assert containers(engine, run=theirs) == []


def import_empty_image(engine: Any) -> None:
    """An image labelled as this package's: it is checked before the first container is created."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("file"))
    repository, _, tag = image_name().partition(":")
    label = f"LABEL {SOURCE_LABEL}={source_hash()}"
    engine.api.import_image_from_data(
        packed.getvalue(), repository=repository, tag=tag, changes=[label]
    )


def fill(folder: Path) -> None:
    with suppress(OSError), (folder / "big").open("wb") as file:
        while True:
            file.write(bytes(1 << 12))
            file.flush()


def test_an_engine_with_a_full_disk(
    bed: Any, own_engine: Callable[..., Any], tmp_path: Path
) -> None:
    with own_engine(tmp_path / "dockerd.log", disk_bytes=DISK_BYTES) as small:
        import_empty_image(small)
        fill(small.folder)
        run = up(bed, small)
        done = run.end()
        assert done.status == HostError.exit_code
        assert "the Docker engine has no space left on its disk" in done.err
        assert "testbed image prune" in done.err
        state = run.folder.state()
        assert (state.state, state.exit_code) == ("failed", HostError.exit_code)
        assert "no space left" in state.reason
        assert containers(small, run=run.name) == []
        assert bed.remains(run.name) == []
