"""The kernel enforces limits, with either version of control groups."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.host.cgroups import RunGroups
from testbed.host.group import ContainerGroups
from testbed.host.limits import Limits
from testbed.values.units import Size

pytestmark = [pytest.mark.root]

SPIN = "import time\nend = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass"
FORK = """
import os, time
made = 0
try:
    while made < 20:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except BlockingIOError:
    print(made)
os.killpg(0, 9)
"""
FILL = "block = bytearray(200 << 20)\nblock[::4096] = b'x' * len(block[::4096])"


@pytest.fixture
def groups(trees: Any) -> Iterator[RunGroups]:
    made = RunGroups(f"enforce-{os.getpid()}-{time.monotonic_ns()}", trees)
    made.create()
    yield made
    made.remove(deadline=time.monotonic() + 10)


@pytest.fixture
def run(groups: RunGroups) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    def start(node: str, program: str) -> subprocess.CompletedProcess[str]:
        enter = "".join(f"echo 0 > {entrance}; " for entrance in groups.entrances(node))
        return subprocess.run(
            ["sh", "-c", f'{enter} exec "$@"', "sh", sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    return start


def test_processes(groups: RunGroups, run: Any) -> None:
    groups.add("w0", Limits(pids=5))
    assert run("w0", FORK).stdout in ("", "4\n")  # it may be killed before it has printed
    assert _counter(groups, "pids", "w0", "pids.events", "max") > 0


def test_cpu_time(groups: RunGroups, run: Any) -> None:
    groups.add("w0", Limits(cpu=0.05))
    assert run("w0", SPIN).returncode == 0
    assert _counter(groups, "cpu", "w0", "cpu.stat", "nr_throttled") > 0


def test_a_cpu_limit_changes_alone(groups: RunGroups) -> None:
    groups.add("w0", Limits(cpu=0.5, cpu_weight=3))
    before = groups.node("w0").limits()
    groups.node("w0").set_quota(0.1)
    after = groups.node("w0").limits()
    changed = {file: text for file, text in after.items() if text != before[file]}
    assert changed in ({"cpu.cfs_quota_us": "10000"}, {"cpu.max": "10000 100000"})
    groups.node("w0").set_quota(0.5)
    assert groups.node("w0").limits() == before
    with pytest.raises(HostError, match=r"0\.1 CPUs cannot be enforced"):
        ContainerGroups().set_quota(0.1)


def test_all_runs_together_have_half_the_share_of_a_program_outside(groups: RunGroups) -> None:
    tree = next(tree for tree in groups.hierarchies if "cpu" in tree.controllers)
    file, halved = {1: ("cpu.shares", 512), 2: ("cpu.weight", 50)}[tree.version]
    groups.add("w0", Limits())
    run = tree.root / "testbed" / groups.run
    assert int((run.parent / file).read_text()) == halved
    assert {int((group / file).read_text()) for group in (run, run / "w0")} == {2 * halved}


def test_memory_of_the_own_group_only(groups: RunGroups, run: Any) -> None:
    for node in ("w0", "w1"):
        groups.add(node, Limits(memory=Size.parse("64MiB")))
    assert run("w0", FILL).returncode == -9
    assert run("w1", "print('fine')").stdout == "fine\n"
    assert tuple(groups.node(name).oom_kills() for name in ("w0", "w1")) == (1, 0)


def _counter(groups: RunGroups, controller: str, node: str, file: str, name: str) -> int:
    tree = next(tree for tree in groups.hierarchies if controller in tree.controllers)
    words = (Path(tree.root) / "testbed" / groups.run / node / file).read_text().split()
    return int(words[words.index(name) + 1])
