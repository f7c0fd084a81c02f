"""Every example scenario that is not a paper's runs: to its end if that is cheap, or for a while.

A new one belongs in one of these lists, or needs a test of its own. Studies are not run here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from testbed.scenario.source import shipped

ROOT = Path(__file__).parents[2] / "scenarios"
PAPERS = {"adacomp", "adsp", "adsp_full", "scadles", "slim_dp"}

WHOLE = (
    "custom/batch-norm",
    "custom/dc-asgd",
    "custom/dp-sgd",
    "custom/fedbn",
    "custom/secure-aggregation",
    "data/clients",
    "data/clients-by-workers",
    "data/own-partition",
    "data/personalised",
    "federated/devices",
    "federated/rounds",
)
CUT = (
    "adsl",
    "devices/one-by-one",
    "devices/phones",
    "devices/profiles",
    "faults",
    "first",
    "quickstart",
    "text/speakers",
    "traces/availability",
    "traces/formats",
    "traces/traces",
)
"""They run for 60 updates."""

ELSEWHERE = {
    "cross-traffic": "tests/e2e/test_programs.py",
    "data/huggingface": "tests/scenarios/test_data_files.py",
    "data/leaf": "tests/scenarios/test_data_files.py",
    "data/parquet": "tests/scenarios/test_data_files.py",
    "ddp/ddp": "tests/e2e/test_ddp.py",
    "ddp/diloco": "tests/e2e/test_ddp.py",
    "ddp/elastic": "tests/e2e/test_launchers.py",
    "ddp/tree": "tests/e2e/test_ddp.py",
    "flower/flower": "tests/e2e/test_flower.py",
    "image": "tests/e2e/test_docker_images.py",
    "mpi/mpi": "tests/e2e/test_launchers.py",
    "gpu": "tests/bench/gpu_check.py",  # on a host with one
    "sites/sites": "tests/e2e/test_sites.py",
    "traces/programs": "tests/e2e/test_absences.py",
}


def test_every_example_is_run_by_a_test() -> None:
    examples = {name for name in shipped() if name.partition("/")[0] not in PAPERS}
    assert sorted(examples) == sorted([*WHOLE, *CUT, *ELSEWHERE]), "add it to a list of this file"
    for name, test in ELSEWHERE.items():
        text = (ROOT.parent / test).read_text(encoding="utf-8")
        assert name.rpartition("/")[2] in text


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WHOLE, *CUT])
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = {} if name in WHOLE else {"stop.updates": 60, "evaluate.every": 30}
    run = testbed.simulate(name, settings=settings, runs=tmp_path)
    least = run.scenario.stop.updates or 1
    assert len(run.updates) >= least
    assert run.evaluations["loss"].notna().all()
