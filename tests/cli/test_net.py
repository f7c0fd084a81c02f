"""``testbed net`` on an active run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main

SCENARIO = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]


class LiveRun:
    """A run that stays active until the test ends."""

    def __init__(self, runs: Path) -> None:
        self.folder = runs / "live"
        settings = ["workers.count=3", "stop.updates=1000000", "time_scale=2"]
        chosen = [part for setting in settings for part in ("--set", setting)]
        command = ["up", str(SCENARIO), "--runs", str(runs), "--name", "live", *chosen]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testbed", *command],
            stdout=subprocess.DEVNULL,
        )

    def await_event(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for this many events of that name and return them."""
        deadline = time.monotonic() + 60
        while True:
            lines = self.events().splitlines()
            found = [event for event in map(json.loads, lines) if event["event"] == name]
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, f"no {name}"
            assert self.process.poll() is None
            time.sleep(0.05)

    def events(self) -> str:
        """Everything recorded, in whole lines."""
        path = self.folder / "events.jsonl"
        return path.read_text().rpartition("\n")[0] if path.exists() else ""

    def end(self) -> None:
        """Interrupt it, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    runs = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(runs))  # this user may have another run of that name
        run = LiveRun(runs)
        try:
            run.await_event("brought_up")
            yield run
        finally:
            run.end()


def net(live: LiveRun, verb: str, *arguments: str) -> int:
    return main(["net", verb, "live", *arguments, "--runs", str(live.folder.parent)])


def test_every_class_is_probed_before_the_start(live: LiveRun) -> None:
    rates = {event["link"]: event for event in live.await_event("rate")}
    assert set(rates) == {
        f"class {name} {way}" for name in ("fast", "medium", "slow") for way in ("up", "down")
    }
    for event in rates.values():
        measured = event["measured_bits_per_second"]
        assert measured == pytest.approx(event["configured_bits_per_second"], rel=0.05)
    assert len(live.await_event("round_trip")) == 3


def test_links_are_shown_with_configured_and_actual_values(
    live: LiveRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert net(live, "show", "--json") == 0
    rows = {row["node"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {"ps", "w0", "w1", "w2"}
    assert rows["w2"]["up"].startswith("tbf rate 2mbit")  # 1mbit at twice the speed
    assert rows["w2"]["up_found"] == rows["w2"]["up"]
    assert rows["w2"]["class"] == "slow"


def test_only_the_links_of_named_nodes_are_read(
    live: LiveRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert net(live, "show", "ps", "--class", "slow", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["node"] for row in rows] == ["ps", "w2"]
    assert net(live, "show", "evaluator") == 2
    assert "selector: found evaluator, without a link" in capsys.readouterr().err


def test_a_change_is_applied_expires_and_is_recorded(
    live: LiveRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert net(live, "set", "--class", "slow", "--up", "500kbit", "--for", "2s") == 0
    assert capsys.readouterr().out == "changed 1 link for 2s of emulated time\n"
    made, ended = live.await_event("link_changed", 2)[:2]
    assert (made["action"], made["nodes"], made["up"]["rate"]) == ("set", ["w2"], "1mbit")
    assert ended["action"] == "expired"
    assert ended["planned"] == pytest.approx(made["actual"] + 1, abs=0.5)
    assert ended["actual"] >= ended["planned"]


def test_nodes_of_several_classes_are_named(
    live: LiveRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert net(live, "set", "w[01]", "class=slow", "--up", "queue=500ms") == 0
    assert capsys.readouterr().out == "changed 3 links until it is reset\n"
    assert net(live, "reset", "w0") == 0
    assert net(live, "reset") == 0
    assert capsys.readouterr().out == "reset 1 link\nreset 2 links\n"


def test_a_class_is_probed_with_its_current_links_and_no_node_is_left(
    live: LiveRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert net(live, "set", "--class", "fast", "--down", "rate=5mbit,queue=300ms") == 0
    capsys.readouterr()
    assert net(live, "probe", "--json") == 0
    fast = json.loads(capsys.readouterr().out)[0]
    assert fast["down_bits_per_second"] == pytest.approx(10e6, rel=0.05)
    assert fast["up_bits_per_second"] == pytest.approx(20e6, rel=0.05)
    assert fast["message_down_seconds"] > 17_000 * 8 / 10e6 * 0.8
    assert net(live, "reset") == 0
    assert capsys.readouterr().out == "reset 1 link\n"
    assert main(["ps", "live", "--json", "--runs", str(live.folder.parent)]) == 0
    nodes = json.loads(capsys.readouterr().out)
    assert [node["node"] for node in nodes] == ["ps", "evaluator", "w0", "w1", "w2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--class", "fats", "--up", "1mbit"], "a class of this run (fast, medium, slow)"),
        (
            ["w1", "w7", "--up", "1mbit"],
            "selector: found 'w7', expected a node (ps, evaluator, w0 to",
        ),
        (["evaluator", "--up", "1mbit"], "selector: found evaluator, without a link"),
        (["w0", "--up", "0mbit"], "--up: found '0mbit': rate: found 0bit, expected a rate above"),
        (
            ["w0", "--up", "jitter=2s"],
            "found 'jitter=2s': found a jitter without a delay, expected",
        ),
        (["--up", "1mbit"], "No nodes were given"),
        (["--class", "fast", "--up", "1mbti"], "mbti"),
        (
            ["--class", "fast", "--up", "rates=1mbit"],
            "--up: found rates, an unknown key, expected one",
        ),
        (["--class", "fast", "--up", "dealy=3ms"], "Did you mean delay?"),
        (["--class", "fast", "--up", "rate=1mbit,loss=much"], "much"),
        (["--class", "fast", "--up", "rate=1mbit,queue=1ms"], "less than two frames"),
        (["--class", "fast", "--up", "1mbit", "--for", "soon"], "--for"),
        (["--class", "fast", "--up", "1mbit", "--for", "0s"], "a duration above zero"),
    ],
)
def test_impossible_changes_are_refused_by_name(
    live: LiveRun, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert net(live, "set", *arguments) == 2
    assert message in capsys.readouterr().err


def packet_sockets(live: LiveRun) -> int:
    """The number of packet sockets in the network of the run's switch, of any process."""
    agent = int((live.folder / "control" / "agent.pid").read_text().split()[0])
    return len(Path(f"/proc/{agent}/net/packet").read_text().splitlines()) - 1


