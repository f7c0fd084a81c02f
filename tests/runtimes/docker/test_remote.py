"""Hosts that cannot be reached any more, by addresses where no engine listens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.runtimes.docker.containers import AGENT, FOLDER, HOST_LIST, HOSTS, ROLE, RUN
from testbed.runtimes.docker.driver import DockerDriver
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.lifecycle import containers_of
from testbed.runtimes.docker.remote import REMOVED, remove_everywhere
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import HostSpec


def test_absent_hosts_are_named_unless_a_run_had_been_removed_before(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "r1", scenario="s", text="", classes=(), now=0.0)
    hosts = [HostSpec(name, "10.0.0.2", f"unix://{tmp_path}/{name}") for name in "bc"]
    with pytest.raises(HostError, match=r"host b: No Docker .*; host c: No Docker ") as refused:
        remove_everywhere(hosts, folder)
    assert refused.value.hint.startswith(
        "Start the host, or what forwards the socket of its engine"
    )
    assert refused.value.hint.endswith("Then: testbed down r1")
    (folder.control / REMOVED).touch()
    remove_everywhere(hosts, folder)


@pytest.mark.docker
def test_a_run_without_a_folder_keeps_the_record_of_a_host_that_is_absent(
    tmp_path: Path, image: str
) -> None:
    folder = RunFolder(tmp_path / f"lost-{os.getpid()}")
    absent = HostSpec("b", "10.0.0.2", f"unix://{tmp_path}/none", controller="a")
    hosts = HOST_LIST.dump_json((absent,)).decode()
    labels = {RUN: folder.name, FOLDER: str(folder.path), HOSTS: hosts}
    body = {
        "Image": image,
        "Entrypoint": ["/usr/bin/tini", "-s", "--", "sleep"],
        "Cmd": ["600"],
        "HostConfig": {"NetworkMode": "none"},
    }
    with connect() as engine:
        for role in ("worker", AGENT):
            made = {**body, "Labels": {**labels, ROLE: role}}
            engine.create_container_from_config(made, f"{folder.name}-{role}")
            engine.start(f"{folder.name}-{role}")
        for _ in range(2):
            with pytest.raises(HostError, match="host b: No Docker engine answers at"):
                DockerDriver().stop(folder)
            (left,) = containers_of(engine, folder)
            assert (left.role, left.state) == (AGENT, "exited")
        engine.remove_container(left.identity)
