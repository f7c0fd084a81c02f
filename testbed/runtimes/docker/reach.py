"""How engines of other hosts are reached, as Docker's own client reaches them.

The engine at ``ssh://`` or ``tcp://`` gets a socket on this host, whose connections a program
forwards: one ``ssh`` for all of them, or ``tls_forward``. It ends with this process, and so do the
connections.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from urllib.parse import SplitResult, urlsplit

from testbed.errors import HostError
from testbed.runtimes.docker import tls_forward


class NoEngineError(HostError):
    """No engine answers, or it does not in time."""


class NotReachedError(NoEngineError):
    """The host of an engine is not reached; the hint is about the way there."""


CONTEXT = "context:"
EXPECTED = "unix:///PATH, ssh://USER@HOST, tcp://HOST:2376 or context:NAME"
SOCKET = "/var/run/docker.sock"
TLS_PORT = 2376
START_SECONDS = 30.0
ANSWER_SECONDS = 15.0
BRACKETS = str.maketrans("", "", "[]")
"""Of an IPv6 address in an URL."""

SSH = (
    *("ssh", "-T", "-a", "-x", "-oBatchMode=yes", "-oExitOnForwardFailure=yes"),
    *("-oConnectTimeout=10", "-oServerAliveInterval=5", "-oServerAliveCountMax=3"),
    *("-oControlMaster=no", "-oControlPath=none"),
)
WAIT_THERE = "echo ready; exec cat"
"""On the other host: ends with the standard input of ``ssh``."""

UNTIL_THE_END = 'trap : TERM; "$@"; trap "" TERM; rm -rf "$0"'
"""Runs a program, and removes its folder: also if this process is killed.

A program that ended first may be followed by the signal, which is not for the removal.
"""

SSH_FAILURES = (
    ("host key verification failed", "its key is not known here", "Compare and accept it: {ssh}"),
    ("permission denied (", "it does not accept your key", "Try: {ssh}; or ssh-copy-id {login}"),
    (
        "open failed",
        "no engine answers at its {path}, or not to that user",
        "{ssh} sudo systemctl start docker; or {ssh} sudo usermod -aG docker {user}",
    ),
)
"""What ssh says in lower case, what that means, and the cure.

Why a socket cannot be opened there, it does not say.
"""


@dataclass(frozen=True)
class Forward:
    """A socket here that leads to the engine of another host."""

    path: str
    process: subprocess.Popen[bytes]

    def close(self) -> None:
        """End it with all connections. Idempotent."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()


_forwards: dict[str, Forward] = {}
_locks: defaultdict[str, Lock] = defaultdict(Lock)


def socket_of(address: str) -> str:
    """Return the path of a socket on this host that leads to the engine at an address.

    Raises:
        HostError: the address is none; there are no certificates; the host is not reached.
    """
    certificates = None
    if address.startswith(CONTEXT):
        address, certificates = _of_context(address.removeprefix(CONTEXT))
    parts = urlsplit(address)
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return parts.path
    if parts.scheme not in ("ssh", "tcp") or not parts.hostname or not _has_port(parts):
        raise HostError(f"the address of its engine is {address}, expected {EXPECTED}.")
    with _locks[address]:
        forward = _forwards.get(address)
        if forward is not None and forward.process.poll() is not None:  # the host was lost
            forward.close()
            forward = None
        if forward is None:
            if parts.scheme == "ssh":
                forward = _by_ssh(address, parts)
            else:
                forward = _by_tls(address, parts, certificates)
            _forwards[address] = forward
            atexit.register(forward.close)
        return forward.path


def _has_port(parts: SplitResult) -> bool:
    """Return whether the port is one, or is left out."""
    with suppress(ValueError):
        return parts.port is None or parts.port > 0
    return False


