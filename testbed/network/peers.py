"""Connections between nodes that start at the same time, in no order."""

from __future__ import annotations

import socket
import time

from testbed.errors import NodeError

RETRY_SECONDS = 0.02


def connect(address: str, port: int, *, patience_seconds: float) -> socket.socket:
    """A connection to a peer that may not listen yet; its timeout is ``patience_seconds`` too.

    Raises:
        NodeError: nobody took it in that time.
        OSError: there is no way to the peer, now or later.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            peer = socket.create_connection(
                (address, port), timeout=max(deadline - time.monotonic(), RETRY_SECONDS)
            )
        except TimeoutError:
            raise _nobody(address, port, patience_seconds, "no answer") from None
        except ConnectionRefusedError:
            if time.monotonic() >= deadline:
                raise _nobody(address, port, patience_seconds, "connection refused") from None
            time.sleep(RETRY_SECONDS)  # a port that opens tells nobody
        else:
            peer.settimeout(patience_seconds)
            return peer


def _nobody(address: str, port: int, seconds: float, why: str) -> NodeError:
    return NodeError(
        f"{address}:{port}: nobody takes a connection within {seconds:g} s ({why}).",
        hint="The log of the node that has this address says why it does not listen.",
    )
