"""The control protocol: lines of JSON through a unix socket, one request or answer at a time.

A request is {"operation": name, ...}, its answer {"result": ...} or {"error": {...}}. A pid is
another number in another pid namespace: it goes as credentials, which the kernel translates.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any

LINE_BYTES = 16 * 2**20
"""No line is longer."""

_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


@dataclass(frozen=True)
class Message:
    """One line.

    Attributes:
        content: what it says.
        pid: a process it is about, as the pid namespace of whoever holds this has it; 0 for none.
    """

    content: dict[str, Any]
    pid: int = 0


class Connection:
    """One end of the protocol over a connected socket, which it owns."""

    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        self._partial = b""
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self.socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def send(self, message: Message) -> None:
        """Send one line. To tell of other pids than one's own takes CAP_SYS_ADMIN."""
        data = json.dumps(message.content).encode() + b"\n"
        pid = message.pid or os.getpid()
        credentials = _CREDENTIALS.pack(pid, os.getuid(), os.getgid())
        sent = self.socket.sendmsg(
            [data], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)]
        )
        self.socket.sendall(data[sent:])

    def receive(self) -> Message | None:
        """Read what there is; the message if its line is complete by now.

        Raises:
            EOFError: the other end is closed.
            ValueError: what came is no line of the protocol.
        """
        space = socket.CMSG_SPACE(_CREDENTIALS.size)
        data, ancillary, _, _ = self.socket.recvmsg(65536, space)
        if not data:
            raise EOFError
        line, end, rest = (self._partial + data).partition(b"\n")
        if not end:
            self._partial = line
            if len(line) > LINE_BYTES:
                raise ValueError(f"a line of more than {LINE_BYTES} bytes")
            return None
        self._partial = rest
        content = json.loads(line)
        if not isinstance(content, dict):
            raise ValueError("a line that is no object")
        pids = (_CREDENTIALS.unpack(found)[0] for _, _, found in ancillary)
        return Message(content, next(pids, 0))
