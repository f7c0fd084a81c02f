"""A command in a native node, as typed in a terminal and as run by a script."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytestmark = pytest.mark.namespaces
WAIT_SECONDS = 180.0
EXEC = (
    "import sys\n"
    "from pathlib import Path\n"
    "from testbed.run.follow import run_command\n"
    "from testbed.runtimes.native.driver import NativeDriver\n"
    "from testbed.telemetry.folder import RunFolder\n"
    "folder = RunFolder(Path(sys.argv[1]))\n"
    "sys.exit(run_command(NativeDriver(), folder, sys.argv[2], sys.argv[3:]))\n"
)
LOOK = """
import fcntl, json, os, termios
found = {"device": os.fstat(0).st_dev, "name": os.ttyname(0), "term": os.environ["TERM"]}
found["leads"] = os.getpgid(0) == os.tcgetpgrp(0)
found["mine"] = os.stat(os.ttyname(0)).st_uid == os.getuid()
try:
    for byte in b"stolen\\r":
        fcntl.ioctl(0, termios.TIOCSTI, bytes([byte]))
except OSError:
    pass  # this kernel forbids typing into other terminals
print(json.dumps(found), flush=True)
"""
PAUSE = (
    "import signal\n"
    "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    "print('begun', flush=True)\n"
    "signal.pause()\n"
)
"""Ends at the first SIGINT; dash sometimes resumes waiting for its sleep after one."""

DETACHED = """
import json, os, stat
found = [stat.S_ISFIFO(os.fstat(number).st_mode) for number in range(3)]
try:
    os.close(os.open("/dev/tty", os.O_RDWR))
    found.append("a terminal")
except OSError:
    found.append("no terminal")
print(json.dumps(found))
"""


def command(live: Any, node: str, *words: str) -> list[str]:
    return [sys.executable, "-c", EXEC, str(live.folder.path), node, *words]


class Typist:
    """A user at a terminal in which a command was started."""

    def __init__(self, ours: int, session: subprocess.Popen[bytes]) -> None:
        self.ours = ours
        self.session = session
        self.said = b""

    def read_until(self, pattern: bytes) -> re.Match[bytes]:
        """The screen's text once ``text`` has appeared; later output is left for the next call."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := re.search(pattern, self.said)):
            left = deadline - time.monotonic()
            assert left > 0, self.said
            if select.select([self.ours], [], [], left)[0]:
                self.said += os.read(self.ours, 65536)
        self.said = self.said[found.end() :]
        return found

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)


@contextmanager
def typing(live: Any, node: str, *words: str) -> Iterator[tuple[Typist, int]]:
    """A command in a terminal of 33 lines and 101 columns; yields the other end too."""
    ours, theirs = os.openpty()
    try:
        termios.tcsetwinsize(theirs, (33, 101))
        started = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command(live, node, *words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
        )
        with started as session:
            try:
                yield Typist(ours, session), theirs
            finally:
                session.kill()
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_interactive_command_gets_a_terminal_of_the_node(live: Any) -> None:
    live.launch("w60", "entries:wait")
    wait = "until test .$line = .go; do read line; done"
    shell = f"{sys.executable} -c '{LOOK}'; stty size; {wait}; stty size; exit 5"
    with typing(live, "w60", "sh", "-c", shell) as (typist, theirs):
        found = json.loads(typist.read_until(rb"\{.*\}")[0])
        assert found.pop("device") != os.fstat(theirs).st_dev
        # The node's first, however many the host has.
        assert found == {"name": "/dev/pts/0", "term": "xterm", "leads": True, "mine": True}
        typist.read_until(rb"33 101")
        termios.tcsetwinsize(theirs, (44, 102))
        typist.type(b"go\r")
        typist.read_until(rb"44 102")
        assert typist.session.wait(WAIT_SECONDS) == 5
        # Text that the node injects must not arrive here.
        assert select.select([theirs], [], [], 0)[0] == []


def test_ctrl_c_reaches_the_command(live: Any) -> None:
    live.launch("w61", "entries:wait")
    with typing(live, "w61", sys.executable, "-c", PAUSE) as (typist, _):
        typist.read_until(rb"begun")
        typist.type(b"\x03")
        assert typist.session.wait(WAIT_SECONDS) == 128 + signal.SIGINT
    with typing(live, "w61", "no-such-command") as (typist, _):
        typist.read_until(rb"no-such-command: no such command in the node")
        assert typist.session.wait(WAIT_SECONDS) == 127


def test_a_scripts_command_has_pipes_and_no_terminal(live: Any) -> None:
    live.launch("w62", "entries:wait")
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            ["setsid", "--ctty", "--wait", *command(live, "w62", sys.executable, "-c", DETACHED)],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert json.loads(done.stdout) == [True, True, True, "no terminal"]


def test_the_streams_of_a_command_are_forwarded(live: Any) -> None:
    live.launch("w63", "entries:wait")
    text = bytes(range(32, 127)) * 20_000
    done = subprocess.run(
        command(live, "w63", "sh", "-c", "cat; echo done >&2; exit 3"),
        input=text,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, b"done\n")
    assert done.stdout == text
    # It does not wait until other processes close the streams.
    left = command(live, "w63", "sh", "-c", "sleep 1000 & echo ended")
    assert subprocess.run(left, capture_output=True, check=True).stdout == b"ended\n"


def test_signals_are_forwarded(live: Any, eventually: Callable[[Callable[[], Any]], Any]) -> None:
    live.launch("w64", "entries:wait")
    for number in (signal.SIGINT, signal.SIGTERM):
        words = command(live, "w64", sys.executable, "-c", PAUSE)
        with subprocess.Popen(words, stdout=subprocess.PIPE) as session:
            assert session.stdout is not None
            assert session.stdout.readline() == b"begun\n"
            session.send_signal(number)
            assert session.wait(WAIT_SECONDS) == 128 + number
    # If its client is killed, the command ends too.
    words = command(live, "w64", "sh", "-c", "echo begun; sleep 1000; exit 0")
    with subprocess.Popen(words, stdout=subprocess.PIPE) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"begun\n"
        session.kill()
        assert session.stdout.read() == b""
    # The node's first process does not reap, so ended processes stay as zombies.
    look = command(live, "w64", "sh", "-c", "cat /proc/[0-9]*/stat")
    eventually(lambda: b"(sleep) S" not in subprocess.check_output(look))


def test_under_nohup_a_hangup_is_ignored(
    live: Any, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    live.launch("w65", "entries:wait")
    words = command(live, "w65", "sh", "-c", "echo begun; read line; echo $line; sleep 1000; exit")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["nohup", *words], **pipes) as session:  # type: ignore[call-overload]
        assert session.stdout.readline() == b"begun\n"
        session.send_signal(signal.SIGHUP)
        session.stdin.write(b"continues\n")
        session.stdin.flush()
        assert session.stdout.readline() == b"continues\n"
        session.kill()
        assert session.stdout.read() == b""
    look = command(live, "w65", "sh", "-c", "cat /proc/[0-9]*/stat")
    eventually(lambda: b"(sleep) S" not in subprocess.check_output(look))
