"""The template's warm-up trains with what the algorithm's server replies to a worker that joins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.host.environment import agent_environment
from testbed.roles.warm_up import main
from testbed.scenario.load import load

SCENARIO = """\
name: warm
algorithm: ALGORITHM
model: digits-cnn
dataset: digits
workers: {count: 2, batch_size: 5}
stop: {updates: 4}
"""


def arguments(algorithm: str, folder: Path) -> dict[str, str]:
    """The arguments of a warm-up."""
    file = folder / "scenario.yaml"
    file.write_text(SCENARIO.replace("ALGORITHM", algorithm))
    dataset = load(file).dataset
    data = dataset.prepare(folder / "cache", environment=os.environ, folder=folder)
    return {"scenario": str(file), "data": str(data)}


@pytest.mark.parametrize("algorithm", ["powersgd", "fedavg", "diloco", "bsp", "asgd", "signsgd"])
def test_a_worker_gets_the_first_reply_of_its_server(algorithm: str, tmp_path: Path) -> None:
    assert main(arguments(algorithm, tmp_path)) is not None


def test_workers_need_not_find_what_they_share(tmp_path: Path) -> None:
    opened = main(arguments("asgd", tmp_path))
    assert opened is not None
    assert {"devices", "ping_seconds", "shards"} <= vars(opened.moved(tmp_path)).keys()


def test_setting_grpc_up_leaves_no_thread() -> None:
    """As in the template: in a process of its own, with the environment of nodes."""
    code = (
        "import os\nfrom testbed.roles.warm_up import set_up_grpc\n"
        "set_up_grpc(); print(len(os.listdir('/proc/self/task')))"
    )
    environment = os.environ | agent_environment({})
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    assert done.stdout == "1\n"
