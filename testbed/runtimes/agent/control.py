"""The control server: one stream of JSON lines for every client, handled by the agent's loop.

A request is ``{"id": 1, "method": "signal", "node": "w3", "number": 15}``. Its reply has the same
id and a ``result``, or an ``error`` with ``kind`` (HostError or NodeError), ``message`` and
``hint``; the id is null if the request's could not be read. ``operations.py`` has the methods.

Requests are executed one after the other; only launches may begin while the launch before them
is still in progress, and a request for the next exits waits for one. No client can block another or
the agent, whatever it sends and whether or not it reads: a client that exceeds a limit is
disconnected.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json

from testbed.errors import NodeError, TestbedError
from testbed.host.reports import encode_error
from testbed.host.sockets import credentials_of, short_path
from testbed.runtimes.agent.lines import Lines, OversizedLineError
from testbed.runtimes.agent.loop import Loop
from testbed.runtimes.agent.nodes import Nodes
from testbed.runtimes.agent.operations import (
    HANDED,
    NothingYet,
    RefusedError,
    Requests,
    operations,
)

REQUEST_BYTES = 2**20
"""A server of 1,022 workers is launched with that many neighbours, in a tenth of this size."""

MOST_UNSENT_BYTES = 2**24
"""Replies to a client that does not read them; the longest, the links of all nodes, takes a few
hundred bytes for each."""

MOST_BEGUN = 2
"""Number of launches that begin while another one is in progress."""

FIRST_REFUSALS = 100


@dataclass(eq=False)
class Client:
    """A connected client."""

    lines: Lines
    connected: bool = True
    slow: bool = False  # whether replies wait until it reads


class Request(NamedTuple):
    """A request that was received and not answered yet."""

    client: Client
    number: int
    method: str
    fields: Mapping[Any, Any]


class Control:
    """Receives the requests of all clients, executes them, and replies."""

    def __init__(self, loop: Loop, nodes: Nodes) -> None:
        self._loop = loop
        self._nodes = nodes
        self._requests = Requests(nodes)
        self._operations = operations(self._requests)
        self._refusals = 0
        self._clients: set[Client] = set()
        self._next: deque[Request] = deque()
        self._waiting: list[Request] = []
        loop.on_exits = self._retry
        nodes.meanwhile = self._begin_next

    def listen(self, path: Path, *, owners: Collection[int]) -> None:
        """Accept clients at a path, until this process ends, if their uid is one of ``owners``.

        Raises:
            OSError: the socket cannot be created.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        others_cannot = os.umask(0o177)
        try:
            with short_path(path) as name:
                listener.bind(name)
        finally:
            os.umask(others_cannot)
        listener.listen()
        listener.setblocking(False)
        self._loop.watch(listener.fileno(), lambda _: self._accept(listener, owners))

    def add(self, lines: Lines) -> None:
        """Serve a client at the other end of a stream."""
        client = Client(lines)
        self._clients.add(client)
        self._loop.watch(lines.reader, lambda _: self._react(client))

    def _accept(self, listener: socket.socket, owners: Collection[int]) -> None:
        try:
            peer, _ = listener.accept()
        except OSError as error:  # it has left again, or there are too many descriptors
            self._log("connect", str(error))
            return
        pid, uid = credentials_of(peer)
        if uid in owners:
            self.add(Lines.over(peer, line_bytes=REQUEST_BYTES))
        else:
            self._log("connect", f"process {pid} has uid {uid}")
            peer.close()

    def _react(self, client: Client) -> None:
        self._read(client)
        while self._next:
            self._execute(self._next.popleft())

    def _read(self, client: Client) -> None:
        """Receive requests from a client."""
        try:
            lines = client.lines.receive()
        except OversizedLineError as error:
            self._refuse(client, None, "read", f"{error}, expected a shorter one")
            self._disconnect(client, str(error))
            return
        if lines is None:
            self._disconnect(client)
            return
        for line in lines:
            try:
                content = from_json(line)
            except ValueError as error:
                self._refuse(client, None, "read", f"no JSON: {error}")
                continue
            match content:
                case {"id": int(number), "method": str(method), **fields}:
                    self._next.append(Request(client, number, method, fields))
                case _:
                    self._refuse(client, None, "read", "no object with an id and a method")

    def _begin_next(self) -> None:
        """Begin the next launches, which are executed before any other event is handled."""
        if len(self._next) < MOST_BEGUN:
            for client in tuple(self._clients):
                self._read(client)
        for client, _, method, fields in islice(self._next, MOST_BEGUN):
            if method != "launch" or not client.connected:
                break
            self._requests.begin(fields)

    def _execute(self, request: Request) -> None:
        client, number, method, fields = request
        if not client.connected:  # no process waits for the reply any more
            self._nodes.drop_begun()
            return
        operation = self._operations.get(method)
        try:
            if operation is None:
                raise RefusedError("there is no such method")
            result = operation.answer(fields)
        except NothingYet:
            self._waiting.append(request)
        except RefusedError as error:
            self._refuse(client, number, method, str(error))
        except (OSError, TestbedError) as error:
            self._reply_error(client, number, error)
        else:
            line = b'{"id":%d,"result":%b}' % (number, result)
            if method in HANDED:
                self._hand(client, line, int(result))
            else:
                self._send(client, line)

    def _retry(self) -> None:
        """Execute the requests that wait for exits again."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if request.client.connected:
                self._execute(request)

    def _refuse(self, client: Client, number: int | None, method: str, reason: str) -> None:
        self._log(method, reason)
        error = NodeError(f"the agent refused {method:.100}: {reason}.")
        self._reply_error(client, number, error)

    def _reply_error(
        self, client: Client, number: int | None, error: OSError | TestbedError
    ) -> None:
        self._send(client, json.dumps({"id": number, "error": encode_error(error)}).encode())

    def _send(self, client: Client, line: bytes = b"") -> None:
        """Send a line, or what is left of those before, or as much as the client accepts now."""
        if not client.connected:
            return
        try:
            client.lines.send(line)
        except OSError:  # it has closed the stream
            self._disconnect(client)
            return
        unsent, writer = len(client.lines.unsent), client.lines.writer
        if unsent > MOST_UNSENT_BYTES:
            self._disconnect(client, f"it has not read {unsent} bytes")
        elif unsent and not client.slow:
            self._loop.watch(writer, lambda _: self._send(client), events=selectors.EVENT_WRITE)
            client.slow = True
        elif client.slow and not unsent:
            self._loop.forget(writer)
            client.slow = False

    def _hand(self, client: Client, line: bytes, descriptor: int) -> None:
        """Send a line with a duplicate of a descriptor, which is closed here."""
        try:
            client.lines.send_descriptor(line, descriptor)
        except OSError as error:
            self._disconnect(client, f"it cannot take a descriptor: {error}")
        finally:
            os.close(descriptor)
        self._send(client)  # what was not accepted

    def _disconnect(self, client: Client, reason: str = "") -> None:
        if reason:
            self._log("disconnected", reason)
        if not client.connected:
            return
        client.connected = False
        self._clients.discard(client)
        self._waiting = [one for one in self._waiting if one.client is not client]
        self._loop.forget(client.lines.reader)
        if client.slow:
            self._loop.forget(client.lines.writer)
        client.lines.close()

    def _log(self, what: str, reason: str) -> None:
        """Count what was refused; log the first times, then every hundredth."""
        self._refusals += 1
        if self._refusals <= FIRST_REFUSALS or self._refusals % FIRST_REFUSALS == 0:
            text = f"refused: {what[:100]!r}: {reason[:200]!r} ({self._refusals} so far)"
            sys.stderr.write(f"{text}\n")
