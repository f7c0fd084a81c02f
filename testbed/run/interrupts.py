"""Handles Ctrl-C and similar signals at any moment, without leaving anything behind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from testbed.values.signals import Signalled, sent_again

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt, Signalled):
    """The user, or a process manager, asked this process to end."""


class Interrupts:
    """Defers the signals that ask a process to end, until they may take effect.

    They raise Interrupted only where that is allowed, and only once: later signals
    find the process already ending. Allow it where this process waits, and not in a library
    that has locks, such as gRPC: interrupted between two of its lines, it may keep a lock forever.

    Use it as a context manager; it restores the previous handlers. In a thread other than the
    main thread, which no signal interrupts, it does nothing.
    """

    def __init__(self) -> None:
        self._allowed = False
        self._first: int | None = None
        self._before: dict[signal.Signals, object] = {}
        self._ending = ExitStack()

    def __enter__(self) -> Interrupts:
        in_main = threading.current_thread() is threading.main_thread()
        for number in SIGNALS if in_main else ():
            self._before[number] = signal.getsignal(number)
            if number != signal.SIGHUP or self._before[number] != signal.SIG_IGN:  # nohup
                signal.signal(number, self._handle)
        if in_main:
            self._ending.enter_context(sent_again(Interrupted, self._rearm))
        return self

    def __exit__(self, *failure: object) -> None:
        self._ending.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned

    def check(self) -> None:
        """Raise Interrupted if a signal has arrived."""
        if self._first is not None:
            self._allowed = False
            raise Interrupted(signal.Signals(self._first).name)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Inside, a signal takes effect at once; on entry, an earlier one does."""
        self._allowed = True
        try:
            self.check()
            yield
        finally:
            self._allowed = False

    def sleep(self, seconds: float) -> None:
        """Sleep; signals take effect meanwhile, those that arrived before at once."""
        with self.allowed():
            time.sleep(seconds)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._first is None:
            self._first = number
        if self._allowed:
            self.check()

    def _rearm(self) -> int:
        """Raise the first signal again when it comes again: Python has dropped the exception."""
        assert self._first is not None, "its exception was raised"
        number, self._first, self._allowed = self._first, None, True
        return number
