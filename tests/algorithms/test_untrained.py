"""What no optimizer changes: frozen parameters and buffers, in local training, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.algorithms import Asgd, FedAvg, FedOpt, FedProx
from testbed.algorithms.base import Reply, Stream, WorkerHalf
from testbed.algorithms.optimizers import Adam, AdamW, Optimizer, Sgd
from testbed.algorithms.parts.schedule import Clip
from testbed.payloads import Dense
from testbed.payloads.layout import Layout

LAYOUT = Layout(("w", "frozen", "mean"), ((1,), (1,), (2,)), frozenset({"frozen", "mean"}))
START = np.array([8, 16, 1, 2], np.float32)
GRADIENT = np.array([4, 0, -3, 5], np.float32)


def worker(config: FedAvg | FedProx) -> WorkerHalf[FedAvg] | WorkerHalf[FedProx]:
    half = config.worker(LAYOUT, 1, rng=np.random.default_rng(0))
    half.receive(Reply(Dense(START.copy()), version=0), 0.0)
    return half


@pytest.mark.parametrize(
    "optimizer",
    [
        Sgd(weight_decay=0.5, momentum=0.5),
        Adam(weight_decay=0.5),
        AdamW(weight_decay=0.5),
    ],
)
@pytest.mark.parametrize("kind", [FedAvg, FedProx])
def test_a_step_subtracts_their_part_of_the_gradient_as_it_is(
    optimizer: Optimizer, kind: type[FedAvg] | type[FedProx]
) -> None:
    half = worker(
        kind.model_validate(
            {
                "name": kind.__name__.lower(),
                "optimizer": optimizer,
                "proximal": 0.5,
                "learning_rate": 0.25,
                "local_epochs": 9,
                "clip": Clip(norm=0.5),
            }
        )
    )
    half.next_batch_size(Stream(batch_size=2, own=2), 0.0)
    for steps in (1, 2):
        half.step(GRADIENT.copy(), 1, 0.0)
        assert half.parameters[1:].tolist() == [16, 1 + 3 * steps, 2 - 5 * steps]
    assert half.parameters[0] < 8


def test_they_do_not_count_in_a_norm() -> None:
    """The gradient of what is trained has the norm 4, clipped to 2; η = 1/2."""
    half = worker(FedAvg(name="fedavg", learning_rate=0.5, clip=Clip(norm=2.0)))
    half.next_batch_size(Stream(batch_size=2, own=2), 0.0)
    update = half.step(GRADIENT.copy(), 2, 0.0)
    assert update is not None
    assert isinstance(update.payload, Dense)
    assert update.payload.values.tolist() == [1, 0, -3, 5]


def test_which_algorithms_average_buffers() -> None:
    assert FedAvg.AVERAGES_BUFFERS
    assert FedProx.AVERAGES_BUFFERS
    assert not FedOpt.AVERAGES_BUFFERS
    assert not Asgd.AVERAGES_BUFFERS
