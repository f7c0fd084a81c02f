"""An ordinary user's own Podman, where its control groups are not delegated.

Where they are, runs work (tried by hand on a kernel with version 2: see docs/runtimes.md).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import Any

import pytest

from testbed.host.hierarchies import find_mounted
from testbed.host.process import Process

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.nightly]


def test_it_is_refused_at_once_by_name(new_account: Any, eventually: Any) -> None:
    if lacking := [tool for tool in ("podman", "runc") if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(lacking)}, to start an engine")
    if all(tree.version == 2 for tree in find_mounted()):
        pytest.skip("needs control groups version 1, which no user can have delegated")
    with new_account(ranges=True) as user:
        socket = user.home / "podman.sock"
        podman = ("podman", "--runtime=runc", "--cgroup-manager=cgroupfs")
        own = ("env", f"XDG_RUNTIME_DIR={user.home}", f"DOCKER_HOST=unix://{socket}")
        service = (*own, *podman, "system", "service", "--time=0", f"unix://{socket}")
        with subprocess.Popen(user.command(*service), cwd=user.home, process_group=0) as engine:
            eventually(socket.exists)
            done = user.run(
                *own, user.python, "-m", "testbed", "up", "quickstart", "--runtime=docker"
            )
            os.killpg(engine.pid, signal.SIGKILL)
        Process.of(int((user.home / "libpod/tmp/pause.pid").read_text())).kill()  # Podman's
        assert done.returncode == 3, done.stderr
        said = "This rootless Podman engine cannot limit its containers: it has no control groups"
        assert said in done.stderr
        assert not (user.home / "runs").exists()
