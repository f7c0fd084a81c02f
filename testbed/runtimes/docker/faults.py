"""Converts failures of the Docker engine into errors that a user can read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.errors import HostError, NodeError, TestbedError

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
        "the Docker engine has no space left on its disk",
        "`docker system df` shows why; `testbed image prune` removes old images.",
    ),
    ("no such image", "the Docker engine does not have the image", f"Build it: {BUILD}"),
    (
        "could not select device driver",
        "this Docker engine cannot give GPUs to containers",
        "Install the NVIDIA Container Toolkit, or remove gpus from the scenario.",
    ),
)
"""Text in the engine's message, what the host lacks then, and the fix."""


@contextmanager
def engine_faults(doing: str) -> Iterator[None]:
    """Inside, a failing or vanishing engine raises a HostError that names the operation."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        raise refused(doing, error.explanation or str(error)) from error
    except (DockerException, RequestException, HTTPError, OSError) as error:
        if _is_late(error):
            raise HostError(
                f"The Docker engine did not answer in time while {doing}.",
                hint="Restart it (sudo systemctl restart docker), or use `runtime: native`.",
            ) from error
        raise HostError(
            f"The connection to the Docker engine was lost while {doing}: {error}.",
            hint="Is it running? See: docker version",
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


def refused(doing: str, reason: str) -> HostError:
    """Return the error for an operation, ``doing``, that the engine rejected."""
    hint = ""
    if FULL in reason.lower():
        hint = "`docker system df` shows what uses it; `testbed image prune` removes old images."
    return HostError(f"The Docker engine failed {doing}: {reason.strip().rstrip('.')}.", hint=hint)


@contextmanager
def container_faults(whose: str) -> Iterator[None]:
    """Inside, a failing or vanishing engine raises an error that names the container."""
    from docker.errors import APIError

    with engine_faults(f"working on the container of {whose}"):
        try:
            yield
        except APIError as error:
            raise explain(whose, error.status_code, error.explanation or str(error)) from error


def explain(whose: str, status: int | None, reason: str) -> TestbedError:
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
            return HostError(f"{whose}: {what} ({reason}).", hint=cure)
    if status == NOT_FOUND:
        return NodeError(f"{whose}: its container was removed ({reason}).")
    return NodeError(f"{whose}: the Docker engine refused: {reason}.")
