"""The control service of an agent without nodes, in a process of its own."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.agent.client import AgentClient
from testbed.agent.settings import CONTROL_LIMITS, SERVICE
from testbed.errors import NodeError
from testbed.rpc._pb import agent_pb2 as pb
from testbed.rpc.methods import TOKEN_KEY
from testbed.topology import Shape

PROGRAM = """
import sys
from pathlib import Path

from testbed.agent.containers import GivenContainers
from testbed.agent.control import serve_control
from testbed.agent.loop import Loop
from testbed.agent.nodes import Nodes
from testbed.network.counters import TrafficMeter
from testbed.topology import LinkSpec

nodes = Nodes(GivenContainers(), None, None, TrafficMeter())
nodes.changes.set(  # for 30 years: longer than epoll can wait
    {"w0": LinkSpec("", "")}, up=None, down=None, seconds=1e9, relink=lambda *_: None
)
loop = Loop(nodes)
serve_control(loop, Path(sys.argv[1]))
loop.run()
"""
NODE = '{"name": "w0", "role": "worker", "index": 0, "device_class": "", "link": null}'
LAUNCH = f'{{"node": {NODE}, "network": {{}}, "entry": "x:y", "arguments": {{}}, "log": "/x"}}'


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the socket, whose path is longer than an address can be."""
    folder = tmp_path_factory.mktemp("control") / ("d" * 100)
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)]) as agent:
        with connect(folder):
            yield folder
        assert agent.poll() is None, "the agent has ended"
        agent.kill()


def connect(folder: Path) -> AgentClient:
    return AgentClient.connect(folder / "agent.sock", deadline=time.monotonic() + 20)


@pytest.fixture
def client(control: Path) -> Iterator[AgentClient]:
    with connect(control) as made:
        yield made


def ask(client: Any, method: str, message: bytes, *, tokens: int = 1) -> tuple[str, str]:
    """The status with which a call is refused, and the details."""
    call = client._channel.unary_unary(f"{SERVICE}{method}", None, None)
    with pytest.raises(grpc.RpcError) as refusal:
        call(message, timeout=10, metadata=client._metadata * tokens)
    assert client.running() == []  # it goes on
    return refusal.value.code().name, refusal.value.details()


INTERRUPTIONS = """
import faulthandler, os, random, signal, sys, time
from pathlib import Path
from threading import Timer

from testbed.agent.client import AgentClient
from testbed.run.interrupts import Interrupted, Interrupts

rng = random.Random(1)
faulthandler.dump_traceback_later(60, exit=True)  # a channel that is never closed
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
print("closed")
"""


@pytest.mark.parametrize("times", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_client_that_is_interrupted_at_any_moment_can_be_closed(
    control: Path, times: int
) -> None:
    command = [sys.executable, "-c", INTERRUPTIONS, str(control), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "closed\n", done.stderr


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("Launch", b"\xff\xff\xff"),
        ("Launch", b""),
        ("Launch", pb.LaunchRequest(launch="no JSON").SerializeToString()),
        ("Launch", pb.LaunchRequest(launch="[1]").SerializeToString()),
        ("Launch", pb.LaunchRequest(launch=LAUNCH).SerializeToString()),  # fields are missing
        ("Signal", pb.SignalRequest(node="w0", number=2**32 - 1).SerializeToString()),
        ("Freeze", b"\x0a\x05w"),  # cut short
        ("Reshape", pb.ReshapeRequest(nodes=["w0"], seconds=float("nan")).SerializeToString()),
        ("Reshape", pb.ReshapeRequest(nodes=["w0"], seconds=-1).SerializeToString()),
    ],
)
def test_a_malformed_request_is_refused(client: AgentClient, method: str, message: bytes) -> None:
    assert ask(client, method, message)[0] == "INVALID_ARGUMENT"


