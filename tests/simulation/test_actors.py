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
from testbed.simulation.actor import Rows, WorkerActor, accept
from testbed.simulation.journal import Journal
from testbed.simulation.messages import Begin, Restart, Result, Unchanged, store, used
from testbed.simulation.wire import Message, Peer
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
    rows.take([task], {7: sent})
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
    rows.take([first], {7: sent})
    second, other = begin(2, 7, np.full(4, 5, np.float32))
    rows.take([Restart(2, 1.0), second], {7: other})
    assert rows[7][:4].tolist() == [5, 5, 5, 5]
    rows.take([Restart(2, 1.0)], {})
    assert rows.results([Restart(2, 1.0)], [Unchanged(2)]) == {}
    assert list(rows) == []


def journal_of(snapshot: bytes, *messages: bytes) -> Journal:
    journal = Journal()
    journal.append([memoryview(b"save")])
    journal.replace(snapshot, 1)
    for message in messages:
        journal.append([memoryview(message)])
    return journal


def test_a_journal_is_long_at_four_times_its_snapshot_or_128_megabytes() -> None:
    more = [memoryview(b"1")]
    with closing(journal_of(bytes(33 * 2**20), bytes(132 * 2**20))) as journal:
        assert not journal.is_long
        journal.append(more)
        assert journal.is_long
    with closing(journal_of(b"", bytes(128 * 2**20))) as journal:
        assert not journal.is_long
        journal.append(more)
        assert journal.is_long


def test_a_journal_returns_its_messages_again_and_continues() -> None:
    with closing(journal_of(b"snapshot", b"one", b"three")) as journal:
        for _ in range(2):
            snapshot, messages = journal.read()
            assert (snapshot, next(messages)) == (b"snapshot", b"one")
        journal.append([memoryview(b"4")])
        snapshot, messages = journal.read()
        assert (snapshot, *messages) == (b"snapshot", b"one", b"three", b"4")
        journal.replace(b"later", 2)
        snapshot, messages = journal.read()
        assert (snapshot, *messages) == (b"later", b"4")
        assert len(journal) == 1


def test_only_the_peer_that_says_the_key_is_answered() -> None:
    key = b"k" * 32
    with socket.create_server(("127.0.0.1", 0)) as server:
        for said in (b"", b"k" * 31, b"x" * 32 + key):
            with socket.create_connection(server.getsockname()) as stranger:
                stranger.sendall(said)
        peer = socket.create_connection(server.getsockname())
        peer.sendall(key)
        with accept(server, key) as actor, peer:
            peer.sendall(b"ready")
            assert actor.recv(5, socket.MSG_WAITALL) == b"ready"


def test_an_end_that_sends_much_receives_meanwhile_what_the_other_sends_first() -> None:
    size, count = 2**20, 20  # more than the sockets hold
    first, second = (Peer(one) for one in connected_pair())
    received = list[Message]()

    def answer() -> None:
        for _ in range(count):
            message = second.receive(lambda row: np.zeros(size, np.float32))
            second.send(message.parts)

    with ThreadPoolExecutor(1) as pool, closing(first), closing(second):
        answering = pool.submit(answer)
        rows = np.zeros((count, size), np.float32)
        for number in range(count):
            sent = Message(b"%d" % number, {number: np.full(size - number, number, np.float32)})
            first.send(
                sent.parts, on_readable=lambda: received.append(first.receive(rows.__getitem__))
            )
        while len(received) < count:
            received.append(first.receive(rows.__getitem__))
        answering.result()
    assert [int(one.content) for one in received] == list(range(count))
    assert [row[: size - number].tolist() for number, row in enumerate(rows[:2])] == [
        [number] * (size - number) for number in range(2)
    ]
    assert rows[:, -1].tolist() == [0] * count  # not sent


def test_a_message_of_many_rows_arrives_as_a_whole() -> None:
    first, second = (Peer(one) for one in connected_pair())
    with closing(first), closing(second):
        sent = {number: np.full(1, number, np.float32) for number in range(3000)}
        first.send(Message(b"", sent).parts)
        received = second.receive(lambda row: np.zeros(1, np.float32))
        assert received.rows == sent
        first.close()
        with pytest.raises(EOFError):
            second.receive(lambda row: np.zeros(1, np.float32))


def test_room_for_a_short_row_is_later_room_for_a_whole_one() -> None:
    first, second = (Peer(one) for one in connected_pair())
    rows, whole = Rows(SIZE), np.arange(SIZE, dtype=np.float32)
    task, nothing = begin(2, 7, np.zeros(0, np.float32))
    with closing(first), closing(second):
        for sent in (nothing, whole):
            first.send(Message(b"", {7: sent}).parts)
        rows.take([task], second.receive(lambda row: rows.room()).rows)
        rows.results([task], [Result(2, store(Update(Dense(nothing), 0, 1), rows[7]), ())])
        assert second.receive(lambda row: rows.room()).rows[7].tolist() == whole.tolist()


def connected_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]


class Failing(WorkerActor):
    """Fails at its first message, by its own fault."""

    def __init__(self, server: socket.socket, key: bytes) -> None:
        self._server, self._key = server, key

    def answer(self, message: Message) -> Message:
        raise MemoryError


def test_the_clock_does_not_wait_for_an_actor_that_has_failed() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(Failing(server, b"key").serve)
        peer = socket.create_connection(server.getsockname())
        peer.sendall(b"key")
        with closing(Peer(peer)) as clock:
            clock.send(Message(b"message").parts)
            with pytest.raises(EOFError):
                clock.receive(lambda row: np.zeros(1, np.float32))
        with pytest.raises(MemoryError):
            serving.result()
