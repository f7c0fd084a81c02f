"""What the Docker engine answers when it cannot, as errors that a user can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testbed.errors import HostError

FULL = "no space left on device"


@contextmanager
def engine_faults(doing: str) -> Iterator[None]:
    """Inside, whatever the engine answers, or fails to, is a HostError that says ``doing`` what.

    Raises:
        HostError: the engine refused, did not answer, or went away.
    """
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        raise refused(doing, error.explanation or str(error)) from error
    except (DockerException, RequestException, HTTPError, OSError) as error:
        raise HostError(
            f"The Docker engine went away while {doing}: {error}.",
            hint="Is it running? See: docker version",
        ) from error


def refused(doing: str, reason: str) -> HostError:
    """The error for what the engine said no to while ``doing`` something."""
    hint = ""
    if FULL in reason.lower():
        hint = "Make room: `testbed image prune` and `docker system df` say where it went."
    return HostError(f"The Docker engine failed {doing}: {reason.strip().rstrip('.')}.", hint=hint)