WORDS = (
    *("node", "network", "entry", "arguments", "log", "mounts", "neighbours", "container", "name"),
    *("role", "index", "link", "uid", "rate", "delay", "up", "down", "source", "target", "cpu"),
)
LAUNCHES = json.loads(LAUNCH) | {
    "node": {**json.loads(NODE), "cpu": None, "memory": None, "cpu_weight": 1, "uid": 0},
    "container": 1,
}
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
TREES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
)
TEXTS = (
    st.text(max_size=30)
    | TREES.map(json.dumps)
    | st.integers(1, 50_000).map(lambda depth: "[" * depth)
    | st.dictionaries(st.sampled_from(WORDS), TREES, max_size=3).map(
        lambda changed: json.dumps(LAUNCHES | changed)
    )
)
NAMES = st.lists(st.text(max_size=9) | st.just("w0"), max_size=3)
NODES = NAMES.map("/".join)
NUMBERS = st.integers(0, 2**32 - 1)
SECONDS = st.floats() | st.none()
MALFORMED = {
    "Launch": st.builds(pb.LaunchRequest, launch=TEXTS),
    "Signal": st.builds(pb.SignalRequest, node=NODES, number=NUMBERS),
    "Reshape": st.builds(
        *(pb.ReshapeRequest,), nodes=NAMES, up=TEXTS, down=TEXTS, seconds=SECONDS, planned=SECONDS
    ),
    "ResetLinks": st.builds(pb.NodesRequest, nodes=NAMES),
    "LinkChanges": st.builds(pb.HistoryRequest, since=NUMBERS),
    **dict.fromkeys(
        ("Freeze", "Thaw", "PrivateBytes", "Link"), st.builds(pb.NodeRequest, node=NODES)
    ),
}
REQUESTS = st.sampled_from(sorted(MALFORMED)).flatmap(
    lambda method: st.tuples(
        st.just(method),
        MALFORMED[method].map(lambda request: request.SerializeToString()) | st.binary(max_size=60),
    )
)


@pytest.mark.parametrize("examples", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_request_ends_the_agent(control: Path, examples: int) -> None:
    outcomes: Counter[str] = Counter()
    with connect(control) as client:

        @settings(max_examples=examples, deadline=None, database=None, derandomize=True)
        @given(REQUESTS)
        def asked(request: tuple[str, bytes]) -> None:
            method, message = request
            call: Any = client._channel.unary_unary(f"{SERVICE}{method}", None, None)
            try:
                call(message, timeout=10, metadata=client._metadata)
                outcomes["OK"] += 1
            except grpc.RpcError as refusal:
                outcomes[refusal.code().name] += 1

        asked()
        assert client.running() == []
    assert outcomes.keys() == {"OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION"}
    assert min(outcomes.values()) > examples // 40, outcomes


def test_an_unknown_method_and_a_message_that_is_too_long(client: AgentClient) -> None:
    assert ask(client, "Explode", b"")[0] == "UNIMPLEMENTED"
    long = bytes(CONTROL_LIMITS.message_bytes + 1)
    assert ask(client, "Launch", long)[0] == "RESOURCE_EXHAUSTED"


def test_nothing_is_answered_without_the_token(client: Any, control: Path) -> None:
    for tokens in (0, 2):
        assert ask(client, "Running", b"", tokens=tokens)[0] == "UNAUTHENTICATED"
    real, client._metadata = client._metadata, ((TOKEN_KEY, "wrong"),)
    with pytest.raises(NodeError, match=r"the agent refused Running: no valid .*UNAUTHENTICATED"):
        client.running()
    client._metadata = real
    for name in ("agent.sock", "agent.token"):
        assert stat.S_IMODE((control / name).stat().st_mode) == 0o600


def test_what_could_not_be_done_arrives_as_it_was_raised(client: AgentClient) -> None:
    with pytest.raises(NodeError, match=r"^w7 was never launched\.$"):
        client.freeze("w7")
    with pytest.raises(NodeError, match=r"^none of w7 runs and has a link\.$"):
        client.reshape(["w7"], up=Shape(), seconds=1.0)


def test_an_agent_that_has_ended_is_known(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="No such file"):
        AgentClient.connect(tmp_path / "agent.sock", deadline=time.monotonic())
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)]) as agent:
        with connect(tmp_path) as client:
            assert client.running() == []
            agent.kill()
            agent.wait()
            with pytest.raises(NodeError, match=r"the agent has ended, asked for Exits"):
                client.exits(10.0)
        with pytest.raises(NodeError, match="Connection refused"):
            AgentClient.connect(tmp_path / "agent.sock", deadline=time.monotonic())
