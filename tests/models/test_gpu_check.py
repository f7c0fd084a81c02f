"""The program of ``make gpu-check``, as far as it needs no GPU."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from testbed.host.gpus import find_gpus

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program's functions."""
    monkeypatch.syspath_prepend(BENCH)
    return SimpleNamespace(**runpy.run_path(str(BENCH / "gpu_check.py")))


def run(accuracy: float, *payloads: int) -> Any:
    updates = pd.DataFrame({"payload_up_bytes": payloads, "compute_seconds": [0.1] * len(payloads)})
    return SimpleNamespace(summary={"accuracy": {"best": accuracy}}, updates=updates)


def test_every_model_computes_on_a_device_what_it_computes_in_place(check: Any) -> None:
    """With the CPU as a device of torch, to which parameters are copied, to the bit."""
    errors = [check.gradient_error(*case, device="cpu") for case in check.CASES]
    assert errors == [0] * len(check.CASES)


@pytest.mark.slow
def test_gradients_at_once_are_compared_and_timed(
    check: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for case in check.CASES:
        assert list(check.at_once(*case, device="cpu", count=3)) == []
    printed = capsys.readouterr().out
    assert "of 3 at once" in printed
    assert "ms with `compute: shared`, 3 at once" in printed
    assert "not at once: " in printed  # adsp-cnn


def test_runs_are_compared_within_tolerances(check: Any) -> None:
    cpu = run(0.95, 1000, 1010)
    assert list(check.compare(cpu, run(0.935, 1014, 1016))) == []
    accuracy, payload = check.compare(cpu, run(0.91, 1200, 1010))
    assert accuracy.startswith("best accuracies [0.95, 0.91]")
    assert payload.startswith("bytes of a push [1005.0, 1105.0]")


@pytest.mark.skipif(bool(find_gpus()), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_exits_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCH / "gpu_check.py"), run_name="__main__")
    assert ended.value.code == 3
    told = "gpu-check: this machine has no NVIDIA GPU: nothing was checked.\n"
    assert capsys.readouterr().out == told
