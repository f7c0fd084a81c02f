"""Work that the template does once before the first fork, so no node has to repeat it.

PyTorch picks kernels, packs weights and grows its buffers on first use; work that is done before
the fork is shared by all nodes and does not count as their memory. Python specializes code after
eight runs: a worker that does this itself gets its own copy of those pages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from testbed.algorithms import Asgd, CustomAlgorithm
from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import OwnCompute, batch_of
from testbed.datasets import Prepared, load
from testbed.errors import NodeError
from testbed.models import CustomModel
from testbed.roles.arguments import limits
from testbed.rpc import methods
from testbed.rpc.client import Connection
from testbed.rpc.limits import MessageLimits
from testbed.scenario.experiment import Experiment
from testbed.scenario.load import load as load_scenario
from testbed.scenario.own_code import own_files
from testbed.scenario.schema import Scenario
from testbed.values.seeds import stream

ROUNDS = 10

NO_SERVER = "ipv4:127.0.0.1:1"

DEADLINE_SECONDS = 10.0
"""Of a call to NO_SERVER, and of the end of gRPC's threads; both usually take milliseconds."""

POLL_SECONDS = 0.01


def main(arguments: Mapping[str, str]) -> Experiment | None:
    """Compute a few gradients and updates of the run's model, and discard them.

    Arguments are ``scenario`` and ``data``, paths of the resolved scenario and the prepared data.

    Returns:
        The experiment for roles to use; None if opening it runs the user's own code, which may run
        only in nodes and never with the template's privileges.
    """
    import torch

    torch.set_num_threads(1)
    folder, data = Path(arguments["scenario"]).parent, Path(arguments["data"])
    scenario = load_scenario(Path(arguments["scenario"]), custom_files=folder / "custom")
    if scenario.streams is not None and scenario.streams.has_broker:
        import testbed.roles.kafka  # noqa: F401 - takes a fifth of a second
    if not isinstance(scenario.model, CustomModel):
        train(scenario, folder, data)
    set_up_grpc()
    if own_files(scenario):
        return None
    opened = Experiment.open(folder, data=data)
    opened.worker(0)  # deals out the samples
    limits(opened)  # looks for the slowest link
    return opened


def load_kernels(compute: OwnCompute, data: Prepared, *, batch_size: int) -> None:
    """Compute the gradient of a batch, and discard it: the first one on a GPU takes seconds."""
    step = Step(np.arange(min(batch_size, len(data.train_labels))), 0)
    if compute.batched is None:
        compute.bound.loss_and_gradient(*batch_of(step, data))
    else:
        compute.at_once([compute.request(step, compute.parameters)])


def set_up_grpc() -> None:
    """Call a server that does not exist, and wait until gRPC's threads have ended.

    The first call of a process takes 4 ms of CPU time and 0.9 MiB more than those after it. The
    template may not have a thread when it forks.
    """
    threads, least = Path("/proc/self/task"), MessageLimits.of(1)
    before = len([*threads.iterdir()])
    for _ in range(ROUNDS):
        client = Connection(NO_SERVER, token="", limits=least, patience_seconds=0.0)
        with client, suppress(NodeError):
            client.call(methods.JOIN, b"", deadline_seconds=DEADLINE_SECONDS)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len([*threads.iterdir()]) > before and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)  # gRPC does not say when it has shut down


def train(scenario: Scenario, folder: Path, data_folder: Path) -> None:
    """Compute a few gradients and updates."""
    algorithm = scenario.algorithm
    if isinstance(algorithm, CustomAlgorithm):
        algorithm = Asgd(name="asgd")  # a substitute
    data = load(data_folder)
    network = scenario.model.build(data.image_shape, data.classes, folder=folder)
    rng = stream(scenario.seed, "warm-up")
    layout, count = network.layout, scenario.workers.count
    server = algorithm.server(layout, count, parameters=network.initial(rng), rng=rng)
    server.join(0)
    half = algorithm.worker(layout, count, rng=rng)
    half.receive(server.pull(0, 0.0), 0.0)  # with what the algorithm adds to a model
    bound = network.bind(half.parameters)
    batch = slice(0, scenario.workers.batch_size)
    images = data.train_images[batch].astype(np.float32)  # raw images are good enough
    for _ in range(ROUNDS):
        _, gradient = bound.loss_and_gradient(images, data.train_labels[batch])
        half.step(gradient, len(data.train_labels[batch]), 0.0)
