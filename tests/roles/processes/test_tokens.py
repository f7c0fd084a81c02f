"""Language models, with the roles as processes and simulated: the same to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.datasets import MadeText

Make = Any


PERSONALISED = "{clients: {fine_tune: {learning_rate: 0.1}}}"


@pytest.mark.parametrize(
    "model",
    [
        "{name: char-lstm, embedding: 4, units: 8, layers: 1}",
        "{name: gpt, layers: 1, heads: 2, width: 8}",
    ],
)
def test_tokens_live_and_simulated(make: Make, play_both: Any, tmp_path: Path, model: str) -> None:
    """Thirty speakers and three workers: ten each. Shorter lines end in padding."""
    parts = {
        "algorithm": "{name: fedavg, learning_rate: 0.5, local_epochs: 1}",
        "model": model,
        "dataset": "{name: made-text, partition: by_user, held_out: 0.2}",
        "workers": "{count: 3, batch_size: 8, classes: {any: {speed: 1ms}}}",
        "stop": "{updates: 6}",
        "evaluate": f"{{every: 3, images: 20, metrics: [perplexity, top1, {PERSONALISED}]}}",
    }
    cast, virtual = make(**parts), make(**parts, runtime="simulated")
    for one in (cast, virtual):
        prepared = MadeText(name="made-text").prepare(tmp_path, environment={}, folder=tmp_path)
        (one.folder / "data").unlink()
        (one.folder / "data").symlink_to(prepared)
    play_both(cast, virtual)
    first, *_, last = cast.events("evaluated")
    assert last["perplexity"] == pytest.approx(np.exp(last["loss"]))
    assert last["perplexity"] < first["perplexity"] < 40
    assert 0 < last["clients_mean"] <= 1
