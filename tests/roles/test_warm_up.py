"""The template's warm-up trains with what the algorithm's server replies to a worker that joins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.roles.warm_up import main, set_up_grpc
from testbed.scenario.load import load

SCENARIO = """\
name: warm
algorithm: ALGORITHM
model: digits-cnn
dataset: digits
workers: {count: 2, batch_size: 5}
stop: {updates: 4}
"""


@pytest.mark.parametrize("algorithm", ["powersgd", "fedavg", "diloco", "bsp", "asgd", "signsgd"])
def test_a_worker_gets_the_first_reply_of_its_server(algorithm: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO.replace("ALGORITHM", algorithm))
    dataset = load(file).dataset
    data = dataset.prepare(tmp_path / "cache", environment=os.environ, folder=tmp_path)
    assert main({"scenario": str(file), "data": str(data)}) is not None


def test_setting_grpc_up_leaves_no_thread() -> None:
    threads = Path("/proc/self/task")
    before = len([*threads.iterdir()])
    set_up_grpc()
    assert len([*threads.iterdir()]) <= before
