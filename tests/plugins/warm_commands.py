"""Runs commands of ``testbed`` in processes that need not import anything.

A process imports all that commands need, once, and forks for each of them: the same ``run()`` in a
process of its own, without the seconds of CPU time that a fresh interpreter takes. As a pytest
plugin, this module has the fixture ``run_command``; as a program, it is that process.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("torch", "pandas", "pyarrow.parquet", "matplotlib.figure")
LONGEST_REQUEST = 2**20


@dataclass(frozen=True)
class CommandRunner:
    """Runs commands to their end.

    Attributes:
        address: the socket of the process that forks.
    """

    address: str

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``testbed`` with these arguments in a session of its own, without standard input."""
        asked = json.dumps([list(arguments), str(cwd), dict(environment)]).encode()
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
        ):
            channel.connect(self.address)
            socket.send_fds(channel, [asked], [out.fileno(), err.fileno()])
            pid = int(channel.recv(16))
            channel.settimeout(timeout)
            try:
                status = int(channel.recv(16))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            written = [(stream.seek(0), stream.read())[1] for stream in (out, err)]
        return subprocess.CompletedProcess(list(arguments), status, *written)


@pytest.fixture(scope="session")
def run_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandRunner]:
    """A runner of commands, whose process ends with the tests."""
    with tempfile.TemporaryDirectory() as folder:  # short: the path of a socket has 107 bytes
        address = f"{folder}/socket"
        ready, said = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, address, str(said)],
            stdin=subprocess.DEVNULL,
            pass_fds=(said,),
            env={"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPATH": str(ROOT)},
        )
        os.close(said)
        assert os.read(ready, 16) == b"ready"
        os.close(ready)
        yield CommandRunner(address)
        process.kill()
        process.wait()


def main(address: str, said: int) -> NoReturn:
    """Import everything, then fork for every request."""
    from testbed.cli import HOMES, VERBS
    from testbed.host import syscalls

    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    for name in (*NEEDED, *(f"testbed.cli.{HOMES.get(verb, verb)}" for verb in VERBS)):
        import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        os.write(said, b"ready")
        os.close(said)
        while True:
            channel, _ = listener.accept()
            if not os.fork():
                listener.close()
                keep(channel)
            channel.close()


def keep(channel: socket.socket) -> NoReturn:
    """Fork the command that a client asks for; send its pid, and its status at its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, descriptors, _, _ = socket.recv_fds(channel, LONGEST_REQUEST, 2)
    arguments, cwd, environment = json.loads(asked)
    pid = os.fork()
    if pid == 0:
        channel.close()
        become(arguments, cwd, environment, descriptors)
    with suppress(BrokenPipeError):  # the client has given up
        channel.send(str(pid).encode())
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    os._exit(0)


def become(
    arguments: list[str], cwd: str, environment: dict[str, str], descriptors: list[int]
) -> NoReturn:
    """Run a command as if this process had been started for it."""
    from testbed.cli import run

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a background job's shell may ignore these
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv = ["testbed", *arguments]
    status = 1
    try:
        run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
