"""Nodes requested before the previous one is up, in every runtime."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import NodeError
from testbed.host.admission import ADMISSION
from testbed.runtimes.base import RuntimeDriver


@pytest.fixture(scope="module")
def driver(every_driver: RuntimeDriver) -> RuntimeDriver:
    return every_driver


def test_all_nodes_requested_at_once_start(live: Any) -> None:
    names = [f"w{index}" for index in range(200, 212)]
    asked = [live.client.begin_launch(live.asked(name, "entries:wait")) for name in names]
    pids = [launched() for launched in asked]
    for name, pid in zip(names, pids, strict=True):
        if live.is_here(name):
            assert Path(f"/proc/{pid}/comm").read_text() == f"{name}\n"
        live.wait_for_output(name, "waiting")
    assert set(names) <= set(live.client.running())


def test_a_failed_node_affects_no_other_and_can_be_launched_again(live: Any) -> None:
    wrong = replace(live.asked("w221", "entries:wait"), mounts=(_mount_outside(),))
    asked = [
        live.client.begin_launch(live.asked("w220", "entries:wait")),
        live.client.begin_launch(wrong),
        live.client.begin_launch(live.asked("w222", "entries:wait")),
    ]
    first, second, third = asked
    assert first() is not None
    with pytest.raises(NodeError, match="w221: mount at /etc/passwd"):
        second()
    assert third() is not None
    live.wait_for_output("w222", "waiting")
    assert live.client.launch(replace(wrong, mounts=())) is not None
    live.wait_for_output("w221", "waiting")


def test_a_node_with_a_missing_program_is_named(live: Any) -> None:
    node = live.node("w231", command=("no-such-program",))
    asked = [
        live.client.begin_launch(live.asked("w230", "entries:wait")),
        live.client.begin_launch(live.asked(node, "entries:wait")),
        live.client.begin_launch(live.asked("w232", "entries:wait")),
    ]
    assert asked[0]() is not None
    with pytest.raises(NodeError, match=r"w231: .*no-such-program"):
        asked[1]()
    assert asked[2]() is not None
    assert "w231" not in live.client.running()


def test_a_node_requested_twice_at_once_starts_once(live: Any) -> None:
    spec = live.asked("w240", "entries:wait")
    first, second = live.client.begin_launch(spec), live.client.begin_launch(spec)
    pid = first()
    with pytest.raises(NodeError, match="w240 is already running"):
        second()
    live.wait_for_output("w240", "waiting")
    os.kill(pid, signal.SIGKILL)
    assert live.wait_for_exit("w240").status == -9


def test_a_held_node_waits_until_it_is_admitted(live: Any) -> None:
    spec = live.asked("w250", "entries:finish_once_admitted", arguments={"status": "3"})
    live.client.launch(replace(spec, held=True))
    spec = live.asked("w251", "entries:finish_once_admitted", arguments={"status": "4"})
    live.client.launch(spec)
    assert live.wait_for_exit("w251").status == 4
    assert "w250" in live.client.running()
    live.client.signal("w250", ADMISSION)
    assert live.wait_for_exit("w250").status == 3


def test_a_held_node_ends_on_request(live: Any) -> None:
    spec = live.asked("w252", "entries:finish_once_admitted", arguments={"status": "3"})
    live.client.launch(replace(spec, held=True))
    live.wait_for_output("w252", "waiting")
    live.client.signal("w252", signal.SIGTERM)
    assert live.wait_for_exit("w252").status == 128 + signal.SIGTERM


def _mount_outside() -> Any:
    from testbed.runtimes.agent.launch import Mount

    return Mount(Path("/etc/hostname"), Path("/etc/passwd"))
