"""Requests for gradients: who is served when, and what is refused."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import Gradient
from testbed.errors import NodeError, UserCodeError
from testbed.payloads import Vector
from testbed.roles.compute_process import ComputeProcess
from testbed.roles.segment import (
    SEALS,
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

    def __init__(self) -> None:
        self.first_samples: list[int] = []

    def gradient(self, step: Step, at: Vector) -> Gradient:
        self.first_samples.append(int(step.samples[0]))
        return Gradient(float(step.samples[0]), 2 * at)


class Bench:
    """A process of the node in a thread, and the worker's ends of its connections."""

    def __init__(self) -> None:
        self.compute = Doubling()
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


@pytest.fixture
def bench() -> object:
    made = Bench()
    yield made
    made.channel.shutdown(socket.SHUT_WR)  # its end, though the process has not been read from
    made.thread.join(30.0)
    made.channel.close()
    assert not made.thread.is_alive()


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
