"""Requests for gradients: who is served when, and what is refused."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import Gradient
from testbed.errors import NodeError, UserCodeError
from testbed.models.base import GradientRequest
from testbed.payloads import Vector
from testbed.roles.compute_process import ComputeProcess
from testbed.roles.segment import (
    SEALS,
    WELCOME,
    Segment,
    failure,
    request_of,
    result_in,
    step_in,
    success,
    worker_bytes,
)

SIZE = 20


class Doubling:
    """The gradient is twice the parameters, the loss the first sample."""

    together = 1

    def __init__(self) -> None:
        self.first_samples: list[int] = []

    def gradient(self, step: Step, at: Vector) -> Gradient:
        self.first_samples.append(int(step.samples[0]))
        return Gradient(float(step.samples[0]), 2 * at)


class Gated:
    """Computes the same, three at once, while a gate is open; the user's code fails on sample 66.

    Attributes:
        passes: the first samples of every pass.
        begun: set once the first pass has begun.
        gate: what all passes wait for.
    """

    together = 3

    def __init__(self) -> None:
        self.passes: list[list[int]] = []
        self.begun, self.gate = threading.Event(), threading.Event()

    def request(self, step: Step, at: Vector) -> GradientRequest:
        if step.samples[0] == 66:
            raise UserCodeError("rows.py:3: ValueError: the 66th", trace="Traceback")
        return GradientRequest(at, step.samples, step.samples)

    def at_once(self, requests: Sequence[GradientRequest]) -> list[Gradient]:
        self.passes.append([int(one.targets[0]) for one in requests])
        self.begun.set()
        assert self.gate.wait(30.0)
        return [Gradient(float(one.targets[0]), 2 * one.parameters) for one in requests]


class Bench:
    """A process of the node in a thread, and the worker's ends of its connections."""

    def __init__(self, compute: Any = None) -> None:
        self.compute = compute or Doubling()
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = ComputeProcess(self.compute, SIZE, 100, theirs)
        self.thread = threading.Thread(target=process.serve)

    def connect(self, index: int, memory: int | None = None) -> tuple[socket.socket, Segment]:
        segment, own = Segment.create(SIZE)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(30.0)
        with theirs:
            passed = [theirs.fileno(), own if memory is None else memory]
            socket.send_fds(self.channel, [worker_bytes(index)], passed)
        os.close(own)
        return ours, segment


@contextmanager
def served(made: Bench) -> Iterator[Bench]:
    try:
        yield made
    finally:
        made.channel.shutdown(socket.SHUT_WR)  # its end, though the process has not been read from
        made.thread.join(30.0)
        made.channel.close()
        assert not made.thread.is_alive()


@pytest.fixture
def bench() -> Iterator[Bench]:
    with served(Bench()) as made:
        yield made


@pytest.fixture
def workers() -> Iterator[tuple[Gated, list[tuple[socket.socket, Segment]]]]:
    """A process that computes for w5, and w0 to w4, which it has accepted."""
    gated = Gated()
    with served(Bench(gated)) as made:
        made.thread.start()
        ends = [made.connect(index) for index in range(6)]
        for _ in ends:
            assert made.channel.recv(10) == WELCOME
        ends[5][0].send(asked(50))
        assert gated.begun.wait(30.0)
        yield gated, ends[:5]
        gated.gate.set()
        for peer, _ in ends:
            peer.close()


def asked(*samples: int) -> bytes:
    return request_of(Step(np.array(samples), draw=7))


def test_workers_are_served_in_turn(bench: Bench) -> None:
    """w0 has three requests before w1 has its first, which is served second."""
    (first, shared), (second, _) = bench.connect(0), bench.connect(1)
    with closing(first), closing(second):
        shared.parameters[:] = np.arange(SIZE)
        for sample in (10, 11, 12):
            first.send(asked(sample, 99))
        second.send(asked(20))
        bench.thread.start()
        losses = [result_in(one.recv(1000))[0] for one in (first, first, first, second)]
    assert losses == [10, 11, 12, 20]
    assert bench.compute.first_samples == [10, 20, 11, 12]
    np.testing.assert_array_equal(shared.gradient, 2 * np.arange(SIZE))


