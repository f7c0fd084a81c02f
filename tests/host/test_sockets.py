"""Unix sockets in folders whose paths exceed the length of an address."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from testbed.host.sockets import pid_of_listener, short_path


def test_a_socket_is_reached_by_a_short_path_and_reports_its_pid(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with short_path(deep / "agent.sock") as name:
            listener.bind(name)
        listener.listen()
        with short_path(deep / "agent.sock") as name:
            client.connect(name)
        assert pid_of_listener(client) == os.getpid()
    assert (deep / "agent.sock").is_socket()
