"""The first process of containers without programs: it needs nothing but its copies."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.runtimes.agent.first_process import copy_first_process, first_process


@pytest.mark.skipif(shutil.which("tini") is None, reason="needs tini")
def test_it_prints_a_log_and_ends_when_asked_to(tmp_path: Path) -> None:
    copy_first_process(tmp_path)
    copies = tmp_path / "first"
    assert sorted(one.name for one in copies.iterdir()) == ["ld.so", "libc.so.6", "tail", "tini"]
    (log := tmp_path / "log").write_text("one\n")
    with subprocess.Popen(
        first_process(copies, log), stdout=subprocess.PIPE, text=True, env={}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        process.terminate()
        assert process.wait(timeout=180) != 0
