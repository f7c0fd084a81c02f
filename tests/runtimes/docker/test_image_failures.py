"""Builds, most of them failing, in an engine started for the test, on a nearly empty base image."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from polling import LONGEST_SECONDS, wait_until

from testbed.errors import HostError
from testbed.runtimes.docker.build import Builder, import_archive
from testbed.runtimes.docker.image import (
    BASE,
    DEPENDENCIES,
    GPU_WHEELS,
    NODES,
    PART_LABEL,
    STAGE,
    WHEELS,
    check_image,
    current_images,
    image_name,
    image_sources,
    list_images,
    part_name,
    remove_images,
)

ROOT = Path(__file__).parents[3]
DISK_BYTES = 128 << 20

HANGS = "sleep 600"
FAILS = "echo no more patience; exit 7"
FILLS = "cat /dev/zero > /big"
INSTALLS = "mkdir -p /opt/testbed/bin $packages/torch/bin; cp $0 /opt/testbed/bin/python"

TOOLS = ("sh", "sleep", "cat", "mkdir", "cp", "mv", "rm", "find", "grep")
"""Those that a build needs of its base."""

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def small_engine(own_engine: Callable[..., Any], tmp_path_factory: Any) -> Iterator[Any]:
    """An engine for this module, on a small disk in memory."""
    log = tmp_path_factory.mktemp("engine") / "dockerd.log"
    with own_engine(log, disk_bytes=DISK_BYTES) as engine:
        yield engine


@pytest.fixture
def engine(small_engine: Any) -> Iterator[Any]:
    """That engine; it is emptied after the test."""
    yield small_engine
    api = small_engine.api
    for container in containers(small_engine):
        api.remove_container(container["Id"], force=True)
    for image in api.images():
        api.remove_image(image["Id"], force=True)
    api.prune_images()
    assert api.images(all=True) == []


def import_image(engine: Any, name: str, folder: Path, label: str) -> None:
    archive = folder.with_suffix(".tar")
    with tarfile.open(archive, "w") as packed:
        packed.add(folder, ".")
    repository, _, tag = name.partition(":")
    engine.api.import_image(
        str(archive), repository=repository, tag=tag, changes=[f"LABEL {PART_LABEL}={label}"]
    )


def import_inputs(engine: Any, folder: Path, on_install: str) -> None:
    """Load the base and the wheels of a build into an engine; ``on_install`` replaces pip."""
    base = folder / "base"
    for name in ("bin", "usr/bin", "usr/sbin", "tmp"):
        (base / name).mkdir(parents=True)
    needed = [shutil.which(name) for name in TOOLS]
    libraries = subprocess.run(
        ["ldd", *map(str, needed)], capture_output=True, text=True, check=True
    ).stdout
    words = {word for word in libraries.split() if word.startswith("/") and word[-1] != ":"}
    for file in {*map(str, needed), *words}:
        (base / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, base / file[1:])
    if not (base / "bin/sh").exists():
        (base / "bin/sh").symlink_to(str(shutil.which("sh")))
    script = (
        "#!/bin/sh\npackages=/opt/testbed/packages\n"
        f'case "$1 $2" in "-m venv") {on_install};; "-c "*) echo $packages;; esac\n'
    )
    for name in ("tini", "python3"):
        (base / "usr/bin" / name).write_text(script)
        (base / "usr/bin" / name).chmod(0o755)
    wheels = folder / "wheels"
    (wheels / "srv").mkdir(parents=True)
    import_image(engine, part_name(BASE, image_sources()), base, BASE)
    import_image(engine, part_name(WHEELS, image_sources()), wheels, WHEELS)


def parts(engine: Any) -> list[str]:
    """The purposes of the engine's named images."""
    return sorted(image.part for image in list_images(engine.api) if image.name)


def containers(engine: Any) -> list[Any]:
    found: list[Any] = engine.api.containers(all=True)
    return found


def build(engine: Any, *, offline: bool = True, **variant: Any) -> list[str]:
    """Build, and return the messages to the user."""
    said: list[str] = []
    Builder(engine.api, offline=offline, say=said.append, log=said.append).nodes(**variant)
    return said


