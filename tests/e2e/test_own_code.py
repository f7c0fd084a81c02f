"""The user's own algorithm and network, live: they train, and failures name file and line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.telemetry.event_kinds import Exited
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.root, pytest.mark.slow]

SHIPPED = Path(__file__).parents[2] / "scenarios" / "custom"
WIDTH = 16
PARAMETERS = 64 * WIDTH + WIDTH + WIDTH * 10 + 10


SMALL = ("--set", f"model.width={WIDTH}", "--set", "paced=false")


def own(bed: Any, *, was: str, becomes: str) -> Any:
    """Start the shipped scenario with some words of its algorithm replaced, and without links."""
    shutil.copytree(SHIPPED, bed.path / "own")
    file = bed.path / "own" / "dc_asgd.py"
    assert file.read_text().count(was) == 1
    file.write_text(file.read_text().replace(was, becomes))
    settings = ("--set", "stop.updates=200", "--set", "workers={count: 3}")
    return bed.up(*SMALL, *settings, file="own/dc-asgd.yaml")


def test_own_code_trains(bed: Any) -> None:
    shutil.copytree(SHIPPED, bed.path / "own")
    up = bed.up(*SMALL, "--set", "stop.updates=200", file="own/dc-asgd.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err  # 6: this host was too busy
    run = testbed.Run(up.folder.path)
    assert len(run.updates) == 200
    assert set(run.updates["payload_up_bytes"]) == {4 * PARAMETERS}
    assert run.summary["algorithm"]["class"] == "DcAsgd"
    assert run.evaluations["top1"].iloc[-1] > 0.5
    copied = up.folder.path / "custom" / "dc_asgd.py"
    assert copied.read_bytes() == (SHIPPED / "dc_asgd.py").read_bytes()


def test_a_server_half_that_raises(bed: Any) -> None:
    up = own(bed, was="        moved =", becomes="        1 / (self.version < 20)\n        moved =")
    done = up.end()
    assert done.status == 11
    assert done.err.startswith("ps exited with status 11; it printed:\n")
    assert "ps: dc_asgd.py:85: ZeroDivisionError: division by zero\n" in done.err
    log = up.folder.log("ps").read_text()
    assert log.startswith("Traceback (most recent call last)")
    assert "1 / (self.version < 20)" in log


SPOIL = """\
        self.version += 1
        if self.version == 50:
            import os
            os.rename("/run/testbed/ps/events.jsonl", "/run/testbed/ps/away")
            os.mkfifo("/run/testbed/ps/events.jsonl")
"""


def test_a_server_half_that_damages_the_record_of_its_node(bed: Any) -> None:
    """A pipe without a writer must not block `up`, `report` or `down`."""
    up = own(bed, was="        self.version += 1\n", becomes=SPOIL)
    done = up.end()
    told = "events.jsonl: found a named pipe, expected a regular file, written by ps."
    assert done.status == 5
    assert told in done.err
    state = up.folder.state()
    assert (state.state, state.exit_code) == ("failed", 5)
    assert told.rstrip(".") in state.reason
    report = bed.run("report", up.name)
    assert report.status == 5
    assert told in report.err
    assert bed.run("down", up.name).status == 0
    assert bed.remains(up.name) == []


def test_a_server_half_that_breaks_the_contract(bed: Any) -> None:
    done = own(bed, was="version, staleness", becomes="version + (version > 20), staleness").end()
    assert done.status == 10
    assert done.err.startswith("ps exited with status 10; it printed:\n")
    assert "applied an update at version 22, expected 21" in done.err


def test_worker_halves_that_raise(bed: Any) -> None:
    up = own(bed, was="gradient.copy()", becomes="gradient.cop()")
    done = up.end()
    assert done.status == 11
    log = up.folder.log("w0").read_text()
    assert log.startswith("Traceback (most recent call last)")
    raised = "dc_asgd.py:65: AttributeError: 'numpy.ndarray' object has no attribute 'cop'"
    assert log.endswith(f"w0: {raised}\n")
    assert raised in done.err


HOSTILE = """
import ctypes, os, socket, sys

