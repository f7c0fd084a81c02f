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
        except (TimeoutError, ConnectionRefusedError) as error:
            refused = isinstance(error, ConnectionRefusedError)
            if not refused or time.monotonic() >= deadline:
                raise NodeError(
                    f"{address}:{port}: nobody takes a connection within {patience_seconds:g} s "
                    f"({'connection refused' if refused else 'no answer'}).",
                    hint="The log of the node that has this address says why it does not listen.",
                ) from None
            time.sleep(RETRY_SECONDS)  # a port that opens tells nobody
        else:
            peer.settimeout(patience_seconds)
            return peer
