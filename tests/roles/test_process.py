"""What a role says of an error before it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.roles.process import run


def test_a_file_of_the_host_s_tmp_is_not_in_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    own = "A node has a /tmp and a /dev/shm of its own: keep the file in another folder."
    for name, told in (("/tmp/no-such.npz", True), ("/srv/no-such.npz", False)):
        assert run("w0", lambda name=name: print(Path(name).read_bytes())) == 11
        last = capsys.readouterr().err.splitlines()[-1]
        assert name in last
        assert last.endswith(own) is told
