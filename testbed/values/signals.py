"""Exceptions that signal handlers raise, and what to do where Python drops them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_SECONDS = 0.01
"""Longer than the rest of a finalizer usually takes."""


class Signalled(BaseException):
    """Raised by a signal handler in the code it interrupts; not a failure of that code."""


@contextmanager
def sent_again(kind: type[Signalled], rearm: Callable[[], int]) -> Iterator[None]:
    """Inside, send a signal again if Python has dropped the exception that its handler raised.

    It drops exceptions in finalizers and in the functions that run before and after a fork. A fork
    of a large process takes so long that a signal often arrives then.

    Args:
        kind: the exception.
        rearm: makes the handler raise again; returns the number of the signal.
    """
    before = sys.unraisablehook

    def notice(dropped: UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, kind):
            before(dropped)
            return
        while True:
            with suppress(kind):  # on a busy host, the signal comes before `start` has returned
                Timer(AGAIN_SECONDS, os.kill, (os.getpid(), rearm())).start()
                return

    sys.unraisablehook = notice
    try:
        yield
    finally:
        sys.unraisablehook = before
