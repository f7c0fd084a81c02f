"""A node's gRPC environment, with experiments that this version knows."""

from __future__ import annotations

import subprocess
import sys

from testbed.host.environment import agent_environment

PROGRAM = """
import grpc

with grpc.insecure_channel("127.0.0.1:1") as channel:
    try:
        channel.unary_unary("/a/b")(b"", timeout=5)
    except grpc.RpcError as error:
        print(error.code().name)
"""


def test_grpc_knows_every_experiment_set_for_nodes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=agent_environment({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "UNAVAILABLE\n"
    assert done.stderr == ""  # where it would say "Unknown experiment"
