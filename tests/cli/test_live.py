"""What a run shows while it is running."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import numpy as np
import pytest

from testbed.reports.console import Console
from testbed.reports.live import LiveDisplay, Progress, Status, clock_text, describe
from testbed.scenario.settings import Stop
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import Exited, FaultApplied, Launched, Phase
from testbed.telemetry.ps_events import Evaluated, Incomplete, Rejected, Started
from testbed.telemetry.rows import UPDATE

GLANCE = Status(
    updates=1_500,
    updates_per_second=375.4,
    accuracy=0.91,
    ingress_bytes=20_710_000,
    staleness=1.97,
    eta_seconds=61.4,
    done_ratio=0.5,
)
LINE = "1,500 updates (50%)  375/s  accuracy 0.9100  ingress 20.71 MB  staleness 2.0  ETA 1:01"


@dataclass
class Shown:
    """A display on a file, with a clock set by hand."""

    file: io.StringIO = field(default_factory=io.StringIO)
    now: float = 0.0

    def display(self, *, terminal: bool, width: int = 80) -> LiveDisplay:
        console = Console(file=self.file, force_terminal=terminal, width=width)
        return LiveDisplay(console, Progress(Stop(updates=100)), clock=lambda: self.now)

    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()


def test_progress_in_one_line() -> None:
    assert describe(GLANCE) == LINE


def test_unknown_values_are_dashes() -> None:
    assert describe(Status()) == (
        "0 updates  0/s  accuracy -  ingress 0.00 MB  staleness 0.0  ETA -"
    )


def test_workers_present_according_to_a_trace_are_counted() -> None:
    shown = Shown()
    display = shown.display(terminal=False)
    for number in range(214):
        left = FaultApplied("leave", True, (f"w{number}",), 1.0, 1.0, None, recorded=True)
        display.event(Entry(0.0, None, left))
    for number in range(198):
        joined = FaultApplied("join", True, (f"w{number}",), 2.0, 2.0, None, recorded=True)
        display.event(Entry(0.0, None, joined))
    assert shown.lines() == []
    display.time_passed(2.0)
    assert shown.lines() == [f"{describe(Status(done_ratio=0.0))}  join 198, leave 214"]


def test_a_fault_names_its_first_nodes() -> None:
    shown = Shown()
    display = shown.display(terminal=False)
    for count in (2, 5_000):
        struck = tuple(f"w{number}" for number in range(count))
        display.event(Entry(0.0, None, FaultApplied("freeze", True, struck, 1.0, 1.0, 0)))
    few, many = shown.lines()
    assert few == "freeze, as planned: w0, w1"
    assert many.endswith("w10, w11 and 4,988 more")


def test_a_fault_by_hand_is_none_of_the_scenarios() -> None:
    shown = Shown()
    display = shown.display(terminal=False)
    display.event(Entry(0.0, None, FaultApplied("slow", False, ("w5",), 1.0, 1.0)))
    assert shown.lines() == ["the end of slow, by hand: w5"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (3_599, "59:59"), (3_661, "1:01:01")]
)
def test_times(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_without_a_terminal_a_line_is_printed_at_intervals() -> None:
    shown = Shown()
    display = shown.display(terminal=False)
    display.phase("training")
    for shown.now in (0.0, 0.1, 4.9, 5.0):
        display.time_passed(shown.now)
    display.notice("w1: rejected: " + "x" * 200)
    display.close()
    training, first, second, notice = shown.lines()
    assert (training, notice) == ("training", "w1: rejected: " + "x" * 200)
    assert first == second == describe(Status(done_ratio=0.0))


def test_events_are_shown_while_a_user_waits() -> None:
    shown = Shown(now=100.0)
    display = shown.display(terminal=False)
    for event in (
        Phase("starting 3 workers"),
        Launched("w0", 17),
        Started(),
        Rejected("w1", "a value is NaN"),
        Incomplete("w1", "the message ended early"),
        Exited("w2", -9, how="w2 was ended by SIGKILL"),
        Exited("ps", 1, how="ps exited with status 1", ends_run=True),
        Exited("w0", 0, planned=True),
        Evaluated(2.0, 50, 1000, 0.5, {"top1": 0.875, "top5": 1.0}, 360, final=False),
    ):
        display.event(Entry(0.0, None, event))
    rows = np.zeros(50, UPDATE)
    rows["payload_up_bytes"] = 20_000
    display.updates(rows[:20], now=0.0)
    shown.now = 102.0
    display.updates(rows[20:], now=0.0)
    display.updates(rows[:0], now=0.0)
    display.time_passed(2.0)
    assert shown.lines() == [
        "starting 3 workers",
        "training",
        "w1: rejected: a value is NaN",
        "w2 was ended by SIGKILL; the other nodes continue",
        "50 updates (50%)  15/s  accuracy 0.8750  ingress 1.00 MB  staleness 0.0  ETA 0:03",
    ]


def test_on_a_terminal_one_line_is_updated() -> None:
    shown = Shown()
    display = shown.display(terminal=True, width=120)
    for shown.now in (0.0, 0.1, 0.2):
        display.show_line(describe(GLANCE))
    display.close()
    display.close()
    assert shown.file.getvalue().count("\n") == 1
    assert shown.file.getvalue().count(LINE) >= 3
    assert shown.file.getvalue().endswith("\x1b[?25h")  # the cursor is visible again


def test_on_a_narrow_terminal_no_text_is_truncated() -> None:
    shown = Shown()
    display = shown.display(terminal=True, width=60)
    display.show_line(describe(GLANCE))
    display.close()
    assert "ETA 1:01" in shown.file.getvalue()


class Gone(io.StringIO):
    """A pipe without a reader."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_closed_pipe_is_reported() -> None:
    with pytest.raises(BrokenPipeError):
        LiveDisplay(Console(file=Gone()), Progress()).phase("training")
