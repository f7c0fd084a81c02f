"""The error message of a role before it exits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from testbed.roles.process import run
from testbed.values.user_code import UserCode


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Restores SIGTERM, which an ending role leaves ignored and children would inherit."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("name", "hidden"), [("/tmp/gone.npz", True), ("/srv/gone.npz", False)])
def test_a_file_in_the_hosts_tmp_is_missing_in_a_node(
    name: str, hidden: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.py"
    file.write_text(f"def read():\n    return open({name!r}).read()\n")
    code = UserCode(file, "read", path_in_scenario="model")
    read = code.load("a function")
    called = partial(code.call, read, doing="read()", expected="it to run")  # while it is prepared
    for body in (read, called):
        assert run("w0", body) == 11
        said = capsys.readouterr().err.splitlines()[-1]
        assert name in said
        assert said.endswith("/dev/shm: keep the file in another folder.") is hidden
