"""The interface to the caller that requested a run, the same for live and simulated runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from testbed.errors import RunNotFound, TestbedError
from testbed.run.run import NotTornDown
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.sink import Sink


class RunListener(Protocol):
    """The listener of a run, implemented by the caller that requested it."""

    @property
    def sink(self) -> Sink:
        """Return the sink that receives all records."""

    def phase(self, text: str) -> None:
        """Announce a phase of the run."""

    def say(self, text: str) -> None:
        """Report a decision that the scenario had left open."""

    def conclude(self, folder: RunFolder, *, torn_down: bool) -> bool:
        """Conclude a run that has ended in any way; return whether its measurements are valid.

        Args:
            folder: the run's.
            torn_down: whether its containers were removed, except those to be kept; false for a
                simulation, which had none.
        """


@contextmanager
def concluded(
    folder: RunFolder, listener: RunListener, *, now: float, contained: bool = True
) -> Iterator[Callable[[], bool]]:
    """Conclude the run after the body, even if that fails; yield a function for the verdict.

    A run that ended before it recorded its own end counts as failed.
    """
    verdict: list[bool] = []
    try:
        yield verdict.pop
    except BaseException as failure:
        with suppress(OSError, TestbedError):
            _not_begun(folder, failure, now=now)
        with suppress(OSError, RunNotFound):  # the first error must be reported
            listener.conclude(folder, torn_down=contained and not isinstance(failure, NotTornDown))
        raise
    verdict.append(listener.conclude(folder, torn_down=contained))


def _not_begun(folder: RunFolder, failure: BaseException, *, now: float) -> None:
    if folder.state().state == "created":
        code = failure.exit_code if isinstance(failure, TestbedError) else TestbedError.exit_code
        interrupted = isinstance(failure, KeyboardInterrupt)
        folder.move(
            "interrupted" if interrupted else "failed",
            now=now,
            reason=str(failure) or type(failure).__name__,
            exit_code=None if interrupted else code,
        )
