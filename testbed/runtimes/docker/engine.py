"""The connection to this machine's engine, its failures, and which engines cannot host runs."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import HostError, NodeError, TestbedError
from testbed.host.environment import BASE
from testbed.host.hierarchies import MOUNTS, find_mounted
from testbed.runtimes.docker.reach import NoEngineError, socket_of
from testbed.runtimes.parallel import THREADS

if TYPE_CHECKING:
    from docker import APIClient

BUILD = "testbed image build"
FULL = "no space left on device"
NOT_FOUND = 404
CONFLICT = 409

MISSING_SOURCE = re.compile(r"bind source path does not exist: (.+)$")
ABSENT_CPUS = re.compile(
    r"Requested CPUs are not available - requested (\S+), available: (\S+?)\.?$"
)

LACKS = (
    (
        FULL,
        "the {product} engine has no space left on its disk",
        "`{tool} system df` shows why; `testbed image prune` removes old images.",
    ),
    (
        "error setting rlimit",
        "the engine gives containers more open files or processes than it may have itself",
        "Set default_ulimits in /etc/containers/containers.conf, or raise the engine's limits.",
    ),
    (
        "no permission is granted for cgroups",
        "this rootless {product} engine was started in a control group that is not its user's",
        "Start it in a delegated one: systemctl --user restart {tool}.socket",
    ),
    ("no such image", "the {product} engine does not have the image", f"Build it: {BUILD}"),
    (
        "could not select device driver",
        "this {product} engine cannot give GPUs to containers",
        "Install the NVIDIA Container Toolkit, or remove gpus from the scenario.",
    ),
)
"""Text in the engine's message, what the host lacks then, and the fix. ``tool`` is its command."""


@contextmanager
def engine_faults(doing: str, *, product: str = "") -> Iterator[None]:
    """Inside, a failing or vanishing engine raises a HostError that names the operation.

    ``product`` is the engine's name where it has not been asked yet.
    """
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        raise refused(doing, error.explanation or str(error), product=product) from error
    except (DockerException, RequestException, HTTPError, HTTPException, OSError) as error:
        name = product or answering()
        if _is_late(error):
            raise NoEngineError(
                f"The {name} engine did not answer in time while {doing}.",
                hint=f"Restart it (sudo systemctl restart {name.lower()}), or {NATIVE}.",
            ) from error
        raise NoEngineError(
            f"The connection to the {name} engine was lost while {doing}: {error}.",
            hint=f"Is it running? See: {name.lower()} version",
        ) from error


