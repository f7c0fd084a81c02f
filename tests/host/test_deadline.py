"""A call that takes too long is interrupted wherever it is."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from testbed.errors import NodeError, UserCodeError
from testbed.host.deadline import evaluated_within
from testbed.values.user_code import UserCode

LOOP = """\
def loop():
    while True:
        try:
            while True:
                pass
        except Exception:
            pass
"""


def test_own_code_that_loops_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(LOOP)
    loop = UserCode(tmp_path / "net.py", "loop", "model").load("a function")
    late = pytest.raises(UserCodeError, match=r"net\.py:[45]: still runs after 0\.05 s")
    with late as told, evaluated_within(0.05):
        loop()
    assert "`evaluate.images`" in told.value.hint


def test_other_code_that_takes_too_long_is_reported() -> None:
    late = pytest.raises(NodeError, match=r"the evaluation: still runs after 0\.05 s")
    with late, evaluated_within(0.05):
        time.sleep(100)


def test_code_within_the_limit_is_not_interrupted() -> None:
    with evaluated_within(0.05):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
