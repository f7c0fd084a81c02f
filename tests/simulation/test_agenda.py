"""The virtual clock."""

from __future__ import annotations

from testbed.simulation.agenda import Agenda


def test_events_happen_by_time_and_then_in_the_order_they_were_put_there() -> None:
    agenda, seen = Agenda(), list[tuple[str, float]]()
    for name, time in (("c", 2.0), ("a", 1.0), ("b", 1.0)):
        agenda.at(time, lambda now, name=name: seen.append((name, now)))  # type: ignore[misc]
    while agenda.advance():
        continue
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0)]
    assert agenda.now == 2.0


def test_what_happens_can_put_more_there_but_never_in_the_past() -> None:
    agenda, seen = Agenda(), list[float]()

    def put_more(now: float) -> None:
        agenda.at(now - 0.5, seen.append)

    agenda.at(1.0, put_more)
    while agenda.advance():
        continue
    assert seen == [1.0]


def test_a_struck_entry_does_not_happen() -> None:
    agenda, seen = Agenda(), list[float]()
    agenda.at(1.0, seen.append).strike()
    agenda.at(2.0, seen.append)
    assert agenda.advance()
    assert seen == [2.0]
    assert not agenda.advance()
