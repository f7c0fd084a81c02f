"""Forwards the connections to a socket of this host to an engine that is reached by TLS.

A program of its own, without other modules of the package: it ends with the standard input that the
process which started it holds open. ``python tls_forward.py PATH HOST PORT CERTIFICATES``
"""

from __future__ import annotations

import select
import socket
import ssl
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Thread

CHUNK_BYTES = 2**16
CONNECT_SECONDS = 10.0
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}
"""A host without power is noticed within 20 s (the last is in milliseconds)."""

PING = b"GET /_ping HTTP/1.0\r\n\r\n"

NOT_NOW = (BlockingIOError, ssl.SSLWantReadError)


class Engine:
    """A connection to an engine, used like a socket.

    Its TLS is apart from the socket: Python's own would lose what arrives as this end is ended.

    Raises:
        OSError: it does not answer, or one rejects the certificate of the other.
    """

    def __init__(self, host: str, port: int, certificates: Path) -> None:
        context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Docker's instructions make no keyUsage
        context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem", password="")
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.unsent, self._early = bytearray(), bytearray()
        self._peer = socket.create_connection((host, port), CONNECT_SECONDS)
        try:
            self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE.items():
                self._peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._receive()
            else:
                self.flush()
                return

    def _receive(self) -> None:
        if data := self._peer.recv(CHUNK_BYTES):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def fileno(self) -> int:
        return self._peer.fileno()

    def setblocking(self, flag: bool) -> None:
        self._peer.setblocking(flag)

    def recv(self, size: int) -> bytes:
        if self._early:
            data = bytes(self._early[:size])
            del self._early[:size]
            return data
        while True:
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._receive()
            except ssl.SSLZeroReturnError:
                return b""

    def send(self, data: bytearray) -> int:
        """Encrypt data, which ``flush`` sends, unless there is some already."""
        if self.flush() or self.unsent:
            raise BlockingIOError
        return self._tls.write(data)

    def shutdown(self, how: int) -> None:
        """Tell the engine that no more will follow; it may still send."""
        del how  # always for writing
        with suppress(ssl.SSLError):  # unwrap would discard what has arrived
            while data := self._tls.read(CHUNK_BYTES):
                self._early += data
        with suppress(ssl.SSLError):  # it has not answered that yet
            self._tls.unwrap()

    def flush(self) -> int:
        """Send what is encrypted, or what of it the socket accepts; return the number of bytes."""
        self.unsent += self._outgoing.read()
        sent = 0
        with suppress(BlockingIOError):
            while self.unsent:
                count = self._peer.send(self.unsent)
                del self.unsent[:count]
                sent += count
        return sent

    def close(self) -> None:
        self._peer.close()

    def ping(self) -> None:
        """Raise OSError unless it answers, which it does not if it refuses the certificate."""
        self.send(bytearray(PING))
        with suppress(ConnectionError):  # reset after its refusal, which is still to be read
            self.flush()
        if not self.recv(1):
            raise OSError("it has ended the connection")


Peer = socket.socket | Engine


class Way:
    """One direction of a connection, between sockets that do not block."""

    def __init__(self, source: Peer, sink: Peer) -> None:
        self.source, self.sink = source, sink
        self.held = bytearray()  # received, and not sent yet
        self.is_open = True

    def advance(self) -> bool:
        """Carry what can be carried now; return whether that was anything.

        Raises:
            OSError: the connection has broken.
        """
        try:
            if self.held:
                del self.held[: self.sink.send(self.held)]
            elif self.is_open:
                self.held += self.source.recv(CHUNK_BYTES)
                if not self.held:
                    self.is_open = False
                    self.sink.shutdown(socket.SHUT_WR)
            else:
                return False
        except NOT_NOW:
            return False
        return True


def carry(near: socket.socket, far: Engine) -> None:
    """Carry both ways until both directions have ended, or the connection breaks."""
    with near, closing(far), suppress(OSError):
        near.setblocking(False)
        far.setblocking(False)
        ways = (Way(near, far), Way(far, near))
        while far.unsent or any(way.is_open or way.held for way in ways):
            if not far.flush() + sum(way.advance() for way in ways):
                wait(ways, far)


def wait(ways: Iterable[Way], far: Engine) -> None:
    """Wait until something can be carried."""
    events: defaultdict[int, int] = defaultdict(int)
    for way in ways:
        if way.held:
            events[way.sink.fileno()] |= select.POLLOUT
        elif way.is_open:
            events[way.source.fileno()] |= select.POLLIN
    if far.unsent:
        events[far.fileno()] |= select.POLLOUT
    poller = select.poll()
    for descriptor, wanted in events.items():
        poller.register(descriptor, wanted)
    poller.poll()


def serve(listener: socket.socket, dial: Callable[[], Engine]) -> None:
    """Forward every connection; one that cannot be is closed."""
    while True:
        near, _ = listener.accept()
        try:
            far = dial()
        except OSError:
            near.close()
            continue
        Thread(target=carry, args=(near, far), daemon=True).start()


def main(path: str, host: str, port: str, certificates: str) -> None:
    dial = partial(Engine, host, int(port), Path(certificates))
    try:
        with closing(dial()) as engine:
            engine.ping()
    except OSError as error:
        sys.exit(str(error))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(socket.SOMAXCONN)
    Thread(target=serve, args=(listener, dial), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
