"""A node that computes the gradients of all workers."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.frame.actions import Step
from testbed.errors import NodeError
from testbed.host.gpus import find_gpus
from testbed.models.batched import TOLERANCE
from testbed.roles.shared_compute import SharedCompute
from testbed.rpc.tokens import token_of
from testbed.scenario.experiment import load_model

Make = Any

ROUNDS = {
    "algorithm": "{name: bsp, learning_rate: 0.05}",
    "workers": "{count: 3, batch_size: 4}",
    "stop": "{updates: 90}",
    "evaluate": "{every: 45, images: 50}",
}
"""Rounds that wait for all: their sums do not depend on the order of arrival."""

NET = "{name: custom, file: net.py, class: net}"

DRAWING = """
from torch import nn

def net(image_shape, classes):
    hidden = (nn.Flatten(), nn.Linear(64, 8), nn.RReLU(), nn.Dropout())
    return nn.Sequential(*hidden, nn.Linear(8, classes))
"""

FAILING = """
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.score, self.steps = nn.Linear(64, classes), 0

    def forward(self, images):
        self.steps += self.training
        if self.steps == 40:
            raise ValueError("the fortieth")
        return self.score(images.flatten(1))
"""


def final(cast: Any) -> np.ndarray[Any, Any]:
    """The final model's parameters."""
    return load_model(cast.folder, "final").parameters


