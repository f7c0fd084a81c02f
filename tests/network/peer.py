"""A node of the tests: a process in its own network namespace, controlled through its stdin.

    serve PORT                        answer every request on PORT; says "serving"
    connect HOST PORT                 says "connected"
    exchange PUSH PULL TIMES          send PUSH bytes, receive PULL bytes, TIMES times; says "done"
    flood SECONDS                     send for that long, in the background; says "flooding"
    drain SECONDS                     have the server send for that long; says "draining"
    close                             close the connection; says "closed"
    over                              wait until all accepted connections have ended, and close;
                                      says how many bytes they received
    ping HOST PORT COUNT [PATIENCE]   sequential datagrams; says their milliseconds
    reflect PORT                      send datagrams on PORT back; says "reflecting"

A request is three big-endian 64-bit numbers: bytes to read, bytes to answer, milliseconds to send.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import threading
import time

REQUEST = struct.Struct("!QQQ")
CHUNK = bytes(1 << 16)


class Accepted:
    """A connection that is served in a thread, and counts its bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = 0
        self.thread = threading.Thread(target=answer, args=(self,), daemon=True)
        self.thread.start()

    def recv(self, most: int) -> bytes:
        piece = self.connection.recv(most)
        self.received += len(piece)
        return piece


def receive(connection: socket.socket | Accepted, count: int) -> bytes:
    """Read exactly this many bytes; only the last 24 are kept."""
    tail = b""
    while count:
        piece = connection.recv(min(count, 1 << 20))
        if not piece:
            raise EOFError
        count -= len(piece)
        tail = (tail + piece)[-REQUEST.size :]
    return tail


def send(connection: socket.socket, count: int) -> None:
    connection.sendall(bytes(count))


def flood(connection: socket.socket, seconds: float) -> None:
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            connection.send(CHUNK)
    except OSError:  # closed by either side
        return


def answer(accepted: Accepted) -> None:
    with accepted.connection as connection:
        try:
            while True:
                incoming, outgoing, milliseconds = REQUEST.unpack(receive(accepted, REQUEST.size))
                receive(accepted, incoming)
                send(connection, outgoing)
                flood(connection, milliseconds / 1e3)
        except (EOFError, ConnectionError):
            return


def serve(port: int) -> list[Accepted]:
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    all_accepted: list[Accepted] = []

    def accept() -> None:
        while True:
            all_accepted.append(Accepted(listener.accept()[0]))

    threading.Thread(target=accept, daemon=True).start()
    return all_accepted


def over(all_accepted: list[Accepted]) -> int:
    for accepted in all_accepted:
        accepted.thread.join()
    return sum(accepted.received for accepted in all_accepted)


def reflect(port: int) -> None:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("", port))

    def back() -> None:
        while True:
            data, sender = receiver.recvfrom(2048)
            receiver.sendto(data, sender)

    threading.Thread(target=back, daemon=True).start()


def ping(host: str, port: int, count: int, patience: float) -> str:
    milliseconds = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(patience)
        sender.connect((host, port))
        for _ in range(count):
            begin = time.monotonic()
            sender.send(b"x")
            try:
                sender.recv(8)
            except TimeoutError:
                continue
            milliseconds.append(f"{(time.monotonic() - begin) * 1e3:.3f}")
    return " ".join(milliseconds)


def exchange(connection: socket.socket, push: int, pull: int, times: int) -> None:
    for _ in range(times):
        connection.sendall(REQUEST.pack(push, pull, 0))
        send(connection, push)
        receive(connection, pull)


def swallow(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 20):
            continue
    except OSError:
        return


def main() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    connection = socket.socket()
    all_accepted: list[Accepted] = []
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["serve", port]:
                all_accepted = serve(int(port))
                said = "serving"
            case ["connect", host, port]:
                connection = socket.create_connection((host, int(port)), timeout=180)
                connection.settimeout(None)
                said = "connected"
            case ["exchange", push, pull, times]:
                exchange(connection, int(push), int(pull), int(times))
                said = "done"
            case ["flood", seconds]:
                connection.sendall(REQUEST.pack(1 << 62, 0, 0))
                threading.Thread(
                    target=flood, args=(connection, float(seconds)), daemon=True
                ).start()
                said = "flooding"
            case ["drain", seconds]:
                connection.sendall(REQUEST.pack(0, 0, int(float(seconds) * 1e3)))
                threading.Thread(target=swallow, args=(connection,), daemon=True).start()
                said = "draining"
            case ["close"]:
                connection.close()
                said = "closed"
            case ["over"]:
                said = str(over(all_accepted))
            case ["reflect", port]:
                reflect(int(port))
                said = "reflecting"
            case ["ping", host, port, count, *patience]:
                said = ping(host, int(port), int(count), float(*patience or (2,)))
            case _:
                raise ValueError(line)
        print(said, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
