"""The nodes of a run with another controller, as reported by an agent that is ending."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from threading import Thread

from testbed.run.follow import running_nodes
from testbed.telemetry.folder import RunFolder


def test_an_agent_that_ends_before_it_answers_has_no_nodes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.control.mkdir()
    assert dict(running_nodes(folder)) == {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(os.fspath(folder.agent_socket))
        listener.listen()

        def end() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1)

        ending = Thread(target=end)
        ending.start()
        assert dict(running_nodes(folder)) == {}
        ending.join()
    assert dict(running_nodes(folder)) == {}
