"""The node that computes the gradients of all workers, and what it changes for these."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.plan.budget import budget, count_parameters
from testbed.plan.gpus import deal_gpus
from testbed.plan.make import plan
from testbed.plan.nodes import role_of
from testbed.plan.nodes.base import Inputs
from testbed.rpc.tokens import token_of
from testbed.scenario import load_text
from testbed.scenario.compute import choose
from testbed.scenario.settings import Shared
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Gpu
from testbed.values.units import Size

TEXT = """\
name: shared
algorithm: asgd
model: adacomp-cnn
dataset: mnist
compute: {shared: {processes: 3}}
workers: {count: 20}
stop: {updates: 1}
"""


def test_only_a_scenario_that_shares_has_the_node() -> None:
    made = plan(load_text(TEXT), "r")
    node = made.node("compute")
    assert (node.uid, node.link, node.part, node.end) == (20003, None, "aside", "restarted")
    assert [one.name for one in made.nodes[:4]] == ["ps", "evaluator", "compute", "w0"]
    own = plan(load_text(TEXT.replace("{shared: {processes: 3}}", "own")), "r")
    assert "compute" not in {one.name for one in own.nodes}


CPUS = len(os.sched_getaffinity(0))


MORE = 10 * CPUS


@pytest.mark.parametrize(
    ("workers", "others", "why"),
    [
        (f"count: {MORE}", "", f"shared, because of {MORE} workers on {CPUS} CPUs"),
        (
            f"count: {MORE - 1}",
            "",
            f"own, because of {MORE - 1} workers on {CPUS} CPUs: sharing saves memory from 10 per "
            "CPU",
        ),
        (
            f"count: {MORE}, classes: {{weak: {{cpu: 0.5}}}}",
            "",
            "own, because of workers.classes.weak.cpu: 0.5",
        ),
        (f"count: {MORE}", "launch: cold", "own, because of launch: cold"),
        (f"count: {MORE}", "runtime: docker", "own, because of runtime: docker"),
    ],
)
def test_auto_shares_where_it_can_and_where_it_saves_memory(
    workers: str, others: str, why: str
) -> None:
    text = TEXT.replace("{shared: {processes: 3}}", "auto").replace("count: 20", workers)
    scenario = load_text(text + others)
    assert choose(scenario).why == why
    has_node = "compute" in {node.name for node in plan(scenario, "r").nodes}
    assert has_node == why.startswith("shared")


def test_only_auto_gives_a_reason() -> None:
    given = load_text(TEXT)
    assert choose(given) == (given.compute, "")


def test_memory() -> None:
    """A vector has 211,690 x 4 = 846,760 bytes; a worker shares two of its four with the node."""
    scenario = load_text(TEXT)
    each = budget(scenario, plan(scenario, "r"), count_parameters(scenario)).node_bytes
    assert each["worker"] == 14_000_000 + 4 * 846_760
    assert each["compute"] == 3 * (30_000_000 + 2 * 846_760)


def test_memory_of_gradients_at_once_and_of_gpus() -> None:
    """Three vectors for each gradient of a pass; a context for each process, not each worker."""
    for given, expected in (
        ("{shared: {processes: 3, vmap: 8}}", 3 * (30_000_000 + (2 + 3 * 8) * 846_760)),
        ("{shared: {gpus: 2}}", 150_000_000 + 2 * (1_030_000_000 + 2 * 846_760)),
        ("{shared: {gpus: 0.5, vmap: 8}}", 150_000_000 + 1_030_000_000 + 26 * 846_760),
    ):
        scenario = load_text(TEXT.replace("{shared: {processes: 3}}", given))
        each = budget(scenario, plan(scenario, "r"), count_parameters(scenario)).node_bytes
        assert each["compute"] == expected
        assert each["worker"] == 14_000_000 + 4 * 846_760


def test_a_gpu_needs_memory_for_one_context_whatever_the_number_of_workers() -> None:
    """As test_two_hundred_contexts_do_not_fit_on_one_gpu, with one for all 200."""
    shared = "{shared: {gpus: 0.5, vmap: 32}}"
    text = TEXT.replace("{shared: {processes: 3}}", shared).replace("count: 20", "count: 200")
    gpu = Gpu(0, "GPU-0", "Any", Size(2_000_000_000), 0)
    made = deal_gpus(plan(load_text(text), "r"), [gpu], vector=846_760)
    assert [node.name for node in made.nodes if node.dealt] == ["compute"]
    assert made.node("compute").gpu_memory == 0.25  # half of it, without the context


def test_there_is_one_process_per_gpu() -> None:
    for given, count in (("gpus: 3", 3), ("gpus: 0.25", 1), ("gpus: 2, processes: 2", 2)):
        shared = load_text(TEXT.replace("processes: 3", given)).compute
        assert isinstance(shared, Shared)
        assert shared.process_count == count


def test_a_worker_sees_the_socket_and_has_a_token_of_its_own() -> None:
    made, folder = plan(load_text(TEXT), "r"), RunFolder(Path("/runs/r"))
    inputs = Inputs(folder, Path("/data"), own_files=False, shared_compute=True)
    for name, writable in (("w3", False), ("compute", True)):
        mounts = role_of(made.node(name)).mounts(inputs)
        (socket,) = (one for one in mounts if one.source == folder.compute_sockets)
        assert (str(socket.target), socket.writable) == ("/run/testbed/compute", writable)
    worker = made.node("w3")
    arguments = role_of(worker).arguments(worker, made, secret="s")
    assert arguments == {"compute_token": token_of(token_of("s", "compute"), "w3")}