def _is_late(error: BaseException | None) -> bool:
    """Return whether it is a timeout, which a client wraps in errors of its own."""
    from requests.exceptions import Timeout
    from urllib3.exceptions import TimeoutError as LateError

    while error is not None:
        if isinstance(error, Timeout | LateError | TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False


def refused(doing: str, reason: str, *, product: str = "") -> HostError:
    """Return the error for an operation, ``doing``, that the engine rejected."""
    name, hint = product or answering(), ""
    if FULL in reason.lower():
        used = f"`{name.lower()} system df` shows what uses it"
        hint = f"{used}; `testbed image prune` removes old images."
    return HostError(f"The {name} engine failed {doing}: {reason.strip().rstrip('.')}.", hint=hint)


@contextmanager
def container_faults(whose: str) -> Iterator[None]:
    """Inside, a failing or vanishing engine raises an error that names the container."""
    from docker.errors import APIError

    with engine_faults(f"working on the container of {whose}"):
        try:
            yield
        except APIError as error:
            reason = error.explanation or str(error)
            raise explain(whose, error.status_code, reason, product=answering()) from error


def explain(
    whose: str, status: int | None, reason: str, *, product: str = "Docker"
) -> TestbedError:
    """Return the error for an answer of the engine with the HTTP ``status``. Pure."""
    reason = reason.strip().rstrip(".")
    if found := MISSING_SOURCE.search(reason):
        return NodeError(f"{whose}: No such file or directory: {found[1]}")
    if found := ABSENT_CPUS.search(reason):
        return HostError(
            f"{whose}: cpuset {found[1]} has CPUs that this host does not have; it has {found[2]}.",
            hint=f"Choose from {found[2]} in the scenario.",
        )
    for sign, what, cure in LACKS:
        if sign in reason.lower():
            named = {"product": product, "tool": product.lower()}
            message = f"{whose}: {what.format(**named)} ({reason})."
            return HostError(message, hint=cure.format(**named))
    if status == NOT_FOUND:
        return NodeError(f"{whose}: its container was removed ({reason}).")
    return NodeError(f"{whose}: the {product} engine refused: {reason}.")


DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
SCHEME = "unix://"
NATIVE = "use `runtime: native`"

CALL_SECONDS = 120.0
"""The engine answers in a fraction of a second, or in tens of seconds on a slow disk."""

PROBE_SECONDS = 10.0
"""An engine that does not return its version within this time is reported as hung."""

INSTALL = "Install one (sudo apt-get install docker.io, or https://docs.docker.com/engine/install)"

CONTROLLER_OF = {
    **{"MemoryLimit": "memory", "PidsLimit": "pids", "CPUSet": "cpuset"},
    **{"CpuCfsQuota": "cpu", "CPUShares": "cpu"},
}
"""The fields of ``docker info`` about limits, and the controllers that enforce them."""

NEEDED_LIMITS = ("CPUShares", "MemoryLimit", "PidsLimit")
"""Of every node's container."""

OLD_ROOTLESS = ("19.", "20.")
"""Versions of rootless Docker that reject ``--pid=host``: https://github.com/moby/moby/pull/41893."""


def connect(
    address: str | None = None,
    *,
    patience_seconds: float = PROBE_SECONDS,
    call_seconds: float = CALL_SECONDS,
) -> APIClient:
    """Return a client of the engine for up to THREADS threads. The caller must close it.

    Args:
        address: of another host's engine, see ``reach``; by default DOCKER_HOST, or the usual one.
        patience_seconds, call_seconds: its longest silence when asked what it is, and in calls.

    Raises:
        HostError: no engine answers there, or that one cannot host runs; says what to do.
    """
    path = socket_path(address)
    version = _ask_version(path, patience_seconds)
    refuse(describe(address, patience_seconds=patience_seconds))
    _product_at(path)  # remembered, also for when it no longer answers
    return _client(path, version, call_seconds)


def socket_path(address: str | None = None) -> str:
    """Return the path of an engine's socket on this host; the address as for ``connect``.

    Raises:
        HostError: this host's is not a unix socket, or another host is not reached.
    """
    if address:
        return socket_of(address)
    address = os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS
    if not address.startswith(SCHEME):
        raise HostError(
            f"DOCKER_HOST is {address}, expected an engine on this machine, at unix://...",
            hint=f"Unset it (unset DOCKER_HOST), or {NATIVE}.",
        )
    return address.removeprefix(SCHEME)


def describe(
    address: str | None = None, *, patience_seconds: float = PROBE_SECONDS
) -> Mapping[str, Any]:
    """Return ``docker info``, known until ``forget``; arguments and errors as for ``connect``."""
    path = socket_path(address)
    with engine_faults("asking what it is", product="Docker"):
        return _ask_info(path, Path(path).stat().st_ctime_ns, patience_seconds)


@cache
def _ask_info(path: str, made_ns: int, patience_seconds: float) -> Mapping[str, Any]:
    """Ask an engine once, known by when its socket was made: Podman takes half a second."""
    del made_ns
    with closing(_client(path, _ask_version(path, patience_seconds), patience_seconds)) as engine:
        info: Mapping[str, Any] = engine.info()
        if info.get("CgroupVersion") != "2":
            return info
        if is_podman(info):
            # Its answer to Docker's request says that there is nearly no limit.
            own = engine.get(f"{engine.base_url}/v4.0.0/libpod/info")
            own.raise_for_status()
            present = own.json()["host"]["cgroupControllers"]
            return {**info, **{limit: name in present for limit, name in CONTROLLER_OF.items()}}
    return within(info, find_delegated_to(Path(path).stat().st_uid)) if is_rootless(info) else info


forget = _ask_info.cache_clear
"""Have engines asked again what they are: one can join a Swarm without being restarted."""


def find_delegated_to(uid: int, mounts: Path = MOUNTS) -> frozenset[str] | None:
    """Return the controllers that systemd has delegated to a user; None if that is unknown."""
    tree = next((one.point for one in find_mounted(mounts) if one.version == 2), None)
    if tree is None:
        return None
    manager = tree / f"user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"
    with suppress(OSError):
        return frozenset(manager.read_text().split())
    return None


def within(info: Mapping[str, Any], delegated: frozenset[str] | None) -> Mapping[str, Any]:
    """Return ``docker info`` of a rootless Docker without limits that are not delegated. Pure.

    It says what its user's slice has, but its containers are below the user's systemd.
    """
    if delegated is None:
        return info
    enforced = {
        one: info.get(one, False) for one, name in CONTROLLER_OF.items() if name in delegated
    }
    return {**info, **dict.fromkeys(CONTROLLER_OF, False), **enforced}


def _client(path: str, version: str, seconds: float) -> APIClient:
    from docker import APIClient

    with engine_faults("connecting", product="Docker"):
        return APIClient(
            base_url=f"{SCHEME}{path}", version=version, timeout=seconds, max_pool_size=THREADS
        )


def is_podman(info: Mapping[str, Any]) -> bool:
    """Return whether an engine with this ``docker info`` is Podman. Pure."""
    return "BuildahVersion" in info


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Return whether an engine with this ``docker info`` is an ordinary user's. Pure."""
    return "name=rootless" in _options(info) or bool(info.get("Rootless"))


def _options(info: Mapping[str, Any]) -> set[str]:
    return {option.partition(",")[0] for option in info.get("SecurityOptions") or ()}


def product_of(info: Mapping[str, Any]) -> str:
    """Return the name of the product that an engine with this ``docker info`` is. Pure."""
    return "Podman" if is_podman(info) else "Docker"


def answering() -> str:
    """Return the product whose engine DOCKER_HOST names; Docker if none has answered there."""
    with suppress(HostError):
        return _product_at(socket_path())
    return "Docker"


@cache
def _product_at(path: str) -> str:
    return product_of(describe(f"{SCHEME}{path}"))


def refuse(info: Mapping[str, Any]) -> None:
    """Reject engines whose containers this machine's agent could not enter. Pure.

    Raises:
        HostError: it is one of these; names what to use instead.
    """
    if "Docker Desktop" in str(info.get("OperatingSystem", "")):
        raise HostError(
            "Docker Desktop runs containers in a virtual machine, which the agent cannot enter.",
            hint=f"Install Docker Engine, select it (docker context use default), or {NATIVE}.",
        )
    if is_rootless(info):
        _refuse_rootless(info)
    if "name=userns" in _options(info):
        raise HostError(
            f"This {product_of(info)} engine remaps users, and the agent cannot enter its "
            "containers.",
            hint=f"Remove userns-remap from /etc/docker/daemon.json, or {NATIVE}.",
        )
    if info.get("OSType", "linux") != "linux":
        raise HostError(
            f"This {product_of(info)} engine runs {info['OSType']} containers.",
            hint="Use `runtime: native`.",
        )
    if Path(str(info.get("DefaultRuntime"))).name == "crun" and has_controllers_in_both():
        raise HostError(
            "The engine's runtime is crun, which rejects hosts with controllers in control groups "
            "of version 1 and of version 2.",
            hint="Use runc (sudo apt-get install runc; in /etc/containers/containers.conf, "
            f'section [engine]: runtime = "runc"), or {NATIVE}.',
        )


def _refuse_rootless(info: Mapping[str, Any]) -> None:
    """Reject a rootless engine whose agent or whose nodes would lack what they need. Pure."""
    engine, version = f"rootless {product_of(info)} engine", str(info.get("ServerVersion", ""))
    absent = sorted({CONTROLLER_OF[one] for one in NEEDED_LIMITS if not info.get(one)})
    if str(info.get("CgroupVersion", "1")) != "2" or info.get("CgroupDriver") == "none":
        lacking = "it has no control groups of version 2"
    elif absent:
        lacking = f"its user may not use the control groups of {' and '.join(absent)}"
    elif not is_podman(info) and version.startswith(OLD_ROOTLESS):
        raise HostError(
            f"This {engine} {version} cannot show the host's processes to the agent, as Docker 23 "
            "and newer can.",
            hint=f"Update it, unset DOCKER_HOST to select the system's engine, or {NATIVE}.",
        )
    else:
        return
    raise HostError(
        f"This {engine} cannot limit its containers: {lacking}.",
        hint="With control groups of version 2, set Delegate=cpu cpuset memory pids with "
        "`systemctl edit user@.service` and log in again. Or unset DOCKER_HOST to select the "
        f"system's engine, or {NATIVE}.",
    )


def has_controllers_in_both() -> bool:
    """Return whether the controllers of this host are divided between versions 1 and 2."""
    trees = find_mounted()
    unified = [tree.point / "cgroup.controllers" for tree in trees if tree.version == 2]
    return any(tree.version == 1 for tree in trees) and any(one.read_text() for one in unified)


def start_or_install(path: str | None = None) -> str:
    """Return how to get an engine on this machine, whose programs are searched for in ``path``."""
    programs = ("dockerd", "docker")
    installed = any(shutil.which(name, path=path or BASE["PATH"]) for name in programs)
    return "Start it (sudo systemctl start docker)" if installed else INSTALL


def _ask_version(path: str, patience_seconds: float) -> str:
    """Return the version of an engine's API, or raise why none answers.

    The client could ask for it too, but Podman takes a second for that answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(patience_seconds)
        try:
            probe.connect(path)
        except PermissionError:
            raise HostError(
                f"{path}: permission denied.",
                hint='Add the user to the docker group (sudo usermod -aG docker "$USER", and log '
                f"in again), or {NATIVE}.",
            ) from None
        except OSError as error:
            absent = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
            cure = start_or_install() if absent else "See `docker version`"
            raise NoEngineError(
                f"No Docker engine answers at {path}: {error.strerror or error}.",
                hint=f"{cure}, or {NATIVE}.",
            ) from None
        with engine_faults("connecting", product="Docker"):
            http = HTTPConnection("docker")
            http.sock = probe
            http.request("GET", "/_ping")
            return http.getresponse().headers.get("Api-Version", "auto")
