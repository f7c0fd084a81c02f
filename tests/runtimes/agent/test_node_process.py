"""What a role enters of a container that an engine created."""

from __future__ import annotations

import subprocess

import pytest

from testbed.host import syscalls
from testbed.host.process import Process
from testbed.runtimes.agent.node_process import namespaces_of


@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("options", "cgroup"), [((), 0), (("--cgroup",), syscalls.CLONE_NEWCGROUP)]
)
def test_a_cgroup_namespace_is_entered_unless_it_is_shared(
    options: tuple[str, ...], cgroup: int
) -> None:
    """An agent of a rootless engine has no right to enter the host's, in which it is."""
    command = ("unshare", "--user", *options, "sh", "-c", "echo; exec sleep 60")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = namespaces_of(Process.of(process.pid))
        process.kill()
    assert found == syscalls.CONTAINER | cgroup