def test_a_link_is_captured(
    live: LiveRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by a command that is killed; neither leaves a socket behind."""
    file = tmp_path / "w0.pcap"
    assert net(live, "capture", "w0", "--seconds", "1", "--to", str(file)) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    data = file.read_bytes()
    assert data[:4] == bytes.fromhex("d4c3b2a1")
    assert data.count(bytes.fromhex("02000a4d0001")) > 0  # the parameter server's address
    assert f"{file}: " in printed.err
    assert f" frames, {len(data):,} bytes" in printed.err
    command = [sys.executable, "-m", "testbed", "net", "capture", "live", "ps", "--to", "-"]
    command += ["--seconds", "600", "--runs", str(live.folder.parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.read(4) == data[:4]
        assert packet_sockets(live) == 1
        killed.kill()
    assert packet_sockets(live) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["w7"], 2, "selector: found 'w7', expected a node (ps, evaluator, w0 to"),
        (["w*"], 2, "NODE: found w*, which are 3 nodes, expected one of them, such as w0"),
        (["evaluator"], 2, "selector: found evaluator, without a link"),
        (["w0", "--to", "/"], 2, "--to: found /, expected a file, not a folder"),
        (["w0", "--seconds", "0"], 2, "'--seconds'"),
        (["w0", "--bytes", "10"], 2, "'--bytes': "),
        (["w0", "--to", "/proc/w0.pcap"], 3, "/proc/w0.pcap: "),
    ],
)
def test_what_cannot_be_captured_is_refused(
    live: LiveRun,
    arguments: list[str],
    status: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert net(live, "capture", *arguments) == status
    assert message in capsys.readouterr().err


def test_a_run_that_has_ended_has_no_links(
    live: LiveRun, capsys: pytest.CaptureFixture[str]
) -> None:
    live.end()
    assert net(live, "show") == 5
    assert "has ended" in capsys.readouterr().err
