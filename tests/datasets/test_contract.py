"""The contract of every data set. One missing in the union, or without an example here, fails."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter, ValidationError

import testbed.datasets
from testbed.datasets import Dataset, DatasetConfig, Prepared, load
from testbed.datasets.prepared import PARTS, USERS
from testbed.values.samples import NOT_COUNTED

DATA = """
import numpy as np

def load():
    images = np.arange(5 * 2 * 3 * 3).reshape(5, 2, 3, 3) % 7
    return images, [0, 1, 2, 0, 1], images[:2], [2, 2]
"""

LEAF = """{"users": ["a", "b"], "num_samples": [2, 1], "user_data":
 {"a": {"x": [[1, 2], [3, 4]], "y": [0, 1]}, "b": {"x": [[5, 6]], "y": [2]}}}"""

EXAMPLES: dict[str, Any] = {
    "cifar10": "cifar10",
    "custom": {"custom": {"file": "./data.py", "class": "load"}},
    "digits": "digits",
    "fashion-mnist": "fashion-mnist",
    "huggingface": {"huggingface": {"folder": ".", "test_share": 0.3, "user": "u"}},
    "leaf": {"leaf": {"folder": "."}},
    "made-text": "made-text",
    "mnist": "mnist",
    "mnist-pair-100": "mnist-pair-100",
    "parquet": {"parquet": {"folder": "."}},
    "substitute-chiller": "substitute-chiller",
    "substitute-rail": "substitute-rail",
    "text": {"text": {"file": "./play.txt", "length": 8, "test": 0.5}},
}
DOWNLOADED = {"cifar10", "fashion-mnist", "mnist"}
LARGE = {name: [pytest.mark.slow] for name in ("cifar10", "mnist-pair-100")}


def members() -> dict[str, type[DatasetConfig]]:
    """The union's classes by name."""
    union = get_args(get_args(Dataset)[0])
    return {get_args(config.model_fields["name"].annotation)[0]: config for config in union}


def write_files(folder: Path) -> None:
    """Write the files of the examples that read the user's own."""
    (folder / "data.py").write_text(DATA, encoding="utf-8")
    table = pa.table({"x": [[1, 2]] * 6, "y": [0, 1, 2, 0, 1, 2], "u": ["a", "b"] * 3})
    with pa.ipc.new_stream(str(folder / "data.arrow"), table.schema) as stream:
        stream.write_table(table)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    for half in ("train", "test"):
        (folder / half).mkdir()
        (folder / half / "all_data.json").write_text(LEAF, encoding="utf-8")
        pq.write_table(table, folder / half / "part-0.parquet")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=LARGE.get(name, [])) for name in sorted(EXAMPLES)],
)
def folder(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    testbed_data: dict[str, str],
) -> Path:
    needed = "mnist" if request.param == "mnist-pair-100" else request.param
    given = Path(testbed_data.get("TESTBED_DATA", "/nowhere"), needed)
    if needed in DOWNLOADED and not given.is_dir():
        pytest.skip(f"needs {needed}: set TESTBED_DATA to a folder that has it")
    beside = tmp_path_factory.mktemp("beside")
    write_files(beside)
    (beside / "play.txt").write_text("to be, or not to be\n" * 4, encoding="utf-8")
    config = TypeAdapter(Dataset).validate_python(EXAMPLES[request.param])
    cache = tmp_path_factory.mktemp("cache")
    prepared = config.prepare(cache, environment=testbed_data, folder=beside)
    again = config.prepare(cache, environment=testbed_data, folder=beside)
    assert again == prepared
    return Path(prepared)


@pytest.fixture(scope="module")
def data(folder: Path) -> Prepared:
    return load(folder)


