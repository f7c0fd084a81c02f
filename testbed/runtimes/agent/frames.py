"""A role that exchanges datagrams with its peers, and prints which of theirs have arrived."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Collection, Mapping

PORT = 4000
WITHIN_SECONDS = 20.0
"""Nodes start at different moments; if all packets arrive, they end at once."""

AGAIN_SECONDS = 0.1
HEADER_BYTES = 28
"""Of IPv4 and UDP."""


def main(arguments: Mapping[str, str]) -> int:
    """Print, as JSON, the sizes of the packets that have arrived from each of ``peers``.

    Arguments:
        address: of this node.
        peers: addresses, separated by spaces.
        bytes: size of the largest packet; a small one is sent, too.
    """
    peers = arguments["peers"].split()
    heard = exchange(arguments["address"], peers, most_bytes=int(arguments["bytes"]))
    sys.stdout.write(json.dumps({peer: sorted(sizes) for peer, sizes in heard.items()}) + "\n")
    return 0


def exchange(
    address: str, peers: Collection[str], *, most_bytes: int, within_seconds: float = WITHIN_SECONDS
) -> dict[str, set[str]]:
    """Return which packets, ``small`` and ``large``, have arrived from each peer.

    A packet has a bit for each address, in their order, set if both have arrived from there: this
    ends as soon as that is true for all, both ways. All have the same peers, but for themselves.
    """
    bits = {one: 1 << place for place, one in enumerate(sorted({address, *peers}))}
    heard: dict[str, set[str]] = {peer: set() for peer in peers}
    hearing: set[str] = set()  # peers that have heard both from here
    large = most_bytes - HEADER_BYTES
    deadline = time.monotonic() + within_seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind((address, PORT))
        ours.settimeout(AGAIN_SECONDS)
        ended = False
        while not ended and time.monotonic() < deadline:
            complete = [peer for peer, sizes in heard.items() if len(sizes) == 2]
            ended = len(complete) == len(heard) == len(hearing)  # said once more below
            small = sum(bits[peer] for peer in complete).to_bytes(-(-len(bits) // 8))
            for peer in peers:
                for packet in (small, small.ljust(large, b"\0")):
                    ours.sendto(packet, (peer, PORT))
            _receive(ours, heard, hearing, large=large, own=bits[address], size=len(small))
    return heard


def _receive(
    ours: socket.socket,
    heard: dict[str, set[str]],
    hearing: set[str],
    *,
    large: int,
    own: int,
    size: int,
) -> None:
    """Take packets until none has come for a while, or AGAIN_SECONDS have passed."""
    until = time.monotonic() + AGAIN_SECONDS
    while time.monotonic() < until:
        try:
            packet, (source, _) = ours.recvfrom(2**16)
        except TimeoutError:
            return
        if source in heard:
            heard[source].add("large" if len(packet) == large else "small")
            if own & int.from_bytes(packet[:size]):
                hearing.add(source)