def _of_context(name: str) -> tuple[str, Path | None]:
    """Return the address and the folder of certificates of a context of Docker's client."""
    folder = _settings() / "contexts"
    identity = sha256(name.encode()).hexdigest()
    try:
        found = json.loads((folder / "meta" / identity / "meta.json").read_text())
        address = str(found["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError):
        raise HostError(
            f"Docker's client has no context {name}.",
            hint=f"docker context ls; or docker context create {name} --docker host=ADDRESS",
        ) from None
    certificates = folder / "tls" / identity / "docker"
    return address, certificates if certificates.is_dir() else None


def _settings() -> Path:
    """Return the folder where Docker's client has its contexts and certificates."""
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _by_ssh(address: str, parts: SplitResult) -> Forward:
    login = _login(parts)
    port = [] if parts.port is None else ["-p", str(parts.port)]
    there = parts.path.rstrip("/") or SOCKET
    folder, path = _new_folder()
    forward = f"-L{path}:{there}"
    try:
        return _begin([*SSH, *port, forward, "--", login, WAIT_THERE], folder, path)
    except _SaidError as error:
        raise _explain_ssh(address, parts, there, str(error)) from None


def _login(parts: SplitResult) -> str:
    """Return USER@HOST, or HOST, as it is spelt: ssh's settings distinguish case."""
    login = parts.netloc if parts.port is None else parts.netloc.rpartition(":")[0]
    return login.translate(BRACKETS)


def _explain_ssh(address: str, parts: SplitResult, there: str, said: str) -> NotReachedError:
    """Return the error for what ssh said; ``there`` is the path of the engine's socket."""
    login = _login(parts)
    ssh = f"ssh -p {parts.port} {login}" if parts.port else f"ssh {login}"
    user = parts.username or "USER"
    for sign, what, cure in SSH_FAILURES:
        if sign in said.lower():
            meaning = what.format(path=there)
            fix = cure.format(ssh=ssh, login=login, user=user)
            return NotReachedError(f"{address}: {meaning} ({said}).", hint=fix)
    return NotReachedError(f"{address} is not reached: {said}.", hint=f"Try: {ssh}")


def _by_tls(address: str, parts: SplitResult, certificates: Path | None) -> Forward:
    host, port = str(parts.hostname), str(parts.port or TLS_PORT)
    folder_of_all = Path(os.environ.get("DOCKER_CERT_PATH") or _settings())
    certificates = certificates or folder_of_all
    for name in ("ca.pem", "cert.pem", "key.pem"):
        if not (certificates / name).is_file():
            raise HostError(
                f"{address}: there is no certificate {certificates / name}; without TLS, any "
                "process that reaches that port is root on the host.",
                hint="Set DOCKER_CERT_PATH to a folder with ca.pem, cert.pem and key.pem, or use "
                f"ssh://USER@{host}.",
            )
    folder, path = _new_folder()
    program = [sys.executable, "-I", "-S", tls_forward.__file__]
    try:
        return _begin([*program, path, host, port, str(certificates)], folder, path)
    except _SaidError as error:
        raise NotReachedError(
            f"{address} is not reached: {error}.",
            hint=f"Try: docker --tlsverify --tlscacert {certificates}/ca.pem --tlscert "
            f"{certificates}/cert.pem --tlskey {certificates}/key.pem -H {address} version",
        ) from None


class _SaidError(Exception):
    """What a program that should forward connections said when it failed."""


def _new_folder() -> tuple[str, str]:
    """Return a folder that only this user can read, and the path of a socket in it."""
    folder = tempfile.mkdtemp(prefix="testbed-engine-")
    return folder, f"{folder}/docker.sock"


def _begin(command: Sequence[str], folder: str, path: str) -> Forward:
    """Start a program, and return once an engine answers at the path.

    Raises:
        _SaidError: none does.
    """
    said = Path(folder) / "said"
    with said.open("wb") as errors:
        process = subprocess.Popen(
            ["sh", "-c", UNTIL_THE_END, folder, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for this process, which may need the engine
        )
    reader = said.open(errors="replace")
    forward = Forward(path, process)
    assert process.stdout is not None
    with process.stdout, reader:
        if _says_ready(process.stdout.fileno()) and _answers(path):
            return forward
        forward.close()
        lines = reader.read().strip().splitlines()
    raise _SaidError(lines[-1].rstrip(".") if lines else "it does not answer")


def _says_ready(output: int) -> bool:
    """Return whether a line says so in time; a login over there may print others before it."""
    deadline, said = time.monotonic() + START_SECONDS, b"\n"
    while b"\nready\n" not in said:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([output], [], [], left)[0]:
            return False
        if not (more := os.read(output, 4096)):
            return False
        said += more
    return True


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
        probe.settimeout(ANSWER_SECONDS)
        probe.connect(path)
        probe.sendall(tls_forward.PING)
        return probe.recv(4) == b"HTTP"
    return False
