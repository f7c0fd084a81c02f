"""A time limit for evaluations, which may call user code."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from testbed.errors import NodeError, UserCodeError
from testbed.host.isolation import TimeLimitExceeded
from testbed.values.user_code import user_code_location

AGAIN_SECONDS = 1.0
"""The alarm goes off again after this time, for code that catches its first exception."""


@contextmanager
def evaluated_within(seconds: float) -> Iterator[None]:
    """Interrupt the body when it takes longer than the limit; for a process's main thread.

    Args:
        seconds: real time.

    Raises:
        UserCodeError: it took longer, and was in user code.
        NodeError: it took longer elsewhere.
    """
    place = ""

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal place
        place = user_code_location(reversed(list(traceback.walk_stack(frame))))
        raise TimeLimitExceeded

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    except TimeLimitExceeded:
        signal.setitimer(signal.ITIMER_REAL, 0)
        kind = UserCodeError if place else NodeError
        raise kind(
            f"{place or 'the evaluation'}: still runs after {seconds:g} s, `evaluate.timeout`.",
            hint="A longer `evaluate.timeout` or fewer images (`evaluate.images`) may help.",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
