"""The connection to this machine's Docker engine, and the engines that runs cannot live in."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from testbed.errors import HostError
from testbed.runtimes.docker.faults import engine_faults

if TYPE_CHECKING:
    from docker import APIClient

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
SCHEME = "unix://"
NATIVE = "use `runtime: native`"

THREADS = 8
"""So many requests at once: to make containers is the engine's work, and more are no faster."""

CALL_SECONDS = 120.0
"""The engine answers in a fraction of a second, and in tens of them where a disk is slow."""

PROBE_SECONDS = 10.0


def connect(address: str | None = None) -> APIClient:
    """A client of the engine; up to THREADS threads may use it at once. To be closed.

    Args:
        address: of its socket, ``unix://...``; by default what DOCKER_HOST says, or the usual one.

    Raises:
        HostError: no engine answers there, or runs cannot live in that one; says what to do.
    """
    from docker import APIClient

    path = socket_path(address)
    _reach(path)
    with engine_faults("connecting"):
        engine = APIClient(
            base_url=f"{SCHEME}{path}", version="auto", timeout=CALL_SECONDS, max_pool_size=THREADS
        )
    try:
        refuse(describe(engine))
    except BaseException:
        engine.close()
        raise
    return engine


def socket_path(address: str | None = None) -> str:
    """Where an engine's socket is; the address as for ``connect``.

    Raises:
        HostError: it is no unix socket.
    """
    address = address or os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS
    if not address.startswith(SCHEME):
        raise HostError(
            f"DOCKER_HOST is {address}: runs need an engine of this machine, at unix://...",
            hint=f"Unset it (unset DOCKER_HOST), or {NATIVE}.",
        )
    return address.removeprefix(SCHEME)


def describe(engine: APIClient) -> Mapping[str, Any]:
    """What ``docker info`` tells.

    Raises:
        HostError: the engine does not answer.
    """
    with engine_faults("asking what it is"):
        info: Mapping[str, Any] = engine.info()
    return info


def refuse(info: Mapping[str, Any]) -> None:
    """Refuse engines whose containers this machine's agent could not enter. Pure.

    Args:
        info: what ``docker info`` tells of the engine.

    Raises:
        HostError: it is one of these; names what to use instead.
    """
    options = {option.partition(",")[0] for option in info.get("SecurityOptions") or ()}
    rootful = "select the system's engine, or"
    if "Docker Desktop" in str(info.get("OperatingSystem", "")):
        raise HostError(
            "Docker Desktop runs containers in a virtual machine, out of the agent's reach.",
            hint=f"Install Docker Engine (`docker context use default`), or {NATIVE}.",
        )
    if "name=rootless" in options:
        raise HostError(
            "A rootless Docker engine can give its containers no links.",
            hint=f"Unset DOCKER_HOST to {rootful} {NATIVE}.",
        )
    if "name=userns" in options:
        raise HostError(
            "This Docker engine remaps users, and the agent cannot enter its containers.",
            hint=f"Remove userns-remap from /etc/docker/daemon.json, or {NATIVE}.",
        )
    if info.get("OSType", "linux") != "linux":
        raise HostError(
            f"This Docker engine runs {info['OSType']} containers.", hint=_upper(NATIVE)
        )


def _reach(path: str) -> None:
    """Find out why nobody answers, which the client would not say."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(path)
        except PermissionError:
            raise HostError(
                f"{path}: permission denied.",
                hint='Add the user to the docker group (sudo usermod -aG docker "$USER", and log '
                f"in again), or {NATIVE}.",
            ) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise HostError(
                f"No Docker engine answers at {path}: {reason}.", hint=_start(error)
            ) from None


def _start(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
        return f"Start it (sudo systemctl start docker), or {NATIVE}."
    return f"See `docker version`, or {NATIVE}."


def _upper(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
