"""The control server of an agent without nodes, in its own process."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import NodeError
from testbed.host.sockets import short_path
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.control import MOST_UNSENT_BYTES, REQUEST_BYTES
from testbed.runtimes.agent.lines import Lines
from testbed.values.topology import Direction

PROGRAM = """
import sys
from pathlib import Path

from testbed.network.switch import Switch
from testbed.runtimes.agent.containers import GivenContainers
from testbed.runtimes.agent.control import Control
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.agent.loop import Loop
from testbed.runtimes.agent.nodes import Nodes
from testbed.values.topology import LinkSpec

nodes = Nodes(GivenContainers(), None, Switch(0, has_netem=bool), None)
nodes.changes.relink = lambda *_: None
nodes.changes.set(  # for 30 years: longer than epoll can wait
    {"w0": LinkSpec("", "")}, up=None, down=None, seconds=1e9
)
loop = Loop(nodes)
control = Control(loop, nodes)
if sys.argv[1] == "pipes":
    control.add(Lines(0, 1, line_bytes=1000))
else:
    owner = int(sys.argv[2])
    control.listen(Path(sys.argv[1]) / "agent.sock", owners={owner})
loop.run()
"""
NODE = {"name": "w0", "role": "worker", "index": 0, "device_class": "", "link": None}
LAUNCH = {"node": NODE, "network": {}, "entry": "x:y", "arguments": {}, "log": "/x"}


@contextmanager
def agent(where: str, *, owner: int | None = None, **streams: Any) -> Iterator[Any]:
    """An agent that serves a folder or its standard streams; it must not exit by itself."""
    command = [sys.executable, "-c", PROGRAM, where, str(os.getuid() if owner is None else owner)]
    with subprocess.Popen(command, **streams) as process:
        try:
            yield process
            assert process.poll() is None, "the agent has ended"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the socket, with a path too long for a socket address."""
    folder = tmp_path_factory.mktemp("control") / ("d" * 100)
    folder.mkdir()
    with (folder / "log").open("wb") as log, agent(str(folder), stderr=log), connect(folder):
        yield folder


def connect(folder: Path) -> AgentClient:
    return AgentClient.connect(folder / "agent.sock", deadline=time.monotonic() + 20)


@pytest.fixture
def client(control: Path) -> Iterator[AgentClient]:
    with connect(control) as made:
        yield made


@dataclass
class Peer:
    """A client that sends arbitrary bytes."""

    stream: socket.socket
    replies: BinaryIO

    def send(self, data: bytes) -> None:
        self.stream.sendall(data)

    def reply(self) -> dict[str, Any]:
        """The next reply."""
        reply: dict[str, Any] = json.loads(self.replies.readline())
        return reply

    def refusal(self, line: bytes) -> tuple[int | None, str]:
        """The id and the message of the error reply to a line."""
        self.send(line + b"\n")
        reply = self.reply()
        assert reply["error"]["kind"] == "NodeError"
        return reply["id"], reply["error"]["message"]


@contextmanager
def connect_peer(folder: Path) -> Iterator[Peer]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(10)
        with short_path(folder / "agent.sock") as name:
            stream.connect(name)
        with stream.makefile("rb") as replies:
            yield Peer(stream, replies)


@pytest.fixture
def peer(control: Path) -> Iterator[Peer]:
    with connect_peer(control) as made:
        yield made


INTERRUPTIONS = """
import faulthandler, os, random, signal, sys, time
from contextlib import nullcontext
from pathlib import Path
from threading import Timer

from testbed.runtimes.agent.client import AgentClient
from testbed.run.interrupts import Interrupted, Interrupts

rng = random.Random(1)
faulthandler.dump_traceback_later(60, exit=True)
for _ in range(int(sys.argv[2])):
    with Interrupts() as interrupts:
        deadline, waiting = time.monotonic() + 20, interrupts.allowed
        socket = Path(sys.argv[1]) / "agent.sock"
        with AgentClient.connect(socket, deadline=deadline, waiting=waiting) as client:
            Timer(rng.uniform(0, 0.005), os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                while True:
                    client.exits()
                    client.link_changes()
                    interrupts.sleep(0.0)
            except Interrupted:
                pass
            client._waiting = nullcontext
            assert client.running() == []  # the stream is intact
print("closed")
"""


