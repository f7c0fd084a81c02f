"""What a template prepares for its forks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from testbed.host.process import end_with
from testbed.runtimes.agent.template import prepare_forks

KEPT, RENEWED = 7, 8


def test_a_fork_of_the_template_makes_no_new_locks_for_handlers_of_logs() -> None:
    assert _status_of(lambda: _lock_in_a_fork(prepared=False)) == RENEWED
    assert _status_of(lambda: _lock_in_a_fork(prepared=True)) == KEPT


def _lock_in_a_fork(*, prepared: bool) -> int:
    """Fork while this process holds a handler's lock; return whether the fork holds it too."""
    handler = logging.StreamHandler()
    if prepared:
        prepare_forks()
    handler.acquire()
    return _status_of(lambda: KEPT if _is_held(handler) else RENEWED)


def _is_held(handler: logging.Handler) -> bool:
    """Whether this thread holds the lock: only then may it be released."""
    try:
        handler.release()
    except RuntimeError:
        return False
    return True


def _status_of(work: Callable[[], int]) -> int:
    """Work in a fork, and return its exit status."""
    if (pid := os.fork()) == 0:
        end_with(work)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
