"""The socket in place of a parameter server that is on another host."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.host.sockets import short_path
from testbed.runtimes.docker.server_socket import ServerSocket
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import HostSpec


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.ps_socket.parent.mkdir(parents=True)
    return folder


def test_connections_are_accepted_after_a_lack_of_descriptors(folder: RunFolder) -> None:
    """No engine listens there, so an accepted connection is closed."""
    server = ServerSocket(HostSpec("far", "10.0.0.2", f"unix://{folder.path}/none.sock"), folder)
    callers = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    with callers[0], callers[1], short_path(folder.ps_socket) as name:
        with no_descriptor_left():
            callers[0].connect(name)
            time.sleep(0.1)  # no other connection can be accepted
        callers[1].connect(name)
        for caller in callers:
            assert caller.recv(1) == b""
    server.close()
    server.close()
    assert not folder.ps_socket.exists()
