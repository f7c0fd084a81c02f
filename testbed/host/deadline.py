"""Time limits for user code."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from testbed.errors import NodeError, UserCodeError
from testbed.values.signals import Signalled
from testbed.values.user_code import user_code_location

AGAIN_SECONDS = 1.0
"""The alarm goes off again after this time, for code that catches its first exception."""


class TimeLimitExceeded(Signalled):
    """The time is over.

    Attributes:
        location: file and line of the user code that is still running; empty if none is.
    """

    def __init__(self, location: str) -> None:
        super().__init__()
        self.location = location


@contextmanager
def alarm(seconds: float, *, anywhere: bool) -> Iterator[Callable[[], None]]:
    """Interrupt the body when it takes longer than ``seconds`` of real time; in the main thread.

    Yields:
        A function that switches the alarm off.

    Raises:
        TimeLimitExceeded: it took longer, and was in user code (or ``anywhere``).
    """

    def ring(number: int, frame: FrameType | None) -> None:
        location = user_code_location(reversed(list(traceback.walk_stack(frame))))
        if location or anywhere:
            raise TimeLimitExceeded(location)

    def off() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield off
    finally:
        off()
        signal.signal(signal.SIGALRM, before)


@contextmanager
def evaluated_within(seconds: float) -> Iterator[None]:
    """Interrupt an evaluation, which may call user code, when it takes longer than the limit.

    Raises:
        UserCodeError: it took longer, and was in user code.
        NodeError: it took longer elsewhere.
    """
    try:
        with alarm(seconds, anywhere=True):
            yield
    except TimeLimitExceeded as error:
        kind = UserCodeError if error.location else NodeError
        raise kind(
            f"{error.location or 'the evaluation'}: still runs after {seconds:g} s, "
            "`evaluate.timeout`.",
            hint="A longer `evaluate.timeout` or fewer images (`evaluate.images`) may help.",
        ) from None
