"""Measures a link from both ends, before a run uses it or while the run is active.

One node, the reflector, has an unshaped link; one node per device class probes it through a link
of that class. Rates are computed from datagrams sent faster than the link, with the kernel's
arrival times, so neither a late process nor a lost packet affects them.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Mapping
from statistics import median

from testbed.host.sockets import connect
from testbed.roles.probing import FastStream, ProbeStream, datagrams, receive
from testbed.values.topology import DEFAULT_MTU

PORT = 5001
MESSAGE_BYTES = 17_000
MESSAGES = 3
LONG_MESSAGE_SECONDS = 0.5
"""If a message takes longer than this, only one is timed in each direction, because delays by the
host are small in comparison."""

TRIPS = 21
TRIP_SPACING_SECONDS = 0.02
PATIENCE_SECONDS = 2.0
CONNECT_SECONDS = 10.0
CALL_SECONDS = 60.0

SLOW = 200e6
"""Bits per second up to which Python can saturate a link by sending one datagram at a time."""

PUSH, PULL, FILL_UP, FILL_DOWN = b"u", b"d", b"r", b"b"
HOLES, FILLED = b"h", b"f"
PORTS = struct.Struct("!H")
RATE = struct.Struct("!d")
STREAM = struct.Struct("!dH")
"""A stream's rate, and the MTU of the link."""


def main(arguments: Mapping[str, str], opened: object = None) -> int:
    """Act as a reflector until terminated; or probe a reflector and print a line of JSON.

    The arguments are ``server``, the address of the reflector to probe, empty to be the reflector;
    ``up`` and ``down``, the rates of the link in bits per second, empty for no rate; ``mtu``.
    """
    if not arguments["server"]:
        reflect()
    rates = {name: float(arguments[name]) if arguments[name] else None for name in ("up", "down")}
    mtu = int(arguments.get("mtu") or DEFAULT_MTU)
    print(json.dumps(probe(arguments["server"], **rates, mtu=mtu)), flush=True)  # noqa: T201 - output
    return 0


def reflect(address: str = "") -> None:
    """Echo datagrams and serve probes until the process ends."""
    with datagrams(address, PORT) as echoes, socket.create_server((address, PORT)) as listener:
        threading.Thread(target=_echo, args=(echoes,), daemon=True).start()
        while True:
            peer, (host, _) = listener.accept()
            threading.Thread(target=_serve, args=(peer, host), daemon=True).start()


def probe(
    server: str, *, up: float | None, down: float | None, mtu: int = DEFAULT_MTU
) -> dict[str, float | None]:
    """Measure the path to the reflector at ``server`` and back; rates are in bits per second."""
    reflector = connect(server, PORT, patience_seconds=CONNECT_SECONDS)
    with reflector as control, datagrams() as connection:
        control.settimeout(CALL_SECONDS)
        (port,) = PORTS.unpack(_take(control, PORTS.size))
        control.sendall(PORTS.pack(connection.getsockname()[1]))
        trips = _round_trips(server)
        return {
            "round_trip_seconds": median(trips) if trips else None,
            "round_trips": len(trips),
            "message_up_seconds": _exchange(control, PUSH + bytes(MESSAGE_BYTES - 1), 1),
            "message_down_seconds": _exchange(control, PULL, MESSAGE_BYTES),
            "up_bits_per_second": _fill(control, connection, up, mtu=mtu, peer=(server, port)),
            "down_bits_per_second": _fill(control, connection, down, mtu=mtu, peer=None),
        }


def _round_trips(server: str) -> list[float]:
    """Measure round trips in seconds; sent at a fixed interval, so long delays do not add up."""
    sent: dict[int, float] = {}
    trips: list[float] = []
    with datagrams() as connection:
        connection.connect((server, PORT))
        for number in range(TRIPS):
            sent[number] = time.time()  # the clock of the kernel's arrival times
            connection.send(bytes([number]))
            end = time.monotonic() + TRIP_SPACING_SECONDS
            while (left := end - time.monotonic()) > 0:
                _take_trip(connection, left, sent, trips)
        while len(trips) < TRIPS and _take_trip(connection, PATIENCE_SECONDS, sent, trips):
            continue
    return trips


def _take_trip(
    connection: socket.socket, patience: float, sent: Mapping[int, float], trips: list[float]
) -> bool:
    connection.settimeout(patience)
    try:
        moment, data = receive(connection)
    except TimeoutError:
        return False
    trips.append(moment - sent[data[0]])
    return True


def _exchange(control: socket.socket, message: bytes, answer_bytes: int) -> float:
    """Return the median seconds from the message's first byte out to the answer's last byte in."""
    seconds = []
    for _ in range(MESSAGES):
        begin = time.monotonic()
        control.sendall(message)
        _take(control, answer_bytes)
        seconds.append(time.monotonic() - begin)
        if seconds[0] > LONG_MESSAGE_SECONDS:
            break
    return median(seconds)


def _fill(
    control: socket.socket,
    connection: socket.socket,
    rate: float | None,
    *,
    mtu: int,
    peer: tuple[str, int] | None,
) -> float | None:
    """Saturate the path up to ``peer``, or the path down; return the received rate.

    None if the host could not send fast enough, or too little arrived.
    """
    if rate is None:
        return None
    stream = _stream_through(rate, mtu)
    control.sendall((FILL_DOWN if peer is None else FILL_UP) + STREAM.pack(rate, mtu))
    if peer is None:
        found = stream.receive(connection)
        filled = _take(control, 1) == FILLED
    else:
        filled = stream.send(connection, peer)
        (found,) = RATE.unpack(_take(control, RATE.size))
    return (found or None) if filled else None


def _stream_through(rate: float, mtu: int) -> ProbeStream | FastStream:
    return ProbeStream.through(rate, mtu=mtu) if rate <= SLOW else FastStream(rate, mtu)


def _echo(echoes: socket.socket) -> None:
    while True:
        data, sender = echoes.recvfrom(2048)
        echoes.sendto(data, sender)


def _serve(control: socket.socket, host: str) -> None:
    """Serve one probe until it closes its connection."""
    with control, datagrams() as connection:
        control.sendall(PORTS.pack(connection.getsockname()[1]))
        try:
            (port,) = PORTS.unpack(_take(control, PORTS.size))
            while True:
                _answer(control, connection, (host, port))
        except (EOFError, ConnectionError):
            return


def _answer(control: socket.socket, connection: socket.socket, peer: tuple[str, int]) -> None:
    match _take(control, 1):
        case b"u":
            _take(control, MESSAGE_BYTES - 1)
            control.sendall(PUSH)
        case b"d":
            control.sendall(bytes(MESSAGE_BYTES))
        case b"r":
            stream = _stream_through(*STREAM.unpack(_take(control, STREAM.size)))
            control.sendall(RATE.pack(stream.receive(connection) or 0.0))
        case _:
            stream = _stream_through(*STREAM.unpack(_take(control, STREAM.size)))
            filled = stream.send(connection, peer)
            control.sendall(FILLED if filled else HOLES)


def _take(stream: socket.socket, count: int) -> bytes:
    """Receive exactly ``count`` bytes."""
    taken = bytearray()
    while len(taken) < count:
        piece = stream.recv(count - len(taken))
        if not piece:
            raise EOFError
        taken += piece
    return bytes(taken)
