"""Engines of other hosts, and what they are reached with: an ssh server, and certificates."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from swarm_engines import SCENARIO, Engines
from warm_commands import CommandRunner

from testbed.errors import HostError
from testbed.runtimes.docker.driver import DockerDriver
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.image import check_image
from testbed.runtimes.docker.swarm import ENGINE_LABEL

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
LISTEN_SECONDS = 60.0


@pytest.fixture(scope="module")
def driver(image: str) -> DockerDriver:
    """That of the engine of this host."""
    return DockerDriver()


@pytest.fixture
def engine() -> Iterator[Any]:
    """A client of that engine."""
    with connect() as engine:
        yield engine


@dataclass(frozen=True)
class Ssh:
    """Keys of a server and of this user, who knows the server's."""

    folder: Path

    @contextmanager
    def serve(self, address: str, *, inside: Sequence[str] = ()) -> Iterator[int]:
        """A server at an address, started by a command if it is ``inside`` another host."""
        port = _free_port() if address == "127.0.0.1" else 2222
        key = " ".join((self.folder / "host.pub").read_text().split()[:2])
        (self.folder / "known").write_text(f"[{address}]:{port} {key}\n")
        options = [f"-oPort={port}", f"-oListenAddress={address}"]
        assert SSHD is not None
        command = [*inside, SSHD, "-D", "-e", "-f", str(self.folder / "server"), *options]
        server = subprocess.Popen(command)
        try:
            _wait_for(address, port)
            yield port
        finally:
            server.kill()
            server.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(address: str, port: int) -> None:
    deadline = time.monotonic() + LISTEN_SECONDS
    while True:
        try:
            socket.create_connection((address, port), 1.0).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    """Keys for ssh, which reads its own settings instead of the user's."""
    if SSHD is None or os.geteuid():
        pytest.skip("needs sshd (Debian, Ubuntu: apt install openssh-server), and root")
    account = next(line for line in Path("/etc/shadow").read_text().splitlines() if "root:" in line)
    if account.startswith("root:!"):
        pytest.skip("sshd refuses root, whose account is locked: passwd -u root")
    Path("/run/sshd").mkdir(exist_ok=True)
    made = tmp_path / "ssh"
    (made / "bin").mkdir(parents=True)
    for name in ("host", "own"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made / name]
        subprocess.run(key, check=True)
    (made / "server").write_text(
        f"HostKey {made}/host\nAuthorizedKeysFile {made}/own.pub\nStrictModes no\n"
        "UsePAM no\nPermitRootLogin yes\nPidFile none\n"
    )
    (made / "client").write_text(
        f"IdentityFile {made}/own\nIdentitiesOnly yes\nUserKnownHostsFile {made}/known\n"
        "GlobalKnownHostsFile none\nStrictHostKeyChecking yes\n"
    )
    program = made / "bin/ssh"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {made}/client "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{made}/bin:{os.environ['PATH']}")
    return Ssh(made)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with a key and certificate for server and client, and what has signed it."""
    return _certify(tmp_path / "certificates")


@pytest.fixture
def others_certificates(certificates: Path, tmp_path: Path) -> Path:
    """The same for a client that the server does not know."""
    made = _certify(tmp_path / "others")
    shutil.copy(certificates / "ca.pem", made)
    return made


def _certify(made: Path) -> Path:
    made.mkdir()
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    new += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    new += ["-addext", "subjectAltName=IP:127.0.0.1,IP:10.88.0.2"]
    new += ["-keyout", str(made / "key.pem"), "-out", str(made / "cert.pem")]
    subprocess.run(new, check=True, capture_output=True)
    shutil.copy(made / "cert.pem", made / "ca.pem")
    return made


@pytest.fixture
def engines(swarm: list[str], run_command: CommandRunner, tmp_path: Path) -> Iterator[Engines]:
    """The engines of the Swarm, the second labelled; skips without the image of this package."""
    try:
        with connect(swarm[0]) as engine:
            check_image(engine)
    except HostError as reason:
        pytest.skip(f"needs engines with the image: {reason}")
    made = Engines(swarm, run_command, tmp_path)
    (tmp_path / "rate.csv").write_text("time_seconds,bits_per_second\n0,20e6\n1,10e6\n2,20e6\n")
    (tmp_path / "apart.yaml").write_text(SCENARIO.replace("UPDATES", "1500"))
    recorded = SCENARIO.replace("UPDATES", "100000").replace("20mbit", "{trace: rate.csv}")
    (tmp_path / "long.yaml").write_text(recorded)
    made.relabel(**{ENGINE_LABEL: swarm[1], "rack": "a"})
    yield made
    made.stop()
    made.relabel()
    for one in made.clients:
        one.close()
