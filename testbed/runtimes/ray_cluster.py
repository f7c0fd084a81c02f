"""A Ray cluster: how a process joins it, and whether its nodes can compute what this host would.

Ray brings this package to the nodes with its runtime environment.
"""

from __future__ import annotations

import importlib
import logging
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import testbed
from testbed.errors import HostError

CONNECT_SECONDS = 10.0

SAME = ("torch", "numpy")
"""Packages that must have the same release everywhere: results depend on them."""


@contextmanager
def connected(address: str, *, asked_by: str) -> Iterator[None]:
    """Join a Ray cluster, and bring this package to its nodes.

    Args:
        address: of the cluster, as Ray takes it.
        asked_by: the option that asks for Ray, for errors.

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
    package = str(Path(testbed.__file__).parent)
    try:
        _call(address)
        with _sigterm_kept():
            ray.init(
                address,
                runtime_env={"py_modules": [package], "excludes": ["**/__pycache__"]},
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise HostError(
            f"no Ray cluster can be joined at {address}: {summary(error).rstrip('.')}.",
            hint="`ray status` shows the cluster of this machine. Expected auto, HOST:PORT, or "
            "ray://HOST:10001 from outside the cluster.",
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


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
    """Return the versions of this process's packages in ``SAME``."""
    return {one: version(one) for one in SAME}


def check_nodes(wanted: Mapping[str, str], *, entry: str) -> None:
    """Check that every node has these releases, and can import the module ``entry``.

    Raises:
        HostError: some cannot; says which, and why.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    examine: Any = ray.remote(num_cpus=0)(lacks)
    asked = []
    for node in alive_nodes():
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        found = examine.options(scheduling_strategy=there).remote(wanted, entry)
        asked.append((node["NodeManagerHostname"], found))
    problems = []
    for host, found in asked:
        try:
            lacking = ray.get(found)
        except ray.exceptions.RayError as error:
            lacking = summary(error)
        if lacking:
            problems.append(f"{host}: {lacking}")
    if problems:
        raise HostError(
            f"{len(problems)} of {len(asked)} nodes of the Ray cluster cannot execute runs: "
            f"{'; '.join(problems)}.",
            hint=f"On these nodes: pip install 'edge-testbed[ray]=={version('edge-testbed')}' "
            + " ".join(f"{one}=={release_of(its)}" for one, its in wanted.items()),
        )


def lacks(wanted: Mapping[str, str], entry: str = "") -> str:
    """Return what this node lacks to execute a run with the same result; empty if nothing."""
    for package, its in wanted.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            return f"the package {package} is not installed, expected {package} {its}"
        if release_of(found) != release_of(its):
            return f"found {package} {found}, expected {its} as on the driver's machine"
    if entry:
        try:
            importlib.import_module(entry)
        except ImportError as error:
            return str(error)
    return ""


def release_of(found: str) -> str:
    """Return the release of a version, without its build such as +cpu."""
    return found.partition("+")[0]
