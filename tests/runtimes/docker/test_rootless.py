"""An ordinary user's own engine, where its control groups are not delegated.

Where they are, runs work (tried by hand on a kernel with version 2: see docs/runtimes.md).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.host.hierarchies import find_mounted
from testbed.host.process import Process

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.nightly]

TOOLS = {
    "Podman": ("podman", "runc"),
    "Docker": ("/usr/share/docker.io/contrib/dockerd-rootless.sh", "dockerd", "rootlesskit"),
}
PATH = "PATH=/usr/bin:/bin:/usr/sbin:/sbin"
NO_NETWORK = ("NET=host", "PORT_DRIVER=none", "DISABLE_HOST_LOOPBACK=false")


def service(product: str, socket: Path) -> list[str]:
    """The command that starts the engine; its folder is that of its socket."""
    if product == "Podman":
        options = ("--runtime=runc", "--cgroup-manager=cgroupfs")
        return ["podman", *options, "system", "service", "--time=0", f"unix://{socket}"]
    settings = (f"DOCKERD_ROOTLESS_ROOTLESSKIT_{one}" for one in NO_NETWORK)
    options = ("--iptables=false", "--bridge=none", f"--host=unix://{socket}")
    return ["env", PATH, *settings, TOOLS[product][0], *options]


@pytest.mark.parametrize("product", TOOLS)
def test_it_is_refused_at_once_by_name(product: str, new_account: Any, eventually: Any) -> None:
    if lacking := [tool for tool in TOOLS[product] if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(lacking)}, to start an engine")
    if all(tree.version == 2 for tree in find_mounted()):
        pytest.skip("needs control groups version 1, which no user can have delegated")
    with new_account(ranges=True) as user:
        socket = user.home / "engine.sock"
        own = ("env", f"XDG_RUNTIME_DIR={user.home}", f"DOCKER_HOST=unix://{socket}")
        command = ["unshare", "--net", *user.command(*own, *service(product, socket))]
        with subprocess.Popen(command, cwd=user.home, process_group=0) as engine:
            eventually(socket.exists)
            done = user.run(
                *own, user.python, "-m", "testbed", "up", "quickstart", "--runtime=docker"
            )
            os.killpg(engine.pid, signal.SIGKILL)
        if product == "Podman":
            Process.of(int((user.home / "libpod/tmp/pause.pid").read_text())).kill()
        assert done.returncode == 3, done.stderr
        said = f"This rootless {product} engine cannot limit its containers: it has no control"
        assert said in done.stderr
        assert not (user.home / "runs").exists()
        users = ["ps", "-U", user.name]
        eventually(lambda: subprocess.run(users, capture_output=True, check=False).returncode)