def start_build(engine: Any, tmp_path: Path) -> subprocess.Popen[str]:
    """The command line."""
    (tmp_path / "work").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "testbed", "image", "build", "--offline"],
        env={
            **os.environ,
            "DOCKER_HOST": engine.address,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(tmp_path / "work"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def building(engine: Any, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command line, once its build hangs during installation."""
    process = start_build(engine, tmp_path)

    def hangs() -> bool:
        assert process.poll() is None, process.communicate()
        return any("install.sh" in container["Command"] for container in containers(engine))

    try:
        wait_until(hangs)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_failed_installation_is_reported_with_its_last_output(
    engine: Any, tmp_path: Path
) -> None:
    import_inputs(engine, tmp_path, FAILS)
    with pytest.raises(HostError) as failure:
        build(engine)
    assert "The Docker engine failed building edge-testbed-dependencies:" in str(failure.value)
    assert "no more patience" in str(failure.value)
    assert "non-zero code: 7" in str(failure.value)
    assert parts(engine) == [BASE, WHEELS]
    assert containers(engine) == []


def test_a_build_waits_for_the_end_of_another(engine: Any, tmp_path: Path) -> None:
    """Which would otherwise remove its stages."""
    import_inputs(engine, tmp_path, HANGS)
    with building(engine, tmp_path) as first, start_build(engine, tmp_path) as second:
        assert second.stderr is not None
        try:
            assert second.stderr.readline().startswith("waiting for the end of another build")
            first.kill()
            assert second.stderr.readline().startswith("no registry answers")
        finally:
            second.kill()
    wait_until(lambda: not containers(engine))


@pytest.mark.nightly
def test_a_build_keeps_the_packages_of_another_version(engine: Any, tmp_path: Path) -> None:
    """And those that it was given; its own stages are removed."""
    import_inputs(engine, tmp_path, INSTALLS)
    import_image(engine, "edge-testbed-wheels:other", tmp_path / "wheels", WHEELS)
    build(engine)
    assert parts(engine) == [BASE, DEPENDENCIES, NODES, WHEELS, WHEELS]
    assert [image for image in list_images(engine.api) if image.part == STAGE] == []
    assert check_image(engine.api) == image_name()


def test_a_full_disk_is_reported_with_how_to_free_space(engine: Any, tmp_path: Path) -> None:
    import_inputs(engine, tmp_path, FILLS)
    with pytest.raises(HostError) as failure:
        build(engine)
    assert "No space left on device" in str(failure.value)
    assert "testbed image prune" in failure.value.hint
    assert parts(engine) == [BASE, WHEELS]


def test_a_base_that_does_not_fit_leaves_nothing(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    with (tmp_path / "big/zeros").open("wb") as file:
        file.truncate(2 * DISK_BYTES)
    archive = tmp_path / "big.tar"
    with tarfile.open(archive, "w") as packed:
        packed.add(tmp_path / "big", ".")
    with pytest.raises(HostError, match="no space left on device") as failure:
        import_archive(engine.api, archive, "edge-testbed-base:big", BASE)
    assert "testbed image prune" in failure.value.hint
    assert list_images(engine.api) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_build_and_leaves_nothing(
    engine: Any, tmp_path: Path, number: signal.Signals
) -> None:
    import_inputs(engine, tmp_path, HANGS)
    with building(engine, tmp_path) as process:
        process.send_signal(number)
        process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode == 130
    wait_until(lambda: not containers(engine))
    assert parts(engine) == [BASE, WHEELS]
    assert list((tmp_path / "work").iterdir()) == []


def test_a_dying_engine_ends_a_build(own_engine: Any, tmp_path: Path) -> None:
    with own_engine(tmp_path / "dockerd.log", disk_bytes=DISK_BYTES) as engine:
        import_inputs(engine, tmp_path, HANGS)
        with building(engine, tmp_path) as process:
            engine.process.kill()
            _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == HostError.exit_code
    assert "The connection to the Docker engine was lost while building edge-testbed-dep" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("gpu", [False, True])
def test_an_image_from_a_registry_is_refused_without_one(engine: Any, gpu: bool) -> None:
    with pytest.raises(HostError, match="can only be built where a registry answers: ") as refusal:
        build(engine, offline=False, base="nvidia/cuda:12.6.3-base", gpu=gpu)
    assert "\n" not in str(refusal.value)


def test_an_image_for_gpus_needs_no_registry_but_other_wheels(engine: Any, tmp_path: Path) -> None:
    import_inputs(engine, tmp_path, FAILS)
    wheels = part_name(GPU_WHEELS, image_sources())
    import_image(engine, wheels, tmp_path / "wheels", GPU_WHEELS)
    said: list[str] = []
    with pytest.raises(HostError, match="no more patience"):
        Builder(engine.api, True, said.append, said.append).nodes(gpu=True)
    assert f"gpu-wheels: {wheels}, built earlier" in said


def test_only_old_images_of_this_package_are_removed(engine: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    import_inputs(engine, tmp_path, FAILS)
    import_image(engine, "edge-testbed:0.0.1-0123456789ab", tmp_path / "one", NODES)
    import_image(engine, "edge-testbed:0.0.2-0123456789ab", tmp_path / "two", NODES)
    engine.api.import_image(str(tmp_path / "two.tar"), repository="stranger", tag="1")
    engine.api.create_container("edge-testbed:0.0.2-0123456789ab", ["x"])
    with pytest.raises(HostError, match=r"has no image .*; it has edge-testbed:0.0..-0123456789ab"):
        check_image(engine.api)
    removed = {image.name: why for image, why in remove_images(engine.api, current_images())}
    assert set(removed) == {"edge-testbed:0.0.1-0123456789ab", "edge-testbed:0.0.2-0123456789ab"}
    assert removed["edge-testbed:0.0.1-0123456789ab"] == ""
    assert "container" in removed["edge-testbed:0.0.2-0123456789ab"]
    assert parts(engine) == [BASE, NODES, WHEELS]
    assert engine.api.images("stranger") != []


def test_an_image_of_other_sources_is_refused(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    import_image(engine, "mine:1", tmp_path / "some", NODES)
    with pytest.raises(HostError, match="The image mine:1 contains no testbed, but this is"):
        check_image(engine.api, "mine:1")
    with pytest.raises(HostError, match=f"The Docker engine has no image {image_name()}"):
        check_image(engine.api)
