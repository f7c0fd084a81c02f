"""Workloads whose containers are made from an image of the user, without testbed or Python."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.docker, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "scenarios" / "image.yaml"
NODE_FAILED, VERDICT = 5, 6
APPLETS = ("sh", "head", "httpd", "wget", "usleep", "date")
TRAINING = """\
name: beside
runtime: docker
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2}
stop: {updates: 60}
evaluate: {every: 30, images: 100}
"""
NAME = f"testbed-test-image-{os.getpid()}:1"


@pytest.fixture(scope="module")
def users_image(engine: Any) -> Iterator[str]:
    """An image with nothing but a static busybox, and a script without its interpreter."""
    static = shutil.which("busybox")
    if static is None or b"/ld-" in Path(static).read_bytes()[:4096]:
        pytest.skip("needs a static busybox (package busybox-static)")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(static, "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        script = b"#!/usr/bin/python3\n"
        entry = tarfile.TarInfo("bin/script")
        entry.size, entry.mode = len(script), 0o755
        archive.addfile(entry, io.BytesIO(script))
    engine.import_image_from_data(packed.getvalue(), changes=["ENV GREETING=hello"], **_named())
    yield NAME
    engine.remove_image(NAME, force=True)


def _named() -> dict[str, str]:
    repository, _, tag = NAME.partition(":")
    return {"repository": repository, "tag": tag}


def workload(bed: Any, programs: dict[str, Any], **more: Any) -> str:
    content = {"name": "imaged", "runtime": "docker", "workload": programs, **more}
    file: str = bed.scenario("imaged.yaml", yaml.safe_dump(content))
    return file


def test_the_example_is_served_and_measured(bed: Any, users_image: str) -> None:
    """1 MB to each client, and HTTP's header; nodes and pairs are measured as all others."""
    shutil.copy(EXAMPLE, bed.path)
    named = [f"workload.{program}.image={users_image}" for program in ("server", "client")]
    up = bed.up(*(word for one in named for word in ("--set", one)), file="image.yaml")
    done = up.end()
    assert done.status in {0, VERDICT}, done.err
    summary = json.loads(up.folder.summary.read_text())
    for node in ("client0", "client1"):
        assert (up.folder.home(node) / "page").read_bytes() == bytes(1_000_000)
        assert 0 < summary["pairs"][node]["server"]["received_bytes"] - 1_000_000 < 400  # a header
        assert summary["nodes"][node]["exit_status"] == 0
    assert summary["nodes"]["server"]["cpu_seconds"] >= 0  # a client may end before it is read
    images = json.loads(up.folder.environment.read_text())["images"]
    assert images[users_image].startswith("sha256:")
    assert not (up.folder.control / "first").exists()  # the copies of the first process
    assert bed.remains(up.name) == []


def test_its_nodes_have_faults_and_commands(bed: Any, users_image: str) -> None:
    """One is frozen for 2 s, one is killed for 1 s; ``exec`` runs the image's programs."""
    beat = 'echo "$GREETING $HOME"; while true; do date +%s; usleep 100000; done'
    node = {"image": users_image, "command": ["sh", "-c", beat]}
    faults = [
        {"freeze": {"nodes": ["frozen"], "at": {"time": "500ms"}, "for": "2s"}},
        {"kill": {"nodes": ["killed"], "at": {"time": "1s"}, "for": "1s"}},
    ]
    programs = {"frozen": node, "killed": {**node, "memory": "16MiB"}}
    up = bed.up(file=workload(bed, programs, faults=faults))
    up.wait_for(lambda: len(_faults(up)) == 4)
    asked = bed.run("exec", up.name, "killed", "--", "busybox", "id", "-u")
    assert asked.out.strip() == "20011", asked.err
    assert bed.run("exec", up.name, "killed", "--", "python3").status == 127
    up.wait_for(lambda: up.folder.log("killed").read_text().count("hello /run/testbed/home") == 2)
    assert bed.run("down", up.name).status == 0
    up.end()
    times = [int(line) for line in up.folder.log("frozen").read_text().splitlines()[1:]]
    assert max(later - at for at, later in pairwise(times)) >= 1  # whole seconds, of about two
    assert bed.remains(up.name) == []


def _faults(up: Any) -> list[FaultApplied]:
    found = (entry.event for entry in read_events(up.folder.events))
    return [event for event in found if isinstance(event, FaultApplied)]


def test_a_program_beside_a_training_has_an_image(bed: Any, users_image: str) -> None:
    """The page that it serves is read by a node of testbed's image."""
    server = "echo $GREETING > /tmp/page && exec httpd -f -h /tmp -p 8000"
    reader = "import urllib.request as u; print(u.urlopen('http://{server}:8000/page').read())"
    waits = f'until python -c "{reader}"; do sleep 0.1; done'
    training = yaml.safe_load(TRAINING)
    training["programs"] = {
        "server": {"image": users_image, "command": ["sh", "-c", server], "memory": "16MiB"},
        "reader": {"command": ["sh", "-c", waits], "end": "expected"},
    }
    training["stop"] = {"updates": 1_000_000}
    up = bed.up(file=bed.scenario("beside.yaml", yaml.safe_dump(training)))
    log = up.folder.log("reader")
    up.wait_for(lambda: log.exists() and "b'hello\\n'" in log.read_text())
    bed.run("down", up.name)
    up.end()
    assert bed.remains(up.name) == []


def test_what_the_engine_or_the_image_lacks_is_named(bed: Any, users_image: str) -> None:
    absent = bed.run("up", workload(bed, {"one": {"image": "example/nothing", "command": ["x"]}}))
    assert absent.status != 0
    assert "one: the Docker engine has no image example/nothing:latest." in absent.err
    assert "docker pull example/nothing:latest" in absent.err

    missing = {"one": {"image": users_image, "command": ["python3", "-V"]}}
    up = bed.up(file=workload(bed, missing))
    assert (done := up.end()).status == NODE_FAILED
    assert f"python3: no such program in the image {users_image}." in done.err
    assert bed.remains(up.name) == []

    up = bed.up(file=workload(bed, {"one": {"image": users_image, "command": ["script"]}}))
    assert (done := up.end()).status == NODE_FAILED
    assert "/bin/script: the interpreter in its first line" in done.err
    assert "status 127" in done.err
    assert bed.remains(up.name) == []
