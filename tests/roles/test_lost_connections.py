"""A connection that breaks repeatedly: every push is applied once, in order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.base import Update
from testbed.payloads import Sparse
from testbed.payloads.layout import Layout
from testbed.rpc import methods
from testbed.rpc.codec import decode_delivery, encode_push
from testbed.rpc.messages import PushMessage, Timing
from testbed.telemetry.spool import SpoolReader

LAYOUT = Layout(("weight",), ((50, 100),))
PUSHES = 30
BREAKS = 7


class Breaker:
    """A relay that breaks each of its first connections after a number of bytes, either way.

    Attributes:
        address: of the relay.
        allowances: bytes for each of the next connections; later ones are unlimited.
    """

    def __init__(self, target: str, allowances: list[int]) -> None:
        self._target = target.rsplit(":", 1)
        self.allowances = allowances
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Break the remaining connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection((self._target[0], int(self._target[1])))
            allowance = [self.allowances.pop(0) if self.allowances else 1 << 40]
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=self._relay, args=(source, sink, allowance))
                self._threads.append(thread)
                thread.start()

    def _relay(self, source: socket.socket, sink: socket.socket, allowance: list[int]) -> None:
        try:
            while allowance[0] > 0 and (data := source.recv(4096)):
                sink.sendall(data[: allowance[0]])
                allowance[0] -= len(data)
        except OSError:
            return  # the other direction has closed both
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            sink.close()


@pytest.mark.parametrize("service_seconds", [0.0, 0.005])
def test_every_push_is_applied_once(
    begin: Callable[..., Any], tmp_path: Path, service_seconds: float
) -> None:
    stage = begin(LAYOUT, updates=1000, service_seconds=service_seconds)
    rng = np.random.default_rng(4)
    # The start of a connection takes about 500 bytes, a push 500, a reply 20,000.
    breaker = Breaker(stage.address, [int(n) for n in rng.integers(300, 60_000, BREAKS)])
    indices = np.sort(rng.choice(LAYOUT.size, 40, replace=False)).astype(np.int32)
    payload = Sparse(indices, np.ones(40, np.float32))
    version = repeated = 0
    with stage.connect("w0", breaker.address) as connection:
        for sequence in range(1, PUSHES + 1):
            update = Update(payload, version=version, samples=1)
            push = PushMessage(0, sequence, LAYOUT.fingerprint, update, Timing())

            def request(attempt: int, push: PushMessage = push) -> bytes:
                nonlocal repeated
                repeated += attempt > 0
                return encode_push(replace(push, attempt=attempt)).data

            data = connection.call(methods.EXCHANGE, request(0), repeat=request)
            reply = decode_delivery(data).reply
            assert reply is not None
            version = reply.version
            assert version == sequence
        assert repeated > 0
    breaker.close()
    assert breaker.allowances == []  # all of them were used up
    assert stage.half.version == PUSHES
    stage.stop()
    rows = SpoolReader(tmp_path / "updates.bin").read()
    assert rows["sequence"].tolist() == list(range(1, PUSHES + 1))
