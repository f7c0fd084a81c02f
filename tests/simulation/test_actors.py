"""The rows that an actor keeps, and what is kept to replace it; without a cluster."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from testbed.algorithms.base import Reply, Update
from testbed.algorithms.frame.effects import NO_STANDING
from testbed.payloads import Dense, Vector
from testbed.simulation.actor import Rows, WorkerActor, accept, connection_over, received
from testbed.simulation.journal import Journal
from testbed.simulation.messages import Begin, Restart, Result, Unchanged, store, used
from testbed.simulation.worker import TO_THE_END

SIZE = 8


def begin(worker: int, row: int, values: Vector) -> tuple[Begin, Vector]:
    """A task, and what it takes of its row."""
    whole = np.full(SIZE, np.nan, np.float32)
    stored = store(Reply(Dense(values), 0), whole)
    task = Begin(worker, 0.0, 0.0, row, stored, NO_STANDING, TO_THE_END)
    return task, whole[: used(stored)]


def test_three_values_take_four_of_a_row_as_arrays_begin_at_eight_bytes() -> None:
    _, sent = begin(0, 5, np.arange(3, dtype=np.float32))
    assert sent.size == 4
    assert sent[:3].tolist() == [0, 1, 2]


def test_a_row_is_kept_until_its_result() -> None:
    rows = Rows(SIZE)
    task, sent = begin(2, 7, np.arange(4, dtype=np.float32))
    rows.receive([task], {7: sent})
    assert rows[7][:4].tolist() == [0, 1, 2, 3]
    update = Update(Dense(np.full(2, 9, np.float32)), 0, 1)
    result = Result(2, store(update, rows[7]), ())
    assert {row: values.tolist() for row, values in rows.results([task], [result]).items()} == {
        7: [9, 9]
    }
    assert list(rows) == []


def test_a_restarted_worker_leaves_its_row_to_the_next_message() -> None:
    rows = Rows(SIZE)
    first, sent = begin(2, 7, np.arange(4, dtype=np.float32))
    rows.receive([first], {7: sent})
    second, other = begin(2, 7, np.full(4, 5, np.float32))
    rows.receive([Restart(2), second], {7: other})
    assert rows[7][:4].tolist() == [5, 5, 5, 5]
    rows.receive([Restart(2)], {})
    assert rows.results([Restart(2)], [Unchanged(2)]) == {}
    assert list(rows) == []


def test_a_journal_is_long_at_twice_its_snapshot_or_32_megabytes() -> None:
    with closing(Journal(bytes(17 * 2**20))) as journal:
        journal.append(bytes(33 * 2**20))
        assert not journal.is_long
        journal.append(bytes(2 * 2**20))
        assert journal.is_long
    with closing(Journal()) as journal:
        journal.append(bytes(32 * 2**20))
        assert not journal.is_long
        journal.append(b"1")
        assert journal.is_long


def test_a_journal_returns_its_messages_again_and_continues() -> None:
    with closing(Journal(b"snapshot")) as journal:
        journal.append(b"one")
        journal.append(b"three")
        for _ in range(2):
            snapshot, messages = journal.read()
            assert (snapshot, next(messages)) == (b"snapshot", b"one")
        journal.append(b"4")
        snapshot, messages = journal.read()
        assert (snapshot, *messages) == (b"snapshot", b"one", b"three", b"4")
        assert len(journal) == 3


def test_only_the_peer_that_says_the_key_is_answered() -> None:
    key = b"k" * 32
    with socket.create_server(("127.0.0.1", 0)) as server:
        for said in (b"", b"k" * 31, b"x" * 32 + key):
            with socket.create_connection(server.getsockname()) as stranger:
                stranger.sendall(said)
        peer = socket.create_connection(server.getsockname())
        peer.sendall(key)
        with accept(server, key) as actor, connection_over(peer) as clock:
            for count in range(100):  # more than the sockets hold, before any is read
                clock.send_bytes(bytes([count]) * 2**20)
                if count == 0:
                    messages = received(actor)
                    assert next(messages) == bytes(2**20)
            clock.close()
            assert [message[0] for message in messages] == list(range(1, 100))


class Failing(WorkerActor):
    """Fails at its first message, by its own fault."""

    def __init__(self, server: socket.socket, key: bytes) -> None:
        self._server, self._key = server, key

    def answer(self, message: bytes) -> bytes:
        raise MemoryError


def test_the_clock_does_not_wait_for_an_actor_that_has_failed() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(Failing(server, b"key").serve)
        peer = socket.create_connection(server.getsockname())
        peer.sendall(b"key")
        with connection_over(peer) as clock:
            clock.send_bytes(b"message")
            with pytest.raises(EOFError):
                clock.recv_bytes()
        with pytest.raises(MemoryError):
            serving.result()
