"""Signals interrupt a run where that is safe, and are deferred where it is not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from threading import Timer
from typing import ClassVar

import pytest

from testbed.run.interrupts import SIGNALS, Interrupted, Interrupts
from testbed.values import signals


@pytest.fixture(autouse=True)
def hangup_is_heard() -> Iterator[None]:
    """As in a terminal; ``nohup`` may have set SIGINT to be ignored for these tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts_where_it_is_allowed(number: signal.Signals) -> None:
    with (
        Interrupts() as interrupts,
        pytest.raises(Interrupted, match=number.name),
        interrupts.allowed(),
    ):
        os.kill(os.getpid(), number)


def test_elsewhere_a_signal_is_deferred_until_allowed() -> None:
    steps = []
    with Interrupts() as interrupts, pytest.raises(Interrupted, match="SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
        steps.append("done")
        with interrupts.allowed():
            steps.append("never")
    assert steps == ["done"]


def test_elsewhere_a_signal_is_deferred_until_checked() -> None:
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(Interrupted, match="SIGHUP"):
            interrupts.check()


def test_a_signal_interrupts_a_sleep() -> None:
    with Interrupts() as interrupts:
        interrupts.sleep(0.0)
        Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(Interrupted, match="SIGTERM"):
            interrupts.sleep(600.0)


def test_a_deferred_signal_takes_effect_in_a_sleep_of_zero_seconds() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted, match="SIGINT"):
            interrupts.sleep(0.0)


def test_a_second_signal_does_not_interrupt_the_tear_down() -> None:
    steps = []
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted, match="SIGINT"), interrupts.allowed():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                for number in SIGNALS:
                    os.kill(os.getpid(), number)
                steps.append("torn down")
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("reported")
    assert steps == ["torn down", "reported"]


def test_after_the_allowed_part_signals_are_deferred_again() -> None:
    with Interrupts() as interrupts:
        with interrupts.allowed():
            pass
        os.kill(os.getpid(), signal.SIGINT)


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            interrupts.check()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_previous_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in SIGNALS] == before


class Signalling:
    """Its finalizer receives a SIGTERM, whose exception Python drops there."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_in_a_finalizer_is_not_lost() -> None:
    with Interrupts() as interrupts, pytest.raises(Interrupted), interrupts.allowed():
        Signalling()
        time.sleep(60)


def test_a_signal_is_not_lost_if_it_comes_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host, it comes before the thread that sends it is known to have started."""

    class Late(Timer):
        started: ClassVar[list[Late]] = []

        def start(self) -> None:
            super().start()
            self.started.append(self)
            if len(self.started) == 1:
                self.join()

    monkeypatch.setattr(signals, "Timer", Late)
    with Interrupts() as interrupts, pytest.raises(Interrupted), interrupts.allowed():
        Signalling()
        time.sleep(60)
    assert len(Late.started) == 2


def test_a_signal_during_a_fork_is_not_lost() -> None:
    """It arrives in a function that runs after the fork; that of ``logging`` is such a one."""
    with Interrupts() as interrupts, pytest.raises(Interrupted), interrupts.allowed():
        signals = [signal.SIGTERM]
        os.register_at_fork(
            after_in_parent=lambda: [os.kill(os.getpid(), signals.pop()) for _ in signals[:]]
        )
        if os.fork() == 0:
            os._exit(0)
        time.sleep(60)
    os.wait()
