"""The virtual clock."""

from __future__ import annotations

from testbed.simulation.event_queue import EventQueue


def test_events_run_by_time_and_then_by_order_of_creation() -> None:
    events, seen = EventQueue(), list[tuple[str, float]]()
    for name, time in (("c", 2.0), ("a", 1.0), ("b", 1.0)):
        events.at(time, lambda now, name=name: seen.append((name, now)))  # type: ignore[misc]
    while events.advance():
        continue
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0)]
    assert events.now == 2.0


def test_callbacks_can_schedule_more_but_never_in_the_past() -> None:
    events, seen = EventQueue(), list[float]()

    def put_more(now: float) -> None:
        events.at(now - 0.5, seen.append)

    events.at(1.0, put_more)
    while events.advance():
        continue
    assert seen == [1.0]


def test_a_cancelled_event_does_not_run() -> None:
    events, seen = EventQueue(), list[float]()
    events.at(1.0, seen.append).cancel()
    events.at(2.0, seen.append)
    assert events.advance()
    assert seen == [2.0]
    assert not events.advance()