def test_requests_that_wait_are_computed_together_in_the_order_of_their_arrival(
    workers: Any,
) -> None:
    """At most three. w1 asks again before w4 asks, and is served after it."""
    gated, ends = workers
    for place, (peer, segment) in enumerate(ends):
        segment.parameters[:] = place + np.arange(SIZE)
        if place == 4:
            ends[1][0].send(asked(12))
        peer.send(asked(10 * place, 99))
    ends[1][0].send(asked(13))
    gated.gate.set()
    losses = [result_in(peer.recv(1000))[0] for peer, _ in ends]
    assert losses == [0, 10, 20, 30, 40]
    assert [result_in(ends[1][0].recv(1000))[0] for _ in range(2)] == [12, 13]
    assert gated.passes == [[50], [0, 10, 20], [30, 40, 12], [13]]
    for place, (_, segment) in enumerate(ends):
        np.testing.assert_array_equal(segment.gradient, 2 * (place + np.arange(SIZE)))


def test_what_happens_to_one_of_a_pass_happens_to_no_other(
    workers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """w0 is killed, w1 asks for a wrong sample, the user's code fails for w2, w3 reads nothing."""
    gated, ends = workers
    killed, wrong, failed, _, good = (peer for peer, _ in ends)
    killed.send(asked(1))
    killed.close()
    for peer, sample in ((wrong, 100), (failed, 66), (ends[3][0], 3), (good, 4)):
        peer.send(asked(sample))
    gated.gate.set()
    assert result_in(good.recv(1000))[0] == 4
    assert wrong.recv(1000) == b""
    with pytest.raises(UserCodeError, match="the 66th"):
        result_in(failed.recv(1000))
    failed.send(asked(6))
    assert result_in(failed.recv(1000))[0] == 6
    assert [one for some in gated.passes for one in some] == [50, 1, 3, 4, 6]
    assert "w1: found samples 100 to 100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (b"12345678", "found a request of 8 bytes, expected a draw and samples"),
        (b"123456789", "found a request of 9 bytes, expected a draw and samples"),
        (asked(3, 100), "found samples 3 to 100, expected indices below 100"),
        (asked(-1), "found samples -1 to -1, expected indices below 100"),
    ],
)
def test_a_malformed_request_ends_its_own_connection_only(
    bench: Bench, request_: bytes, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (bad, _), (good, _) = bench.connect(0), bench.connect(1)
    with closing(bad), closing(good):
        bench.thread.start()
        bad.send(request_)
        assert bad.recv(1000) == b""
        good.send(asked(5))
        assert result_in(good.recv(1000))[0] == 5
    assert f"w0: {told}" in capsys.readouterr().err


def test_a_worker_that_connects_again_replaces_its_connection(bench: Bench) -> None:
    (before, _), (after, _) = bench.connect(3), bench.connect(3)
    with closing(before), closing(after):
        bench.thread.start()
        assert before.recv(1000) == b""
        after.send(asked(6))
        assert result_in(after.recv(1000))[0] == 6


def unsealed() -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 256)  # two vectors of 80 bytes, rounded up to 128
    return descriptor


def too_small() -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 128)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return descriptor


def a_file() -> int:
    return os.open(Path(__file__), os.O_RDONLY)


@pytest.mark.parametrize("memory", [unsealed, too_small, a_file])
def test_memory_that_could_end_the_process_is_refused(
    bench: Bench, memory: Callable[[], int]
) -> None:
    """Access to memory that was cut off behind its mapping kills."""
    bad, _ = bench.connect(0, memory := memory())
    good, _ = bench.connect(1)
    with closing(bad), closing(good):
        os.close(memory)
        bench.thread.start()
        assert bad.recv(1000) == b""
        good.send(asked(5))
        assert result_in(good.recv(1000))[0] == 5


def test_messages() -> None:
    step = step_in(request_of(Step(np.array([4, 2]), draw=2**63 - 1)), samples=5)
    assert (step.samples.tolist(), step.draw) == ([4, 2], 2**63 - 1)
    assert result_in(success(0.5, 0.25)) == (0.5, 0.25)
    failed = UserCodeError("net.py:1: ValueError", hint="why", node="w3", trace="Traceback")
    with pytest.raises(UserCodeError) as raised:
        result_in(failure(failed))
    found = raised.value
    assert (str(found), found.node, found.trace) == (str(failed), "w3", "Traceback")


def test_a_step_that_fits_into_no_request_says_what_to_do() -> None:
    with pytest.raises(NodeError) as raised:
        request_of(Step(np.zeros(16_385, np.int64)))
    assert str(raised.value) == (
        "a step of 16,385 samples, with `compute: shared` expected at most 16,384. "
        "Use smaller batches, or `compute: own`."
    )