@pytest.mark.parametrize("times", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_client_interrupted_at_any_moment_can_continue(control: Path, times: int) -> None:
    command = [sys.executable, "-c", INTERRUPTIONS, str(control), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "closed\n", done.stderr


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff\xff", "no JSON"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "no object with an id and a method"),
        (b'{"id": "1", "method": "nodes"}', "no object with an id and a method"),
        (b'{"method": "nodes"}', "no object with an id and a method"),
    ],
)
def test_a_line_that_is_not_a_request_is_refused(peer: Peer, line: bytes, reason: str) -> None:
    number, message = peer.refusal(line)
    assert number is None
    assert message.startswith(f"the agent refused read: {reason}")
    peer.send(b'{"id": 8, "method": "nodes"}\n')
    assert peer.reply() == {"id": 8, "result": []}


@pytest.mark.parametrize(
    ("method", "fields", "reason"),
    [
        ("explode", {}, "no such method"),
        ("launch", {}, "launch: Missing required argument"),
        ("launch", {"launch": "w0"}, "launch: "),
        ("launch", {"launch": LAUNCH}, "launch.node.cpu: Field required"),
        ("signal", {"node": "w0", "number": 2**32 - 1}, "number: Input should be 1, 2"),
        ("freeze", {"node": 7}, "node: Input should be a valid string, found 7"),
        ("freeze", {"node": "w0", "now": True}, "now: Unexpected keyword argument"),
        ("reshape", {"nodes": ["w0"], "seconds": float("nan")}, "seconds: .*finite"),
        ("reshape", {"nodes": ["w0"], "seconds": -1}, "seconds: .*greater than or equal to 0"),
        ("exits", {"since": -1}, "since: .*greater than or equal to 0"),
    ],
)
def test_a_malformed_request_is_refused(
    client: AgentClient, method: str, fields: Any, reason: str
) -> None:
    with pytest.raises(NodeError, match=f"^the agent refused {method}: .*{reason}"):
        client.call(method, **fields)
    assert client.running() == []  # neither has ended


WORDS = sorted({*LAUNCH, *NODE, "container", "mounts", "environment", "uid", "cpu", "memory"})
LAUNCHES = LAUNCH | {
    "node": NODE | {"cpu": None, "memory": None, "cpu_weight": 1, "uid": 0},
    "container": 1,
}
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
TREES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
)
NAMES = st.lists(st.text(max_size=9) | st.just("w0"), max_size=3)
NODES = NAMES.map("/".join)
NUMBERS = st.integers(0, 2**32 - 1)
SECONDS = st.floats() | st.none()
CHANGED = st.dictionaries(st.sampled_from(WORDS), TREES, max_size=3)
FIELDS = {
    "launch": st.fixed_dictionaries({"launch": TREES | CHANGED.map(lambda new: LAUNCHES | new)}),
    "signal": st.fixed_dictionaries({"node": NODES, "number": NUMBERS}),
    "reshape": st.fixed_dictionaries(
        {"nodes": NAMES, "up": TREES, "down": TREES, "seconds": SECONDS, "planned": SECONDS}
    ),
    "reset_links": st.fixed_dictionaries({"nodes": NAMES}),
    "link_changes": st.fixed_dictionaries({"since": NUMBERS}),
    **dict.fromkeys(
        ("freeze", "thaw", "private_bytes", "link"), st.fixed_dictionaries({"node": NODES})
    ),
}
REQUESTS = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda method: st.tuples(st.just(method), FIELDS[method] | FIELDS[method] | CHANGED)
)
GARBAGE = st.binary(min_size=1, max_size=60).filter(lambda line: b"\n" not in line)
LINES = st.one_of(
    *[REQUESTS.map(lambda ask: json.dumps({**ask[1], "id": 1, "method": ask[0]}).encode())] * 3,
    GARBAGE,
)


@pytest.mark.parametrize("examples", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_request_ends_the_agent(tmp_path: Path, examples: int) -> None:
    outcomes: Counter[str] = Counter()

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True)
    @given(LINES)
    def asked(line: bytes) -> None:
        peer.send(line + b"\n")
        reply = peer.reply()
        refused = "the agent refused" in reply.get("error", {}).get("message", "")
        outcomes["result" if "result" in reply else "refused" if refused else "error"] += 1

    with (tmp_path / "log").open("wb") as log, agent(str(tmp_path), stderr=log):
        connect(tmp_path).close()
        with connect_peer(tmp_path) as peer:
            asked()
    assert outcomes.keys() == {"result", "refused", "error"}
    assert min(outcomes.values()) > examples // 40, outcomes
    written = (tmp_path / "log").read_text()
    assert "Traceback" not in written
    assert "(100 so far)" in written or outcomes["refused"] < 100
    assert "(101 so far)" not in written


