"""The queue at the parameter server, by hand."""

from __future__ import annotations

from testbed.algorithms.frame.service_queue import ServiceQueue


def test_a_request_waits_while_another_is_served() -> None:
    turns = ServiceQueue(2.0)
    assert turns.take(0.0) == 2.0
    assert turns.take(1.0) == 4.0  # waits one second
    assert turns.take(1.0) == 6.0  # and this one three
    assert turns.take(10.0) == 12.0  # the queue is empty
    assert turns.take(12.0) == 14.0  # arrives as the other ends


def test_a_server_that_takes_no_time_causes_no_waits() -> None:
    turns = ServiceQueue(0.0)
    assert [turns.take(now) for now in (1.0, 1.0, 5.0)] == [1.0, 1.0, 5.0]
