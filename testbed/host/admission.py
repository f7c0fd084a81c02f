"""Holds a process that has started until it is admitted, without waking it meanwhile.

A call that waits in gRPC wakes its process 15 times a second. A thousand of them would take the
processors from those that still start.
"""

from __future__ import annotations

import signal

ADMISSION = signal.SIGUSR1
"""Admits a held process, even before it waits for that."""


def hold() -> None:
    """Make this process wait in ``await_admission``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {ADMISSION})


def await_admission() -> None:
    """Wait until this process is admitted, if it is held. SIGTERM is handled as ever."""
    if ADMISSION in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        # Blocked: one that came just before the call would not interrupt it.
        awaited = {ADMISSION, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        received = signal.sigwaitinfo(awaited).si_signo
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
        if received == signal.SIGTERM:
            signal.raise_signal(received)
