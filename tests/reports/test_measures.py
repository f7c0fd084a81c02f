from __future__ import annotations

import pandas as pd
import pytest

from testbed.events.entry import Entry
from testbed.events.kinds import Event, Exited, Finished, Left, MemoryRead, Rejected, StateChanged
from testbed.reports import measures


def test_moving_average_of_ten() -> None:
    values = pd.Series([0.0] * 5 + [1.0] * 7)
    smooth = measures.moving_average(values)
    assert smooth.isna().sum() == 9
    assert list(smooth[9:]) == pytest.approx([0.5, 0.6, 0.7])


def test_the_final_evaluation_is_not_part_of_the_moving_average() -> None:
    table = pd.DataFrame({"top1": [0.5] * 10 + [1.0], "final": [False] * 10 + [True]})
    assert measures.accuracy(table) == {
        "best": 1.0,
        "final": 1.0,
        "last": 1.0,
        "best_moving_average": 0.5,
    }


def test_without_a_final_evaluation_there_is_no_final_accuracy() -> None:
    table = pd.DataFrame({"top1": [0.25, 0.5], "final": [False, False]})
    found = measures.accuracy(table)
    assert found["final"] is None
    assert found["last"] == 0.5


REJECTED = Rejected("w1", "a value is NaN or infinite")


def entries(*events: Event) -> list[Entry]:
    return [Entry(0.0, None, event) for event in events]


def test_a_lost_worker_is_named_once_with_what_is_known_best() -> None:
    events = entries(
        Left("w0"),
        Exited("w0", -11),
        Left("w2"),
        Finished("6 updates applied", 6),
        Left("w3"),
    )
    assert measures.lost_nodes(events) == [
        ("w0", "killed by signal 11"),
        ("w2", "the parameter server saw it leave"),
    ]


def test_a_rejected_worker_and_a_planned_end_are_no_losses() -> None:
    events = entries(REJECTED, Left("w1"), Exited("w1", 8), Exited("w2", -9, planned=True))
    assert measures.lost_nodes(events) == []
    assert measures.rejected_pushes(events) == [("w1", "a value is NaN or infinite")]


def test_a_call_without_the_token_is_nobodys_push() -> None:
    stranger = Rejected(None, "no valid token", "unix:", "Snapshot", "UNAUTHENTICATED")
    assert measures.rejected_pushes(entries(stranger, REJECTED)) == [("w1", REJECTED.reason)]


def test_nodes_that_end_in_the_tear_down_are_not_lost() -> None:
    events = entries(StateChanged("training"), StateChanged("interrupted"), Exited("w0", -9))
    assert measures.lost_nodes(events) == []


def test_the_last_look_at_the_memory_counts() -> None:
    events = entries(MemoryRead({"w0": 1, "w1": 1}), MemoryRead({"w0": 10, "w1": 20}))
    assert measures.private_bytes_median(events) == 15


def readings(*rows: tuple[float | None, float | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["wall_seconds", "host_busy_ratio"], dtype="float64")


def test_readings_before_the_training_and_without_a_share_do_not_count() -> None:
    found = measures.busyness(readings((None, 1.0), (1.0, None), (2.0, 0.5), (4.0, 0.8)), 4.0)
    assert found["mean"] == pytest.approx((2 * 0.5 + 2 * 0.8) / 4)
    assert found["max"] == 0.8
    assert found["share_above_limit"] == 0.0


def test_a_share_of_exactly_the_limit_is_not_above_it() -> None:
    found = measures.busyness(readings((1.0, 0.9), (2.0, 0.91)), 2.0)
    assert found["share_above_limit"] == 0.5


def test_a_host_that_was_never_looked_at() -> None:
    for found in measures.busyness(readings(), 4.0), measures.busyness(readings((1.0, 0.5)), None):
        assert found == {"mean": None, "max": None, "share_above_limit": None}
