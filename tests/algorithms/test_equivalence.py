"""With one worker, every algorithm that sends everything is plain SGD, bit by bit."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from testbed.algorithms import Algorithm
from testbed.algorithms.base import AlgorithmConfig, Samples, Stream
from testbed.algorithms.frame.actions import Arrived, Computed, Push, Step
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.stop import StopRule
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.payloads import Vector
from testbed.payloads.layout import Layout

LAYOUT = Layout(("weight", "bias"), ((40, 5), (5,)))
STEPS = 200


def gradient(at: Vector, samples: Samples) -> Vector:
    """A made-up gradient without exact zeros that depends on model and data."""
    rng = np.random.default_rng(int(samples[0]))
    noise = rng.uniform(0.1, 1, at.size) * rng.choice((-1, 1), at.size)
    total: Vector = at * np.float32(0.3) + noise.astype(np.float32)
    return total


def initial() -> Vector:
    return np.random.default_rng(8).standard_normal(LAYOUT.size).astype(np.float32)


def train(config: AlgorithmConfig, *, steps: int) -> tuple[Vector, list[int]]:
    """One worker through the frame: the final model, and the samples in order."""
    server = Server(
        config.server(LAYOUT, 1, parameters=initial(), rng=np.random.default_rng(1)),
        StopRule(updates=steps),
    )
    worker = Worker(
        half=config.worker(LAYOUT, 1, rng=np.random.default_rng(2)),
        stream=Stream(batch_size=1),
        source=Shard(np.arange(30), np.random.default_rng(3)),
        think=lambda: 0.0,
    )
    server.join(0)
    seen = []
    loop = worker.loop()
    next(loop)
    (release,) = server.pull(0, 0.0).releases
    while release.reply is not None:
        action = loop.send(Arrived(0.0, release.reply))
        assert isinstance(action, Step)
        seen.append(int(action.samples[0]))
        action = loop.send(Computed(0.0, gradient(worker.half.parameters, action.samples)))
        assert isinstance(action, Push)
        effects = server.push(0, action.sequence, update=action.update, now=0.0)
        (release,) = effects.releases
    return server.half.parameters, seen


@pytest.mark.parametrize("learning_rate", [0.1, 0.03])
@pytest.mark.parametrize(
    "options",
    [
        {"name": "asgd"},
        {"name": "comp-asgd", "ratio": 1.0},
        {"name": "comp-asgd", "ratio": 1.0, "scope": "per_tensor"},
        {"name": "comp-asgd", "ratio": 1.0, "select": "random"},
        {"name": "adacomp", "ratio": 1.0},
        {"name": "bsp"},
        {"name": "ssp", "slack": 1},
        {"name": "tap"},
        {"name": "plump-dp"},
        {"name": "slim-dp", "alpha": 1.0, "epsilon": 0.0},
        {"name": "fixed-adacomm", "local_steps": 1},
        {"name": "adacomm", "local_steps": 1},
        {"name": "fedavg"},
        {"name": "fedbuff", "local_steps": 1, "buffer_size": 1},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_one_worker_is_plain_sgd(options: dict[str, object], learning_rate: float) -> None:
    config = TypeAdapter[AlgorithmConfig](Algorithm).validate_python(
        {**options, "learning_rate": learning_rate}
    )
    found, seen = train(config, steps=STEPS)
    expected = initial()
    for sample in seen:
        expected -= np.float32(learning_rate) * gradient(expected, np.array([sample]))
    assert len(seen) == STEPS
    assert found.tobytes() == expected.tobytes()
