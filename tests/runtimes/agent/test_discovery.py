"""Agents are found from outside by their command line, or by their title without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed.host.process import Process, name_of
from testbed.runtimes.agent.settings import all_of, first_of, settings_of, title_of

TITLED = """
import signal, sys
from testbed.host.syscalls import set_name
set_name(sys.argv[1])
print("named", flush=True)
signal.pause()
"""


def test_a_title_fits_the_kernels_limit_and_is_unique_to_its_folder() -> None:
    assert len(title_of(Path("/runs/a"))) == 15
    assert title_of(Path("/runs/a")) != title_of(Path("/elsewhere/a"))


def test_an_agent_without_a_command_line_is_found_by_its_title(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert all_of(folder) == []
    command = [sys.executable, "-c", TITLED, title_of(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as ending:
        try:
            assert ending.stdout is not None
            assert ending.stdout.readline() == b"named\n"
            assert settings_of(ending.pid) is None
            assert name_of(ending.pid) == title_of(folder)
            assert all_of(folder) == [Process.of(ending.pid)]
            assert all_of(tmp_path / "other") == []
            assert first_of(folder) is None
        finally:
            ending.kill()
    assert all_of(folder) == []