DEEDS = {
    "w0": lambda: os._exit(0),
    "w1": lambda: os._exit(99),
    "w2": lambda: sys.exit(0),
    "w3": lambda: ctypes.string_at(0),
    "w4": lambda: exec("raise BaseException('no')"),
    "w5": lambda: exec("raise KeyboardInterrupt"),
    "w6": lambda: os.closerange(3, 4096),
    "w7": lambda: DEEDS["w7"](),
    "w8": lambda: os.abort(),
    "w9": lambda: [],
}


def forward(net, images, honest=Net.forward):
    deed = DEEDS.get(socket.gethostname())
    given = deed() if deed and len(images) > 2 else None
    return honest(net, images) if given is None else given


Net.forward = forward
"""
ENDS = {
    "w0": (0, ""),
    "w1": (99, ""),
    "w2": (11, "SystemExit: 0"),
    "w3": (-11, ""),
    "w4": (11, "BaseException: no"),
    "w5": (11, "KeyboardInterrupt"),
    "w7": (11, "RecursionError"),
    "w8": (-11, ""),  # the first process of a namespace does not receive its own SIGABRT
    "w9": (11, "Net returned a list, expected (10, 10), torch.float32."),
}
"""How each of them ends, and what its log says of it.

Where w6 has closed what gRPC waits on, gRPC ends the process, or the role sees it first.
"""

ODD = """
import os, signal, threading, time

os.fork()
os.chdir("/")
os.environ.clear()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def forward(net, images, honest=Net.forward):
    if len(images) > 2:
        os.fork()
        os.kill(os.getpid(), signal.SIGKILL)  # not heard by the first process of a namespace
    return honest(net, images)


Net.forward = forward
"""


def own_model(bed: Any, more: str, *, workers: int) -> Any:
    """Start the shipped scenario with lines appended to its model, and without links."""
    shutil.copytree(SHIPPED, bed.path / "own")
    with (bed.path / "own" / "net.py").open("a") as file:
        file.write(more)
    settings = ("--set", "stop.updates=30", "--set", f"workers={{count: {workers}}}")
    return bed.up(*SMALL, *settings, file="own/dc-asgd.yaml")


def test_models_that_misbehave(bed: Any) -> None:
    up = own_model(bed, HOSTILE, workers=len(ENDS) + 1)
    done = up.end()
    assert done.status == 11
    state = up.folder.state()
    assert (state.state, state.exit_code) == ("failed", 11)
    assert "Traceback" not in done.err.splitlines()[0]
    ends = {
        one.event.node: one.event.status
        for one in read_events(up.folder.events)
        if isinstance(one.event, Exited)
    }
    assert ends.pop("w6") in (11, -11)
    assert ends == {node: status for node, (status, _) in ENDS.items()}
    for node, (_, told) in ENDS.items():
        assert told in up.folder.log(node).read_text()
    assert bed.remains(up.name) == []


def test_an_unusual_but_harmless_model_is_trained(bed: Any) -> None:
    up = own_model(bed, ODD, workers=2)
    done = up.end()
    assert (up.folder.state().state, done.err) == ("finished", "")
    assert len(testbed.Run(up.folder.path).updates) == 30
    assert bed.remains(up.name) == []


def test_an_invalid_option_is_refused_before_anything_is_created(bed: Any) -> None:
    shutil.copytree(SHIPPED, bed.path / "own")
    done = bed.run("up", "own/dc-asgd.yaml", "--set", "algorithm.compensation=-1")
    assert done.status == 2
    assert done.err == (
        "--set algorithm.compensation=-1: algorithm.compensation: found -1, "
        "expected a number of at least 0\n"
    )
    assert not bed.runs.exists()