def test_every_data_set_is_in_the_union() -> None:
    listed = set(members().values())
    for info in pkgutil.iter_modules(testbed.datasets.__path__):
        module = importlib.import_module(f"testbed.datasets.{info.name}")
        for name, found in inspect.getmembers(module, inspect.isclass):
            if issubclass(found, DatasetConfig) and found.__module__ == module.__name__:
                line = f"add {name} to the union Dataset in testbed/datasets/__init__.py"
                assert found in listed or inspect.isabstract(found), line


def test_every_data_set_has_an_example() -> None:
    assert members()
    for name in members():
        assert name in EXAMPLES, f'add "{name}" to EXAMPLES in tests/datasets/test_contract.py'


def test_names_equal_those_of_the_files() -> None:
    for name, config in members().items():
        assert config.__module__ == f"testbed.datasets.{name.replace('-', '_')}"


def test_configs_import_nothing_heavy() -> None:
    heavy = "{'torch', 'sklearn', 'pooch', 'requests', 'pyarrow', 'PIL'}"
    code = f"import sys, testbed.datasets; sys.exit(len({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_config_survives_a_round_trip(name: str) -> None:
    adapter: TypeAdapter[DatasetConfig] = TypeAdapter(Dataset)
    config = adapter.validate_python(EXAMPLES[name])
    assert config.fraction == 1
    assert config.partition.name == "iid"
    written = config.model_dump(mode="json", by_alias=True)
    assert adapter.validate_python(written) == config


@pytest.mark.parametrize(
    "options",
    [
        {"fraction": 0},
        {"fraction": 1.1},
        {"fraction": float("nan")},
        {"fraction": "0.5"},
        {"partition": "by-label"},
        {"partition": {"by_label": {"labels_per_worker": 0}}},
        {"partition": {"by_size": {"exponent": -1}}},
        {"partition": {"dirichlet": {"alpha": 0}}},
        {"partition": {"iid": {"alpha": 1}}},
        {"folder": "x"},
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Dataset).validate_python({"name": "digits", **options})


def test_arrays_are_consistent(data: Prepared) -> None:
    for images, labels in (
        (data.train_images, data.train_labels),
        (data.test_images, data.test_labels),
    ):
        assert images.dtype == (np.int32 if data.inputs == "tokens" else np.float32)
        assert images.shape == (len(labels), *data.image_shape)
        assert np.isfinite(images).all()
        if not data.classes:
            assert labels.dtype == np.float32
            continue
        assert labels.dtype == np.int64
        if data.targets == "tokens":
            assert labels.shape == images.shape
            assert images.max() < data.classes
            assert (labels != NOT_COUNTED).any(axis=1).all()
        counted = labels[labels != NOT_COUNTED]
        assert data.targets == "tokens" or len(counted) == len(labels)
        assert counted.min() >= 0
        assert counted.max() < data.classes
    if data.targets != "numbers":
        found = set(data.train_labels.ravel().tolist()) - {NOT_COUNTED}
        assert found == set(range(data.classes))


def test_the_announced_shape_is_correct(data: Prepared, folder: Path) -> None:
    name = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["source"]["name"]
    config = members()[name]
    known = config.images
    assert known is None or known == (data.image_shape, data.classes)
    assert config.input_type in (None, data.inputs)
    assert config.targets in (None, data.targets)


def test_arrays_are_read_only(data: Prepared) -> None:
    assert not data.train_images.flags.writeable
    assert type(data.train_images) is np.ndarray


def test_every_user_can_read_the_folder(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    names = {path.name for path in folder.iterdir()}
    known = (*PARTS, USERS) if load(folder).train_users is not None else PARTS
    assert names == {"meta.json", *(f"{part}.npy" for part in known)}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_the_record_describes_the_data_set(folder: Path, data: Prepared) -> None:
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    assert meta["format"] == 1
    assert meta["classes"] == data.classes
    assert tuple(meta["image_shape"]) == data.image_shape
    assert meta["source"]["name"] in EXAMPLES
    assert all(len(meta["sha256"][f"{part}.npy"]) == 64 for part in PARTS)
