"""Running statistics, averaged or not, with the roles as processes and simulated: the same."""

from __future__ import annotations

from typing import Any

import numpy as np

Make = Any

NET = """
from torch import nn

def net(image_shape, classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes)
    )
"""


def test_averaged_buffers_live_and_simulated(make: Make, play_both: Any) -> None:
    parts = {
        "algorithm": "{name: fedavg, learning_rate: 0.1, optimizer: {sgd: {momentum: 0.5}}}",
        "model": "{name: custom, file: net.py, class: net, buffers: averaged}",
        "workers": "{count: 3, batch_size: 100, classes: {any: {speed: 1ms}}}",
        "stop": "{updates: 12}",
        "evaluate": "{every: 6, images: 20}",
    }
    cast, virtual = make(**parts), make(**parts, runtime="simulated")
    for one in (cast, virtual):
        one.put_own_file("net.py", NET)
    final, _ = play_both(cast, virtual)
    assert final.layout.names[-2:] == ("2.running_mean", "2.running_var")
    assert set(cast.rows()["payload_up_bytes"]) == {4 * (65 * 8 + 2 * 8 + 9 * 10 + 2 * 8)}
    mean, variance = np.split(final.parameters[-16:], 2)
    assert (mean != 0).all()
    assert (variance > 0).all()


def test_layers_of_workers_live_and_simulated(make: Make, play_both: Any, simulated: Any) -> None:
    """Neither the layer nor its statistics are sent; the accuracies depend on both."""
    parts = {
        "algorithm": "{name: fedprox, learning_rate: 0.1, optimizer: {sgd: {momentum: 0.5}}}",
        "model": "{name: custom, file: net.py, class: net, buffers: fedbn}",
        "dataset": "{name: digits, partition: {name: dirichlet, alpha: 0.5}, held_out: 0.2}",
        "workers": "{count: 3, batch_size: 100, classes: {any: {speed: 1ms}}}",
        "stop": "{updates: 12}",
        "evaluate": "{every: 2, images: 20, metrics: [top1, {clients: {by: workers}}]}",
    }
    cast, virtual = make(**parts), make(**parts, runtime="simulated")
    for one in (cast, virtual):
        one.put_own_file("net.py", NET)
    final, _ = play_both(cast, virtual, simulated)
    assert final.layout.names == ("1.weight", "1.bias", "4.weight", "4.bias")
    assert set(cast.rows()["payload_up_bytes"]) == {4 * (65 * 8 + 9 * 10) + 8}
    live = [one["accuracies"] for one in cast.events("clients_evaluated")]
    assert live == [one.accuracies for one in simulated.found]
    assert len({str(one) for one in live}) == 4
