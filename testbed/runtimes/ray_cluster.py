"""A Ray cluster: how a process joins it, and whether its nodes can compute what this host would.

Nodes that have this package use their own copy, in processes that Ray has started before. If one
does not, Ray brings it to all with its runtime environment.
"""

from __future__ import annotations

import logging
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import testbed
from testbed.errors import HostError

PACKAGE = Path(testbed.__file__).parent

CONNECT_SECONDS = 10.0

Ask = Callable[..., list[tuple[str, Any]]]
"""Calls a function on nodes, and returns what ``ask_nodes`` does."""

CODE = "edge-testbed"

SAME = ("torch", "numpy")
"""Packages that must have the same release everywhere: results depend on them."""


@contextmanager
def connected(address: str, *, asked_by: str, ask: Ask | None = None) -> Iterator[None]:
    """Join a Ray cluster, and bring this package to its nodes if one of them lacks it.

    Args:
        address: of the cluster, as Ray takes it.
        asked_by: the option that asks for Ray, for errors.
        ask: asks all nodes that compute; see ``check_nodes``.

    Raises:
        HostError: Ray is not installed, or there is no cluster of its version at the address.
    """
    try:
        import ray
    except ImportError:
        raise HostError(
            f"{asked_by} needs the package ray, which is not installed.",
            hint="pip install 'edge-testbed[ray]'",
        ) from None
    if ray.is_initialized():
        raise HostError("this process uses a Ray cluster already.", hint="ray.shutdown()")
    try:
        _join(address, ask or ask_nodes)
        yield
    finally:
        ray.shutdown()


def _join(address: str, ask: Ask) -> None:
    """Join a cluster whose nodes then have this package.

    Raises:
        HostError: there is none at the address.
    """
    import ray

    try:
        _call(address)
        with _sigterm_kept():
            _initialise(address)
            if not _all_have_package(ask):
                ray.shutdown()
                _initialise(address, py_modules=[str(PACKAGE)], excludes=["**/__pycache__"])
    except (OSError, RuntimeError, ValueError) as error:
        raise HostError(
            f"no Ray cluster can be joined at {address}: {summary(error).rstrip('.')}.",
            hint="`ray status` shows the cluster of this machine. Expected auto, HOST:PORT, or "
            "ray://HOST:10001 from outside the cluster.",
        ) from None


def _initialise(address: str, **environment: Any) -> None:
    import ray

    ray.init(address, runtime_env=environment, logging_level=logging.ERROR, log_to_driver=False)


def _all_have_package(ask: Ask) -> bool:
    """Return whether every node can import this package, with the code that is here."""
    return all(lacking == "" for _, lacking in ask(lacks, {CODE: digest()}))


@cache
def digest() -> str:
    """Return a digest of this package's code, and of its tables of devices and links."""
    found = sha256()
    for path in sorted(one for one in PACKAGE.rglob("*") if one.suffix in (".py", ".yaml")):
        found.update(f"{path.relative_to(PACKAGE)} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Keep this process's handler of SIGTERM: Ray's would print a stack and abort."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _call(address: str) -> None:
    """Check that a server answers at an address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def summary(error: BaseException) -> str:
    """Return an error of Ray's or the system's on one line: of a trace, the last."""
    import ray

    lines = [line.strip() for line in str(error).strip().splitlines()]
    if isinstance(error, ray.exceptions.RayTaskError):
        return lines[-1]
    return (error.strerror if isinstance(error, OSError) else None) or " ".join(lines)


def alive_nodes() -> list[dict[str, Any]]:
    """Return Ray's description of each node that computes."""
    import ray

    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in known if node["Alive"] and node["Resources"].get("CPU")]


def releases() -> Mapping[str, str]:
    """Return what every node must have: packages by name, with a version if it matters.

    Of this package, it is the digest of the code.
    """
    needed = [one for one in requires(CODE) or () if "extra ==" not in one]
    any_version = {re.split(r"[^\w.-]", one)[0]: "" for one in needed}
    return any_version | {one: version(one) for one in SAME} | {CODE: digest()}


def check_nodes(wanted: Mapping[str, str], *, ask: Ask | None = None) -> None:
    """Check that every node has what ``releases`` returned.

    Args:
        wanted: what that was.
        ask: calls a function on the nodes; by default ``ask_nodes``.

    Raises:
        HostError: some cannot; says which, and why.
    """
    found = [
        (host, summary(lacking) if isinstance(lacking, Exception) else lacking)
        for host, lacking in (ask or ask_nodes)(lacks, wanted)
    ]
    problems = [f"{host}: {lacking}" for host, lacking in found if lacking]
    if problems:
        raise HostError(
            f"{len(problems)} of {len(found)} nodes of the Ray cluster cannot execute runs: "
            f"{'; '.join(problems)}.",
            hint=f"On these nodes: pip install 'edge-testbed[ray]=={version('edge-testbed')}' "
            + " ".join(f"{one}=={release_of(wanted[one])}" for one in SAME),
        )


def ask_nodes(function: Callable[..., Any], *arguments: Any) -> list[tuple[str, Any]]:
    """Call a function on every node; return the name of each, with the result or Ray's error."""
    import ray

    task: Any = ray.remote(num_cpus=0, max_retries=0)(function)
    return answers_of(
        [
            (node, task.options(scheduling_strategy=on(node)).remote(*arguments))
            for node in alive_nodes()
        ]
    )


def on(node: Mapping[str, Any]) -> Any:
    """Return what places a task or an actor on a node, as Ray takes it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)


def answers_of(asked: Sequence[tuple[Mapping[str, Any], Any]]) -> list[tuple[str, Any]]:
    """Wait for the answers of nodes; return the name of each, with the answer or Ray's error."""
    import ray

    answers: list[tuple[str, Any]] = []
    for node, reference in asked:
        host = node["NodeManagerHostname"]
        try:
            answers.append((host, ray.get(reference)))
        except ray.exceptions.RayError as error:
            answers.append((host, error))
    return answers


def lacks(wanted: Mapping[str, str]) -> str:
    """Return what this node lacks to execute a run with the same result; empty if nothing."""
    for package, its in wanted.items():
        if package == CODE:
            if digest() != its:
                return f"its package {CODE} has other code than that of the driver's machine"
            continue
        try:
            found = version(package)
        except PackageNotFoundError:
            return f"the package {package} is not installed, expected {package} {its}".rstrip()
        if its and release_of(found) != release_of(its):
            return f"found {package} {found}, expected {its} as on the driver's machine"
    return ""


def release_of(found: str) -> str:
    """Return the release of a version, without its build such as +cpu."""
    return found.partition("+")[0]
