"""The process that an actor forks, as the clock's process sees it; without a cluster."""

from __future__ import annotations

import os
import pickle
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401 - here once, or in each process that is forked

from testbed import datasets
from testbed.errors import ScenarioError
from testbed.simulation.actor import ActorRequest, Ended, Seat, in_fork
from testbed.simulation.process import save
from testbed.simulation.wire import Message, Peer

SCENARIO = """
name: tiny
runtime: simulated
algorithm: {asgd: {learning_rate: 0.1}}
model: {mlp: {hidden: [16]}}
dataset: digits
workers: {count: 5, batch_size: 10, classes: {fast: {speed: 20ms}}}
stop: {updates: 60}
evaluate: {every: 20, images: 100}
"""
KEY = b"k" * 32
PARAMETERS = 64 * 16 + 16 + 16 * 10 + 10


def forked(digits: Path, *, scenario: str = SCENARIO, snapshot: bytes = b"") -> Iterator[Any]:
    """What the second of three actors yields."""
    request = ActorRequest(
        {"scenario.yaml": scenario.encode()},
        number=1,
        processes=3,
        size=PARAMETERS,
        releases={},
        key=KEY,
    )
    return map(pickle.loads, in_fork("127.0.0.1", request, datasets.load(digits), snapshot))


def children() -> set[int]:
    """The children of all threads of this process, some of which may end meanwhile."""
    found = set[int]()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def states(seat: Seat) -> Any:
    """Ask the process for the states of its workers, by their numbers, then leave it."""
    with socket.create_connection(seat.address) as connection:
        connection.sendall(KEY)
        peer = Peer(connection)
        peer.send(Message(pickle.dumps(save)).parts)
        return pickle.loads(peer.receive(lambda row: pytest.fail("no row")).content)


def test_it_computes_its_share_of_the_workers_until_it_is_left(digits: Path) -> None:
    said = forked(digits)
    assert sorted(states(next(said))) == [1, 4]
    assert list(said) == [Ended("its process exited with status 0")]


def test_it_is_restored_from_the_states_of_another(digits: Path) -> None:
    first = forked(digits)
    saved = states(next(first))
    list(first)
    second = forked(digits, snapshot=pickle.dumps(saved))
    assert sorted(states(next(second))) == [1, 4]
    list(second)


def test_one_that_is_killed_is_named_with_its_signal_and_others_remain(digits: Path) -> None:
    before = children()
    killed = forked(digits)
    next(killed)
    (process,) = children() - before
    other = forked(digits)
    seat = next(other)
    os.kill(process, signal.SIGKILL)
    assert list(killed) == [Ended("its process was killed by signal 9")]
    assert sorted(states(seat)) == [1, 4]
    list(other)


def test_an_error_of_the_user_is_sent_in_place_of_its_seat(digits: Path) -> None:
    error, _ = forked(digits, scenario=SCENARIO.replace("asgd", "asgdd"))
    assert isinstance(error, ScenarioError)
    assert "found 'asgdd'" in error.message


def test_any_other_error_is_its_end(digits: Path) -> None:
    first = next(forked(digits, snapshot=b"damaged"))
    assert first == Ended("_pickle.UnpicklingError: could not find MARK", failed=True)
