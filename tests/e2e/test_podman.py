"""A run in Podman's containers from the command line, by its socket in DOCKER_HOST."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.lifecycle import find_containers
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow]

SCENARIO = """\
name: podded
seed: 1
runtime: docker
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 3
  think: {mean: 100ms}
  classes:
    fast: {share: 0.67}
    slow: {share: 0.33, cpu: 0.5, memory: 256MiB}
programs:
  aside:
    image: testbed-test-image
    command:
      - /bin/busybox
      - ash
      - -c
      - "until /bin/busybox wget -q -O - http://{server}:8000/hello; do :; done"
    end: expected
  server:
    image: testbed-test-image
    command: [/bin/busybox, httpd, -f, -p, "8000", -h, /srv]
stop: {updates: 150}
evaluate: {every: 50, images: 100}
faults:
  - freeze: {workers: [w0], at: {version: 10}, for: 500ms}
  - kill: {workers: [w2], at: {version: 20}}
"""


def import_image(podman: str) -> bytes:
    """Give the engine an image that has a program, which is returned, a page, and no shell."""
    static = shutil.which("busybox")
    if static is None or b"/ld-" in Path(static).read_bytes()[:4096]:
        pytest.skip("needs a static busybox (package busybox-static)")
    packed, page = io.BytesIO(), tarfile.TarInfo("srv/hello")
    page.size = 6
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(static, "bin/busybox")
        archive.addfile(page, io.BytesIO(b"sesame"))
    with closing(connect(podman)) as engine:
        engine.import_image_from_data(packed.getvalue(), repository="testbed-test-image")
    return Path(static).read_bytes()


def test_a_run_with_faults_and_the_image_after_a_prune(
    bed: Any, podman: str, eventually: Any
) -> None:
    import_image(podman)

    def run(*words: str) -> Any:
        return bed.run(*words, DOCKER_HOST=podman)

    file, name = bed.scenario("podded.yaml", SCENARIO), bed.new_name()
    up = bed.start("up", file, "--name", name, "--keep", DOCKER_HOST=podman)
    done = up.end()
    assert done.status in (0, 6), done  # a busy host may make the run invalid
    assert "150 updates applied" in done.out
    assert {fault.kind for fault in only(read_events(up.folder.events), FaultApplied)} == {
        "freeze",
        "kill",
    }

    assert up.folder.log("aside").read_text().endswith("sesame")  # after refused connections

    assert run("exec", name, "w1", "--", "sh", "-c", "hostname; exit 7").status == 7
    rows = {row["node"]: row for row in json.loads(run("ps", name, "--json").out)}
    assert {"ps", "w0", "w1"} <= set(rows)
    assert run("down", name).status == 0
    with closing(connect(podman)) as engine:
        assert [one for one in find_containers(engine) if one.run == name] == []
    left = [line for line in bed.remains(name) if "conmon" not in line]  # Podman's, of the `exec`
    assert left == []

    image = run("image", "check").out.strip()
    shown = json.loads(run("image", "show", "--json").out)
    assert [one["name"] for one in shown if one["current"]] == [image]
    assert run("image", "prune").out == ""
    assert run("image", "check").out.strip() == image
    assert "Podman" in run("doctor", "--runtime", "docker").out


IMAGED = """\
name: imaged
runtime: docker
workload:
  server:
    image: testbed-test-image
    command: [/bin/busybox, httpd, -f, -p, "{port:web}", -h, /bin]
    ports: {web: 8000}
    end: fatal
  client:
    image: testbed-test-image
    command: [/bin/busybox, wget, "http://{server:web}/busybox"]
    after: {server: {listens: web}}
"""


def test_an_image_without_a_shell(bed: Any, podman: str) -> None:
    """Its only program is served by one node to another."""
    program = import_image(podman)
    file, name = bed.scenario("imaged.yaml", IMAGED), bed.new_name()
    up = bed.start("up", file, "--name", name, DOCKER_HOST=podman)
    done = up.end()
    assert done.status in {0, 6}, done.err
    assert (up.folder.home("client") / "busybox").read_bytes() == program
    assert bed.remains(name) == []
    file = bed.scenario("shell.yaml", IMAGED.replace("[/bin/busybox, wget,", "[sh, -c,"))
    done = bed.start("up", file, "--name", bed.new_name(), DOCKER_HOST=podman).end()
    assert done.status == 5
    assert "sh: no such program in the image testbed-test-image:latest." in done.err
