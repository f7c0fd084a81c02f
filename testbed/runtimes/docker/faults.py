"""What the Docker engine answers when it cannot, or will not, as errors that a user can read."""

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
    ("no such image", "the Docker engine has not the image", f"Build it: {BUILD}"),
    (
        "could not select device driver",
        "this Docker engine cannot give GPUs to containers",
        "Install the NVIDIA Container Toolkit, or remove gpus from the scenario.",
    ),
)
"""What the engine says, what the host lacks then, and the cure."""


@contextmanager
def engine_faults(doing: str) -> Iterator[None]:
    """Inside, an engine that refuses, or goes away, is a HostError that says ``doing`` what."""
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
                f"The Docker engine hangs: no answer came in time while {doing}.",
                hint="Restart it (sudo systemctl restart docker), or use `runtime: native`.",
            ) from error
        raise HostError(
            f"The Docker engine went away while {doing}: {error}.",
            hint="Is it running? See: docker version",
        ) from error


def _is_late(error: BaseException | None) -> bool:
    """Whether the time was up: a client wraps that in errors of its own."""
    from requests.exceptions import Timeout
    from urllib3.exceptions import TimeoutError as LateError

    while error is not None:
        if isinstance(error, Timeout | LateError | TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False


def refused(doing: str, reason: str) -> HostError:
    """The error for what the engine said no to while ``doing`` something."""
    hint = ""
    if FULL in reason.lower():
        hint = "Make room: `testbed image prune` and `docker system df` say where it went."
    return HostError(f"The Docker engine failed {doing}: {reason.strip().rstrip('.')}.", hint=hint)


@contextmanager
def asking(whose: str) -> Iterator[None]:
    """Inside, an engine that refuses, or goes away, is an error that names the container."""
    from docker.errors import APIError

    with engine_faults(f"working on the container of {whose}"):
        try:
            yield
        except APIError as error:
            raise explain(whose, error.status_code, error.explanation or str(error)) from error


def explain(whose: str, status: int | None, reason: str) -> TestbedError:
    """The error for an answer of the engine, whose ``status`` is HTTP's. Pure."""
    reason = reason.strip().rstrip(".")
    if found := MISSING_SOURCE.search(reason):
        return NodeError(f"{whose}: No such file or directory: {found[1]}")
    if found := ABSENT_CPUS.search(reason):
        return HostError(
            f"{whose}: cpuset {found[1]} has CPUs that this host has not; it has {found[2]}.",
            hint=f"Choose from {found[2]} in the scenario.",
        )
    for sign, what, cure in LACKS:
        if sign in reason.lower():
            return HostError(f"{whose}: {what} ({reason}).", hint=cure)
    if status == NOT_FOUND:
        return NodeError(f"{whose}: its container was removed ({reason}).")
    return NodeError(f"{whose}: the Docker engine refused: {reason}.")
