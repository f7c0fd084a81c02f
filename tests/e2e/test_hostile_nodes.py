"""Attacks on a run by nodes and other users of the host, which must not harm it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from testbed.host.sockets import short_path
from testbed.rpc import methods
from testbed.runtimes.agent.logs import LOG_BYTES, NOTICE

pytestmark = [pytest.mark.root, pytest.mark.slow]
TEXT = """\
name: hostile
seed: 1
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers: {count: 2, classes: {all: {share: 1.0, speed: 10ms}}}
programs: {loud: {command: [sh, -c, "yes | head --bytes 20000000; sleep 1000"], end: expected}}
stop: {updates: 1000}
evaluate: {every: 100, images: 100}
"""
CONNECT = """
import os, socket, sys
other = 65534
os.setgroups([])
os.setresgid(other, other, other)
os.setresuid(other, other, other)
os.fchdir(int(sys.argv[1]))
socket.socket(socket.AF_UNIX).connect(sys.argv[2])
"""


def test_a_run_continues_and_is_valid(bed: Any) -> None:
    up = bed.up(file=bed.scenario("hostile.yaml", TEXT))
    up.wait_for_event("started")
    place = up.folder.ps_socket
    # Another user of the host cannot reach the socket.
    assert "PermissionError" in connect_as_nobody(up.folder.path, place)
    # A client that can, but has no token, learns nothing.
    with short_path(place) as name, grpc.insecure_channel(f"unix:{name}") as channel:
        for method in (methods.SNAPSHOT, methods.REMOVE, methods.REPORT):
            with pytest.raises(grpc.RpcError) as refusal:
                channel.unary_unary(method, None, None)(b"", timeout=10)
            assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED
    done = up.end()
    report = bed.run("report", up.name, "--json").json
    assert not [text for text in report["verdict"]["reasons"] if "push" in text]
    assert up.folder.log("loud").read_bytes()[LOG_BYTES:].startswith(NOTICE)
    assert up.events().count("log_full") == 1
    assert "loud prints more than 16MiB: the rest of its output is dropped" in done.out + done.err


def connect_as_nobody(folder: Path, place: Path) -> str:
    """The result when another user connects to a socket in a folder open to all users."""
    descriptor = os.open(folder, os.O_PATH)
    try:
        done = subprocess.run(
            [sys.executable, "-c", CONNECT, str(descriptor), str(place.relative_to(folder))],
            pass_fds=(descriptor,),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        os.close(descriptor)
    return done.stderr