def children(pid: int) -> list[int]:
    """The pids of a process's children."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("model", ["digits-cnn", NET])
def test_shared_processes_compute_the_same_bits(make: Make, model: str) -> None:
    """Also those of a model that draws random numbers."""
    casts = [
        make(**ROUNDS, model=model, compute=compute)
        for compute in ("own", "{shared: {processes: 2}}")
    ]
    for cast in casts:
        cast.put_own_file("net.py", DRAWING)
        cast.start_all(3)
        cast.wait_for("done")
        assert cast.terminate() == {0}
    np.testing.assert_array_equal(*map(final, casts))
    own, shared = (cast.rows() for cast in casts)
    assert not own["queued_seconds"].any()
    assert (shared["queued_seconds"] > 0).all()
    assert (shared["queued_seconds"] < shared["compute_seconds"]).all()


def test_gradients_at_once_are_those_one_by_one_but_for_the_last_digits(make: Make) -> None:
    """At most two of three workers wait; the third gradient fills a pass, or is alone in one.

    Of the final model, after 10 rounds, on the CPU as a device: vectors are copied.
    """
    few = ROUNDS | {"stop": "{updates: 30}"}
    casts = [
        make(**few, compute=f"{{shared: {{processes: 1, vmap: {count}}}}}") for count in (1, 2)
    ]
    for cast in casts:
        cast.device = "cpu"
        cast.start_all(3)
        cast.wait_for("done")
        assert cast.terminate() == {0}
        assert not (cast.folder / "compute" / "one-by-one").exists()
    alone, together = map(final, casts)
    np.testing.assert_allclose(together, alone, rtol=0, atol=TOLERANCE * np.abs(alone).max())
    assert not np.array_equal(together, alone)


def test_a_model_that_cannot_be_batched_is_computed_one_by_one(make: Make) -> None:
    """The file says why; the bits are those of ``own``."""
    own, asked = (make(**ROUNDS, model=NET, compute=one) for one in ("own", "{shared: {vmap: 4}}"))
    for cast in (own, asked):
        cast.put_own_file("net.py", DRAWING)
        cast.start_all(3)
        cast.wait_for("done")
        assert cast.terminate() == {0}
    np.testing.assert_array_equal(final(own), final(asked))
    why = (asked.folder / "compute" / "one-by-one").read_text()
    assert why == "a model of your own computes one gradient at a time"


@pytest.mark.skipif(bool(find_gpus()), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named(make: Make) -> None:
    cast = make(compute="{shared: {gpus: 1}}")
    cast.device = "cuda"
    cast.start("compute")
    assert cast.exit_status("compute") == NodeError.exit_code
    log = cast.log("compute").read_text(encoding="utf-8")
    assert "its device is cuda, but PyTorch cannot use CUDA: " in log
    assert "`testbed doctor FILE` checks this host." in log
    assert "compute: one of its 1 processes ended with status 3." in log


@pytest.mark.parametrize(
    ("vmap", "updates"), [(1, 240), pytest.param(2, 120, marks=pytest.mark.nightly)]
)
def test_what_a_killed_process_was_computing_is_requested_again(
    make: Make, vmap: int, updates: int
) -> None:
    """The node ends as if it had been killed itself; another one takes its place."""
    compute = f"{{shared: {{processes: 2, vmap: {vmap}}}}}"
    rounds = ROUNDS | {"stop": f"{{updates: {updates}}}"}
    casts = [make(**rounds, compute=compute) for _ in range(2)]
    for cast in casts:
        cast.patience_seconds = 30.0
        cast.start_all(3)
    hit = casts[0]
    hit.wait_until(lambda: len(hit.rows()) > 10)
    first, second = children(hit.processes["compute"].pid)
    os.kill(first, signal.SIGKILL)
    assert hit.exit_status("compute") == 128 + signal.SIGKILL
    assert not Path(f"/proc/{second}").exists()
    hit.start("compute")
    for cast in casts:
        cast.wait_for("done")
        assert cast.terminate() == {0}
    np.testing.assert_array_equal(*map(final, casts))


@pytest.mark.parametrize(
    ("vmap", "updates"), [(1, 300), pytest.param(3, 120, marks=pytest.mark.nightly)]
)
def test_workers_that_are_frozen_or_killed_hold_up_no_other(
    make: Make, vmap: int, updates: int
) -> None:
    compute = f"{{shared: {{processes: 1, vmap: {vmap}}}}}"
    cast = make(workers="{count: 3}", stop=f"{{updates: {updates}}}", compute=compute)
    cast.start_all(3)
    cast.wait_until(lambda: len(cast.rows()) > 10)
    os.kill(cast.processes["w0"].pid, signal.SIGSTOP)
    os.kill(cast.processes["w1"].pid, signal.SIGKILL)
    cast.wait_for("done")
    assert (cast.rows()["worker"][-50:] == 2).all()
    os.kill(cast.processes["w0"].pid, signal.SIGCONT)
    assert cast.exit_status("w1") == -signal.SIGKILL
    assert cast.terminate() == {0}


def test_the_user_s_failing_code_ends_the_worker_it_ran_for(make: Make) -> None:
    """The fortieth forward pass is that of any worker; its process continues with the others."""
    cast = make(
        model="{name: custom, file: net.py, class: Net}",
        algorithm="{name: asgd, learning_rate: 0.01}",
        compute="{shared: {processes: 1}}",
    )
    cast.put_own_file("net.py", FAILING)
    cast.start_all(3)
    cast.wait_for("done")
    statuses = {node: cast.processes[node].exitcode for node in ("w0", "w1", "w2")}
    (lost,) = [node for node, status in statuses.items() if status is not None]
    assert statuses[lost] == 11
    log = cast.log(lost).read_text(encoding="utf-8")
    assert "Traceback" in log
    assert f"{lost}: net.py:12: ValueError: the fortieth" in log
    assert cast.terminate() == {0}


def test_only_workers_are_served(make: Make) -> None:
    """The plan has the node, also where this was chosen by ``auto``."""
    cast = make(compute="auto")
    cast.start("compute")
    path, token = cast.folder / "compute" / "compute.sock", token_of("secret", "compute")
    connect = partial(SharedCompute, path, size=17258)
    at, step = np.zeros(17258, np.float32), Step(np.arange(4))
    with closing(connect(token_of(token, "w0"), patience_seconds=30.0)) as compute:
        found = compute.gradient(step, at)
        there = compute.gradient(step, compute.parameters)  # zeros, in the shared memory itself
    assert found.loss == pytest.approx(np.log(10))  # ten classes, all equally likely
    assert there.loss == found.loss
    for stranger in (token_of(token, "w3"), token_of("secret", "w0"), "w0:"):
        with pytest.raises(NodeError) as raised:
            connect(stranger, patience_seconds=0.1)
        assert str(raised.value) == (
            f"{path}: no connection was accepted within 0.1 s. The log of the node compute shows "
            "why."
        )
