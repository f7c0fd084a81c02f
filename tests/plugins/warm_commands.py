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
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = (
    *("torch", "pandas", "pandas.core.methods.to_dict", "pyarrow.dataset", "pyarrow.parquet"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "rich.live", "rich.table"),
    *(
        f"testbed.reports.{name}"
        for name in ("console", "figures", "live", "live_workload", "page")
    ),
    *(f"testbed.run.{name}" for name in ("down", "output", "run", "simulated", "training", "up")),
    *("testbed.simulation.build", "testbed.simulation.run", "testbed.runtimes.native.driver"),
    *("testbed.studies.load", "testbed.studies.report", "testbed.studies.sweep"),
)
"""What commands import when they need it, without the commands themselves."""

LONGEST_REQUEST = 2**20


@dataclass
class Command:
    """A command that runs, used like a ``subprocess.Popen``.

    Attributes:
        arguments: of the command.
        pid: of its process, which leads a session.
        returncode: once it is known that the process has ended.
    """

    arguments: list[str]
    pid: int
    returncode: int | None = field(default=None, init=False)
    _channel: socket.socket  # brings the exit status
    _outputs: tuple[IO[str], ...]
    _written: list[str] = field(default_factory=list, init=False)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit status.

        Raises:
            subprocess.TimeoutExpired: it has not ended by then.
        """
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                self.returncode = int(self._channel.recv(16))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.arguments, timeout or 0.0) from None
            self._channel.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit status, or None if it has not ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return what it has written to standard output and error."""
        self.wait(timeout)
        if not self._written:
            for stream in self._outputs:
                with stream:
                    stream.seek(0)
                    self._written.append(stream.read())
        out, err = self._written
        return out, err

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)


@dataclass(frozen=True)
class CommandRunner:
    """Runs commands of ``testbed`` in sessions of their own, without standard input.

    Attributes:
        address: the socket of the process that forks.
    """

    address: str

    def start(
        self, arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str]
    ) -> Command:
        """Start a command, with this process's umask."""
        os.umask(umask := os.umask(0))
        asked = json.dumps([list(arguments), str(cwd), dict(environment), umask]).encode()
        outputs = tuple(tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.connect(self.address)
        socket.send_fds(channel, [asked], [one.fileno() for one in outputs])
        return Command(list(arguments), int(channel.recv(16)), channel, outputs)

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; kill it at the timeout."""
        command = self.start(arguments, cwd=cwd, environment=environment)
        try:
            out, err = command.communicate(timeout)
        except subprocess.TimeoutExpired:
            command.kill()
            command.communicate()
            raise
        return subprocess.CompletedProcess(command.arguments, command.wait(), out, err)


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
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the keepers
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
    arguments, cwd, environment, umask = json.loads(asked)
    pid = os.fork()
    if pid == 0:
        channel.close()
        os.umask(umask)
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
