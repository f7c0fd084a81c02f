"""The error message of a role before it exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from testbed.host.environment import agent_environment
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


SLEEPING = """
import sys, time
from pathlib import Path
from testbed.roles.process import sleep_small

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

buffers = [bytearray(1_000_000) for _ in range(10)]  # below the size of an own mapping in a node
del buffers
found, began = [resident()], time.monotonic()
for seconds in map(float, sys.argv[1:]):
    sleep_small(seconds, long_seconds=0.5)
    found.append(resident())
print(*found, time.monotonic() - began)
"""


def test_a_long_sleep_returns_free_memory_and_is_no_longer_for_that() -> None:
    """Ten buffers of 1 MB: a node keeps them for the next call, but not while it sleeps."""
    command = [sys.executable, "-c", SLEEPING, "0.01", "0.5"]
    environment = agent_environment({})
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    before, after_short, after_long, seconds = map(float, done.stdout.split())
    assert after_short > before - 1e6
    assert after_long < before - 9e6
    assert seconds >= 0.51


class Signalling:
    """Its finalizer receives a SIGTERM, whose exception Python drops there."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_sigterm_in_a_finalizer_ends_the_role() -> None:
    def body() -> None:
        Signalling()
        time.sleep(60)

    assert run("w0", body) == 0