def test_a_line_that_is_too_long_disconnects_only_its_client(
    control: Path, client: AgentClient, peer: Peer
) -> None:
    message = f"a line of over {REQUEST_BYTES} bytes"
    peer.send(bytes(REQUEST_BYTES + 1))  # without a newline
    reply = peer.reply()
    assert reply["id"] is None
    assert message in reply["error"]["message"]
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        while True:
            peer.send(b"x")
    assert f"refused: 'disconnected': '{message}'" in (control / "log").read_text()
    assert client.running() == []


def test_the_client_reports_that_its_request_is_too_long(client: AgentClient) -> None:
    with pytest.raises(NodeError, match=r"a line of over \d+ bytes"):
        client.call("freeze", node="w" * 2 * REQUEST_BYTES)


def test_a_client_that_reads_no_replies_is_disconnected(
    control: Path, client: AgentClient, peer: Peer
) -> None:
    peer.stream.settimeout(None)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(2 * MOST_UNSENT_BYTES // 1000):  # a reply has more than 1000 bytes
            peer.send(b'{"id": 1, "method": "freeze", "node": "%b"}\n' % (b"w" * 1000))
    assert "'it has not read " in (control / "log").read_text()
    assert client.running() == []


def test_a_client_that_leaves_in_the_middle_of_a_line_is_dropped(
    client: AgentClient, peer: Peer
) -> None:
    peer.send(b'{"id": 1, "method": "run')
    peer.replies.close()
    peer.stream.close()
    assert client.running() == []


def test_lines_may_arrive_split_or_together(peer: Peer) -> None:
    for part in (b'{"id": 1, "met', b'hod": "nodes"}', b'\n\n{"id": 2, "method": "nodes"}\n{'):
        peer.send(part)
        time.sleep(0.01)
    assert peer.reply() == {"id": 1, "result": []}
    assert peer.reply() == {"id": 2, "result": []}
    peer.send(b'"id": 3, "method": "nodes"}\n')
    assert peer.reply() == {"id": 3, "result": []}


def test_an_unexpected_error_is_returned_and_logged(control: Path, client: AgentClient) -> None:
    with pytest.raises(NodeError, match=r"refused count: unexpected AttributeError.*traceback"):
        client.count()  # this agent has no meter
    log = (control / "log").read_text()
    assert "Traceback" in log
    assert "refused: 'count': 'unexpected AttributeError" in log
    assert client.running() == []


def test_only_the_owner_can_connect(control: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE((control / "agent.sock").stat().st_mode) == 0o600
    with (
        (tmp_path / "log").open("wb") as log,
        agent(str(tmp_path), owner=os.getuid() + 1, stderr=log),
    ):
        with (
            connect(tmp_path) as client,
            pytest.raises(NodeError, match="the agent has ended before it answered running"),
        ):
            client.running()
        assert f"has uid {os.getuid()}'" in (tmp_path / "log").read_text()


def test_the_protocol_works_over_pipes() -> None:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with agent("pipes", **streams) as process:
        reader, writer = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        with AgentClient(Lines(reader, writer, line_bytes=1000), process.pid) as client:
            assert client.exits() == []
            assert client.running() == []
            with pytest.raises(NodeError, match=r"^w7 was never launched\.$"):
                client.freeze("w7")
            assert client.exits(0.01) == []


def test_an_error_of_the_agent_is_raised_in_the_client(client: AgentClient) -> None:
    with pytest.raises(NodeError, match=r"^w7 was never launched\.$"):
        client.freeze("w7")
    with pytest.raises(NodeError, match=r"^none of w7 is running and has a link\.$"):
        client.reshape(["w7"], up=Direction(), seconds=1.0)


def test_an_agent_that_does_not_answer_is_reported(control: Path, client: AgentClient) -> None:
    with pytest.raises(NodeError, match=r"^the agent did not answer exits in time\.$"):
        client._ask("exits", within_seconds=0.01, since=0)()
    assert client.running() == []


def test_an_agent_that_has_ended_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="No such file"):
        AgentClient.connect(tmp_path / "agent.sock", deadline=time.monotonic())
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(os.getuid())]
    with subprocess.Popen(command) as process:
        with connect(tmp_path) as client:
            assert client.running() == []
            process.kill()
            process.wait()
            for _ in range(2):
                with pytest.raises(NodeError, match="the agent has ended before it answered exits"):
                    client.exits(10.0)
            with pytest.raises(NodeError, match="the agent has ended before it answered running"):
                client.running()
        with pytest.raises(NodeError, match="Connection refused"):
            AgentClient.connect(tmp_path / "agent.sock", deadline=time.monotonic())
