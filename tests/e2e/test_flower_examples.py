"""Flower's own examples, unmodified, on four kinds of links, as docs/flower.md prepares them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.nightly]
PREPARE = Path(__file__).with_name("hugging_face_cache.py")
TEMPLATES, FLWR = "flwr==1.22.0", "flwr==1.42.0"
"""The version whose `flwr new` contains the examples, and the one that runs them."""

VERDICT = 6
LONG = 1800.0
EXAMPLES = {"PyTorch": "eval_acc", "sklearn": "accuracy", "NumPy": "random_metric"}
"""Names of templates, and a metric that each logs."""

OLDER = ("flwr-datasets[vision]==0.5.0",)
"""The example for scikit-learn needs `datasets` 3, which newer ones exclude."""

PROFILES = ("fibre-eu", "lte-uk", "3g-uk", "adsl-eu")

LINES = (
    "import os, shutil; c = os.environ.get('HF_DATASETS_CACHE'); c and not os.path.exists(c) and "
    "shutil.copytree(os.environ['HF_PREPARED'], c, copy_function=os.symlink)\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples, an environment for each (PyTorch with CUDA: 6 GB), and a cache of their data.

    It is $TESTBED_FLOWER_EXAMPLES, if given: what is prepared there stays for later tests.
    """
    given = os.environ.get("TESTBED_FLOWER_EXAMPLES")
    folder = Path(given) if given else tmp_path_factory.mktemp("flower") / "examples"
    if (folder / "complete").exists():
        return folder
    if (data := os.environ.get("TESTBED_DATA")) is None:
        pytest.skip("needs MNIST and CIFAR-10: TESTBED_DATA")
    folder.mkdir()  # one that exists is not complete: remove it
    _environment(folder / "old", TEMPLATES)
    for template in EXAMPLES:
        name = f"example-{template.lower()}"  # without a prefix, pip would take one for NumPy
        new = [folder / "old/bin/flwr", "new", name, "--framework", template]
        subprocess.run([*new, "--username", "testbed"], check=True, cwd=folder)
        packages = OLDER if template == "sklearn" else ()
        environment = folder / f"env-{name}"
        _environment(environment, FLWR, *packages, str(folder / name))
        (site,) = environment.glob("lib/python*/site-packages")
        (site / "prepared.pth").write_text(LINES)
    python = folder / "env-example-pytorch/bin/python"
    subprocess.run([python, PREPARE, data, folder / "hf/datasets"], check=True)
    (folder / "complete").touch()
    return folder


def _environment(folder: Path, *packages: str) -> None:
    """Make an environment with these packages; skip the test where there are none."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", *packages]
    if subprocess.run(pip, check=False).returncode:
        pytest.skip(f"needs a package index with {', '.join(packages)}")


@pytest.mark.parametrize("template", EXAMPLES)
def test_an_example_runs_unmodified(bed: Any, folder: Path, template: str) -> None:
    """Two rounds of training and evaluation by all four SuperNodes, and their metrics."""
    metric, name = EXAMPLES[template], f"example-{template.lower()}"
    home = "/run/testbed/home"
    settings = {
        **{"rounds": 2, "folders": [str(folder / "hf")], "scratch": "64MiB"},
        "environment": {
            **{"HF_PREPARED": f"{folder}/hf/datasets", "HF_DATASETS_CACHE": f"{home}/hf"},
            **{"HF_HOME": f"{home}/hub", "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"},
            "OMP_NUM_THREADS": "1",
        },
        "metrics": {metric: "higher"},
        "classes": {one: {"count": 1, "link": {"profile": one}} for one in PROFILES},
    }
    options = ["--flower", str(folder / name), "--devices", str(len(PROFILES))]
    options += ["--python", str(folder / f"env-{name}"), "--set", "network.missing=warn"]
    for key, value in settings.items():
        options += ["--set", f"workload.flower.{key}={json.dumps(value)}"]
    up = bed.start("up", "--name", bed.new_name(), *options)
    done = up.end(within=LONG)
    assert done.status in {0, VERDICT}, done.err + done.out
    assert up.folder.state().reason == "all final programs have ended with status 0"
    with (up.folder.path / "metrics.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    values = [(row["metric"], float(row["value"])) for row in rows]
    assert [value for name, value in values if name == "round"] == [1.0, 2.0]
    assert any(name == metric for name, _ in values)
    failures = [value for name, value in values if name == "failures"]
    assert failures == [0.0] * 4  # of training and of evaluation, in two rounds
    assert bed.remains(up.name) == []
