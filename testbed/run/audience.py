"""Who asks for a run, and what is told of it: live or simulated, it is all the same to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from testbed.errors import RunNotFound, TestbedError
from testbed.events.sink import Sink
from testbed.run.run import NotTornDown
from testbed.telemetry.folder import RunFolder


class Audience(Protocol):
    """Whoever has asked for a run."""

    @property
    def sink(self) -> Sink:
        """Is told all that is written down."""

    def phase(self, text: str) -> None:
        """The run begins."""

    def say(self, text: str) -> None:
        """Something was decided that the scenario had left open."""

    def conclude(self, folder: RunFolder, *, torn_down: bool) -> bool:
        """The run has ended, however it did. Returns whether what it measured is valid.

        Args:
            folder: the run's.
            torn_down: whether its containers are gone, but those that are to be kept; false of a
                simulation, which had none.
        """


@contextmanager
def concluded(
    folder: RunFolder, audience: Audience, *, now: float, contained: bool = True
) -> Iterator[Callable[[], bool]]:
    """Have the run concluded after the body, also if that fails; yields what the verdict was.

    A run that did not come so far as to say so itself is one that failed.
    """
    verdict: list[bool] = []
    try:
        yield verdict.pop
    except BaseException as failure:
        with suppress(OSError, TestbedError):
            _not_begun(folder, failure, now=now)
        with suppress(OSError, RunNotFound):  # what went wrong first is what has to be told
            audience.conclude(folder, torn_down=contained and not isinstance(failure, NotTornDown))
        raise
    verdict.append(audience.conclude(folder, torn_down=contained))


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
