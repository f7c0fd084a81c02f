"""The examples of secure aggregation and DP-SGD, by hand."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from vectors import floats

from testbed.algorithms.base import Reply, Stream
from testbed.algorithms.frame.contract import examine
from testbed.errors import ScenarioError
from testbed.payloads import Dense
from testbed.payloads.layout import Layout
from testbed.scenario.load import load

CUSTOM = Path(__file__).parents[2] / "scenarios" / "custom"
LAYOUT = Layout(("weight",), ((2,),))


def module(name: str) -> ModuleType:
    import sys

    spec = spec_from_file_location(f"testbed_user_code_{name}", CUSTOM / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


SECURE, DP = module("secure_aggregation"), module("dp_sgd")


def secure(workers: int = 3) -> tuple[Any, list[Any]]:
    config = SECURE.SecureAggregation(learning_rate=0.5, local_steps=1)
    rng = np.random.default_rng(0)
    server = config.server(LAYOUT, workers, parameters=floats(8, 16), rng=rng)
    halves = [
        config.worker(LAYOUT, workers, rng=rng, index=index, shared_seed=5)
        for index in range(workers)
    ]
    for index in range(workers):
        server.join(index)
    for index, half in enumerate(halves):
        half.receive(server.pull(index, 0.0), 0.0)
    return server, halves


def test_masks_cancel_and_hide() -> None:
    """U = (1, -1), (2, 0), (6, 4): the mean (3, 1) off (8, 16), exactly in fixed point."""
    server, halves = secure()
    sent = [half.step(2 * one, 10, 0.0) for half, one in zip(halves, CHANGES, strict=True)]
    for index, update in enumerate(sent):
        assert update.payload.size == 8
        plain = (CHANGES[index] * 2**20).astype(np.int64).astype(np.uint32)
        assert (update.payload.values != plain).all()
        applied = server.push(index, update, 0.0)
    assert [one.step_scale for one in applied] == [1, 1, 1]
    assert server.parameters.tolist() == [5, 15]


CHANGES = [floats(1, -1), floats(2, 0), floats(6, 4)]


def test_a_round_that_lost_a_worker_is_dropped() -> None:
    server, halves = secure()
    for index in (0, 1):
        server.push(index, halves[index].step(2 * CHANGES[index], 10, 0.0), 0.0)
    applied = server.leave(2, 1.0)
    assert [(one.worker, one.step_scale) for one in applied] == [(0, 0), (1, 0)]
    assert server.parameters.tolist() == [8, 16]
    assert server.pull(0, 1.0).note["members"].tolist() == [0, 1]


def test_dp_sgd_clips_every_sample_by_hand() -> None:
    """q n = 2, C = 5, σ = 0: (3, 4) stays, (6, 8) is halved; a step of 0.5 (6, 8) / 2."""
    config = DP.DpSgd(learning_rate=0.5, local_steps=1, sampling=0.2, norm=5.0, noise=0.0)
    worker = config.worker(LAYOUT, 1, rng=np.random.default_rng(0))
    worker.receive(Reply(Dense(floats(8, 16)), 0), 0.0)
    assert worker.next_batch_size(Stream(batch_size=10, own=10), 0.0) == 1
    worker._lot = 2
    assert worker.step(floats(3, 4), 1, 0.0) is None
    update = worker.step(floats(6, 8), 1, 0.0)
    assert (update.samples, update.steps) == (2, 1)
    np.testing.assert_allclose(update.payload.values, [1.5, 2], rtol=1e-6)


def test_the_noise_has_the_stated_deviation() -> None:
    """σ C / (q n) = 2 x 3 / 1 of 20,000 values: 6, within four standard deviations."""
    config = DP.DpSgd(learning_rate=1.0, local_steps=1, sampling=0.1, norm=3.0, noise=2.0)
    worker = config.worker(Layout(("w",), ((20_000,),)), 1, rng=np.random.default_rng(0))
    worker.next_batch_size(Stream(batch_size=10, own=10), 0.0)
    worker._lot = 1
    update = worker.step(np.zeros(20_000, np.float32), 1, 0.0)
    assert float(update.payload.values.std()) == pytest.approx(6, rel=0.02)


def test_the_accountant_is_tighter_than_that_of_the_paper() -> None:
    """Abadi et al., section 3.2: q = 0.01, σ = 4, 10,000 steps, δ = 1e-5: ε = 1.26."""
    pytest.importorskip("opacus")
    assert 1 < module("dp_epsilon").spent(0.01, 4, 10_000, delta=1e-5) < 1.26


@pytest.mark.parametrize("config", [SECURE.SecureAggregation(), DP.DpSgd()])
def test_they_keep_the_contract(config: Any) -> None:
    assert [one for one in examine(config) if one.problem] == []


@pytest.mark.parametrize(
    ("old", "new", "flaw"),
    [
        ("NUMBER = 64", "NUMBER = 3", "NUMBER = 3, expected a number from 64"),
        ('TYPES = ("<u4",)', 'TYPES = ("O",)', "TYPES"),
        ("def flaw", "def flow", r"Masked without flaw\(\)"),
        ("PAYLOADS = (Masked,)", "PAYLOADS = (7,)", "7 in PAYLOADS"),
    ],
)
def test_an_own_payload_that_cannot_be_sent_is_refused(
    tmp_path: Path, old: str, new: str, flaw: str
) -> None:
    text = (CUSTOM / "secure_aggregation.py").read_text()
    assert old in text
    (tmp_path / "secure_aggregation.py").write_text(text.replace(old, new))
    scenario = tmp_path / "secure-aggregation.yaml"
    scenario.write_text((CUSTOM / scenario.name).read_text())
    with pytest.raises(ScenarioError, match=flaw):
        load(scenario)
