"""The parameter server is told which workers left, and a run does not depend on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import RejectedError
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.addresses import unix_address
from testbed.rpc.limits import MessageLimits
from testbed.rpc.service import Call, Gate, serving
from testbed.rpc.tokens import token_of
from testbed.run.worker_status import WorkerStatusReporter
from testbed.runtimes.agent.launch import Exit

TOKEN = token_of("s3cret", "controller")
Answer = Callable[[bytes], Awaitable[bytes]]


class Heard(list[tuple[int, str]]):
    """The reports that reached a server, which accepts them."""

    async def __call__(self, message: bytes) -> bytes:
        request = ps_pb2.RemoveRequest.FromString(message)
        self.append((request.worker, request.reason))
        return ps_pb2.RemoveReply().SerializeToString()


@contextmanager
def server(socket: Path, answer: Answer, method: str = methods.REMOVE) -> Iterator[None]:
    """Answers reports at a socket, in a thread."""
    loop, over, listening = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def remove(message: bytes, call: Call) -> bytes:
        return await answer(message)

    async def serve() -> None:
        refused, failed = (lambda refusal: None), (lambda error: None)
        gate = Gate(
            {"controller": TOKEN}, {method: remove}, MessageLimits(1000), refused, failed=failed
        )
        with unix_address(socket) as address:
            async with serving(address, gate):
                listening.set()
                await over.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert listening.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """A folder too deep for a socket address."""
    folder = tmp_path / ("run" * 40) / "ps"
    folder.mkdir(parents=True)
    return folder / "ps.sock"


def test_each_lost_worker_is_reported_once(socket: Path) -> None:
    heard, reporter = Heard(), WorkerStatusReporter(socket, TOKEN)
    with server(socket, heard):
        reporter.send(wait=True)
        reporter.add(2, "w2 was ended by SIGKILL")
        reporter.add(0, "w0 exited with status 2")
        reporter.send(wait=True)
        reporter.send(wait=True)
        reporter.add(1, "w1 ran out of memory")
        reporter.send(wait=True)
    assert heard == [
        (2, "w2 was ended by SIGKILL"),
        (0, "w0 exited with status 2"),
        (1, "w1 ran out of memory"),
    ]


def test_workers_that_stop_and_resume_are_reported_on_change(socket: Path) -> None:
    heard, reporter = Heard(), WorkerStatusReporter(socket, TOKEN)

    async def silence(message: bytes) -> bytes:
        request = ps_pb2.SilenceRequest.FromString(message)
        thaws = ", a fault thaws it" if request.thaws else ""
        heard.append((request.worker, ("silent" if request.silent else "answers") + thaws))
        return ps_pb2.SilenceReply().SerializeToString()

    with server(socket, silence, methods.SILENCE):
        for frozen in ({}, {1: False}, {1: False}, {1: False, 2: True}, {2: True}, {2: False}):
            reporter.set_frozen(frozen)
            reporter.send(wait=True)
    assert heard == [
        (1, "silent"),
        (2, "silent, a fault thaws it"),
        (1, "answers"),
        (2, "silent"),
    ]


def test_reports_without_a_listener_are_repeated(socket: Path) -> None:
    heard, reporter = Heard(), WorkerStatusReporter(socket, TOKEN)
    reporter.add(1, "killed")
    reporter.send(wait=True)  # no socket listens
    with server(socket, heard):
        reporter.send(wait=True)
        reporter.send(wait=True)
    assert heard == [(1, "killed")]


def test_a_deleted_folder_does_not_fail_the_run(socket: Path) -> None:
    reporter = WorkerStatusReporter(socket, TOKEN)
    reporter.add(1, "killed")
    socket.parent.rmdir()
    reporter.send(wait=True)


def test_a_server_that_does_not_answer_is_not_awaited(socket: Path) -> None:
    heard, reporter = Heard(), WorkerStatusReporter(socket, TOKEN)
    asked, answered = threading.Event(), threading.Event()

    async def late(message: bytes) -> bytes:
        asked.set()
        await asyncio.to_thread(answered.wait)
        return await heard(message)

    reporter.add(1, "killed")
    with server(socket, late):
        reporter.send()
        assert asked.wait(60)
        reporter.add(2, "killed too")
        reporter.send()  # begins nothing else
        assert not reporter.is_sent(1)
        answered.set()
        reporter.send(wait=True)
    assert heard == [(1, "killed"), (2, "killed too")]
    assert reporter.is_sent(1)
    assert reporter.is_sent(2)


def test_a_change_during_a_report_is_sent_after_it(socket: Path) -> None:
    heard, reporter = Heard(), WorkerStatusReporter(socket, TOKEN)
    asked, answered = threading.Event(), threading.Event()

    async def late(message: bytes) -> bytes:
        request = ps_pb2.SilenceRequest.FromString(message)
        heard.append((request.worker, "silent" if request.silent else "answers"))
        asked.set()
        await asyncio.to_thread(answered.wait)
        return ps_pb2.SilenceReply().SerializeToString()

    with server(socket, late, methods.SILENCE):
        reporter.set_frozen({1: False})
        reporter.send()
        assert asked.wait(60)
        reporter.set_frozen({})
        answered.set()
        reporter.send(wait=True)
        reporter.send(wait=True)
    assert heard == [(1, "silent"), (1, "answers")]


def test_refused_reports_are_not_repeated(socket: Path) -> None:
    reporter, asked = WorkerStatusReporter(socket, TOKEN), Heard()

    async def refuse(message: bytes) -> bytes:
        await asked(message)
        raise RejectedError("worker 7: the scenario has 3, from 0 on")

    reporter.add(7, "killed")
    reporter.add(1, "killed too")
    with server(socket, refuse):
        reporter.send(wait=True)
        reporter.send(wait=True)
    assert [worker for worker, _ in asked] == [7, 1]


def test_a_worker_that_ends_unexpectedly_is_reported(small: Any) -> None:
    watch, heard = small.watch(), Heard()
    small.says("started")
    small.agent.ended = [Exit("w1", -9)]
    with server(small.setup.folder.ps_socket, heard):
        watch.look()
        watch.worker_status.send(wait=True)
        small.says("finished", reason="100 updates applied", version=100)
        small.agent.ended = [Exit("w0", 0), Exit("w2", -15)]
        watch.look()
        watch.worker_status.send(wait=True)
    assert heard == [(1, "w1 was ended by SIGKILL"), (2, "w2 was ended by SIGTERM")]


def test_the_watch_continues_without_a_parameter_server(small: Any) -> None:
    watch = small.watch()
    small.says("started")
    small.agent.ended = [Exit("w1", -9)]
    watch.look()
    watch.look()
    assert watch.lost == {"w1": "w1 was ended by SIGKILL"}
