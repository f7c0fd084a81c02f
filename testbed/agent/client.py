"""The controller's end of the control protocol."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from testbed.agent.launch import EXITS, LAUNCH, Exit, Launch
from testbed.agent.link_changes import CHANGES, LINK, SHAPE, LinkChange
from testbed.agent.protocol import Connection, Message
from testbed.errors import NodeError
from testbed.network.counters import Traffic
from testbed.runtimes.reports import decode_error
from testbed.runtimes.sockets import short_path
from testbed.topology import LinkSpec, Shape

CALL_SECONDS = 30.0
LAUNCH_SECONDS = 90.0
POLL_SECONDS = 0.02


class AgentClient:
    """One connection to a run's agent; one request at a time.

    Every method raises NodeError if the agent has ended or does not answer in time, and whatever
    HostError or NodeError the agent met.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._exits_seen = 0
        self._changes_seen = 0

    @classmethod
    def connect(cls, socket_path: Path, *, deadline: float) -> Self:
        """Connect to the agent that listens, or will listen, at ``control/agent.sock``.

        Args:
            socket_path: may be longer than an address can be.
            deadline: by when it must listen (``time.monotonic``).

        Raises:
            NodeError: it does not.
        """
        while True:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with short_path(socket_path) as name:
                    peer.connect(name)
                return cls(Connection(peer))
            except OSError as error:
                peer.close()
                waiting = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
                if not waiting or time.monotonic() > deadline:
                    raise NodeError(f"{socket_path}: {error.strerror}.") from None
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Close the connection; the run goes on."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def launch(self, launch: Launch) -> int:
        """Bring a node up.

        Returns:
            The pid of its role, as this process's pid namespace has it. The role runs.
        """
        content = LAUNCH.dump_python(launch, mode="json")
        return self._exchange("launch", LAUNCH_SECONDS, {"launch": content}).pid

    def pid(self, node: str) -> int:
        """The pid of a running node's role, as this process's pid namespace has it."""
        return self._exchange("pid", CALL_SECONDS, {"node": node}).pid

    def running(self) -> list[str]:
        """The names of the nodes that run, in the order of their launches."""
        names: list[str] = self._call("running")
        return names

    def exits(self) -> list[Exit]:
        """The nodes that have ended since this client last asked."""
        new = EXITS.validate_python(self._call("exits", since=self._exits_seen))
        self._exits_seen += len(new)
        return list(new)

    def signal(self, node: str, number: int) -> None:
        """Send a signal to a node's role."""
        self._call("signal", node=node, number=int(number))

    def freeze(self, node: str) -> None:
        """Stop a node's processes where they are."""
        self._call("freeze", node=node)

    def thaw(self, node: str) -> None:
        """Let a frozen node go on."""
        self._call("thaw", node=node)

    def private_bytes(self, node: str) -> int:
        """Memory of a node's role that it shares with no other process."""
        return int(self._call("private_bytes", node=node))

    def count(self) -> Traffic:
        """What the links have carried so far."""
        return Traffic(**self._call("count"))

    def links(self) -> list[Mapping[str, Any]]:
        """Every running node's link, as it was asked for and as the kernel has it now."""
        links: list[Mapping[str, Any]] = self._call("links")
        return links

    def link(self, node: str) -> LinkSpec:
        """A running node's link as it is now, with what was changed since it was planned."""
        return LINK.validate_python(self._call("link", node=node))

    def reshape(
        self,
        nodes: Sequence[str],
        *,
        up: Shape | None = None,
        down: Shape | None = None,
        seconds: float | None = None,
    ) -> LinkChange:
        """Change the links of those of the nodes that run, for so many seconds or until reset.

        The agent ends the change when its time has come, whether anybody is connected or not.
        """
        shapes = {
            name: SHAPE.dump_python(shape, mode="json")
            for name, shape in {"up": up, "down": down}.items()
        }
        change = self._call("reshape", nodes=list(nodes), seconds=seconds, **shapes)
        return CHANGES.validate_python([change])[0]

    def reset_links(self, nodes: Sequence[str]) -> LinkChange:
        """Give nodes the plan's links again."""
        return CHANGES.validate_python([self._call("reset_links", nodes=list(nodes))])[0]

    def link_changes(self) -> list[LinkChange]:
        """The changes of links since this client last asked, whoever made them."""
        new = CHANGES.validate_python(self._call("link_changes", since=self._changes_seen))
        self._changes_seen += len(new)
        return list(new)

    def _call(self, operation: str, **arguments: Any) -> Any:
        return self._exchange(operation, CALL_SECONDS, arguments).content.get("result")

    def _exchange(
        self, operation: str, within_seconds: float, arguments: Mapping[str, Any]
    ) -> Message:
        """Send a request and wait for its answer."""
        deadline = time.monotonic() + within_seconds
        answer = None
        try:
            self._connection.socket.settimeout(within_seconds)
            self._connection.send(Message({"operation": operation, **arguments}))
            while answer is None:
                self._connection.socket.settimeout(max(0.001, deadline - time.monotonic()))
                answer = self._connection.receive()
        except TimeoutError:
            # An answer that came later would be taken for that of the next request.
            self.close()
            raise NodeError(f"the agent did not answer {operation!r} in time.") from None
        except (OSError, EOFError):
            self.close()
            raise NodeError(
                f"the agent has ended, asked for {operation!r}.", hint="See logs/agent.log."
            ) from None
        if "error" in answer.content:
            raise decode_error(answer.content["error"])
        return answer
