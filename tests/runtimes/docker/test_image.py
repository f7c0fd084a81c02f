"""Contents of the image, built from the current code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import __version__
from testbed.errors import HostError
from testbed.runtimes.docker.build import Builder
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.image import (
    DEPENDENCIES,
    NODES,
    check_image,
    current_images,
    image_name,
    image_sources,
    list_images,
    part_name,
    source_hash,
)

LARGEST_BYTES = 1_200_000_000
PACKAGE_BYTES = 20_000_000
INTERPRETER = "/opt/testbed/bin/python"
STRANGER = "4711:4711"
ROOT = "0:0"

LOOK_INSIDE = """
import importlib, importlib.util, json, pkgutil, shutil, sys
from os.path import exists
import testbed
CONTROLLERS = {"api", "cli", "studies", "run", "metrics", "reports", "__main__", "docker"}
imported = []
for module in pkgutil.walk_packages(testbed.__path__, "testbed."):
    if not CONTROLLERS & set(module.name.split(".")):
        importlib.import_module(module.name)
        imported.append(module.name)
import grpc, numpy, pyroute2, torch, yaml
layer = torch.nn.Conv2d(1, 2, 3)
layer(torch.ones(1, 1, 4, 4)).sum().backward()
modules = [m for m in sys.modules.values() if isinstance(getattr(m, "__cached__", None), str)]
print(json.dumps({
    "imported": imported,
    "interpreter": sys.executable,
    "gradient": layer.weight.grad.sum().item(),
    "cuda": torch.version.cuda,
    "present": [name for name in ABSENT if importlib.util.find_spec(name)],
    "commands": [name for name in COMMANDS if shutil.which(name)],
    "not compiled": [module.__name__ for module in modules if not exists(module.__cached__)],
}))
"""
ABSENT = [
    *("docker", "matplotlib", "pandas", "pip", "plotly", "pooch"),
    *("prometheus_client", "pyarrow", "scipy", "sklearn"),
]
COMMANDS = ["cc", "c++", "gcc", "g++", "clang", "make", "tini", "iperf3", "ping", "tail", "sh"]
LEFTOVERS = r"""
find / -xdev \( -name '*.whl' -o -name '*.a' -path '*-packages*' -o -path '/root/.cache/*' \
    -o -path '/tmp/*' -o -path '/build*' -o -path '/wheels*' \)
find /opt/testbed ! -type l \( ! -perm -004 -o -type d ! -perm -005 \)
"""

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    api = connect()
    yield api
    api.close()


@pytest.fixture(scope="module")
def image(engine: Any) -> str:
    """The image of the current code; its layer of dependencies is built if missing."""
    return Builder(engine, offline=False, say=print, log=print).nodes()


def run(engine: Any, image: str, *command: str, user: str = STRANGER) -> str:
    """The output of a command in a container like a node's, with no writable folder."""
    container = engine.create_container(
        image,
        list(command),
        user=user,
        network_disabled=True,
        host_config=engine.create_host_config(
            read_only=True,
            network_mode="none",
            cap_drop=["ALL"],
            cap_add=["DAC_READ_SEARCH"] if user == ROOT else [],
        ),
    )["Id"]
    try:
        engine.start(container)
        status = engine.wait(container)["StatusCode"]
        printed = engine.logs(container).decode()
    finally:
        engine.remove_container(container, force=True)
    assert status == 0, printed
    return str(printed)


def test_the_image_is_labelled_with_its_sources(engine: Any, image: str) -> None:
    assert image == image_name()
    labels = engine.inspect_image(image)["Config"]["Labels"]
    assert labels["org.edge-testbed.source"] == source_hash()
    assert labels["org.edge-testbed.version"] == __version__
    assert check_image(engine) == check_image(engine, image) == image
    (listed,) = (one for one in list_images(engine) if one.name == image)
    assert (listed.part, listed.source) == (NODES, source_hash())
    is_current = current_images()
    assert {one.part for one in list_images(engine) if is_current(one)} >= {NODES, "dependencies"}


def test_an_image_shares_all_but_the_package_with_others(engine: Any, image: str) -> None:
    parts = (image, part_name(DEPENDENCIES, image_sources()))
    mine, theirs = (engine.inspect_image(name) for name in parts)
    layers = theirs["RootFS"]["Layers"]
    assert mine["RootFS"]["Layers"][: len(layers)] == layers
    assert mine["Size"] - theirs["Size"] <= PACKAGE_BYTES


def test_the_image_is_no_larger_than_documented(engine: Any, image: str) -> None:
    assert engine.inspect_image(image)["Size"] <= LARGEST_BYTES


def test_the_image_has_what_nodes_and_agent_import_and_no_more(engine: Any, image: str) -> None:
    script = f"ABSENT, COMMANDS = {ABSENT}, {COMMANDS}\n{LOOK_INSIDE}"
    found = json.loads(run(engine, image, "python", "-P", "-c", script))
    assert {"testbed.roles.worker", "testbed.runtimes.agent.init"} <= set(found.pop("imported"))
    assert found == {
        "interpreter": INTERPRETER,
        "gradient": 72.0,  # 2 channels of 3 x 3 weights, each seen by 2 x 2 ones
        "cuda": None,
        "present": [],
        "commands": ["tini", "iperf3", "ping", "tail", "sh"],
        "not compiled": [],
    }


def test_a_node_can_execute_ping(engine: Any, image: str) -> None:
    assert run(engine, image, "ping", "-V").startswith("ping from iputils")


def test_the_image_has_no_build_files_and_is_readable_by_every_user(
    engine: Any, image: str
) -> None:
    assert run(engine, image, "sh", "-c", LEFTOVERS, user=ROOT) == ""


def test_the_first_process_is_tini(engine: Any, image: str) -> None:
    assert run(engine, image, "cat", "/proc/1/comm") == "tini\n"


def test_an_existing_image_is_not_built_again(engine: Any, image: str) -> None:
    said: list[str] = []
    assert Builder(engine, offline=False, say=said.append, log=said.append).nodes() == image
    assert said == [f"{image} exists already"]


def test_an_image_of_other_code_is_refused(
    engine: Any, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in image_sources().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "testbed/values/units.py").write_text("changed = True\n")
    monkeypatch.setattr("testbed.__file__", str(tmp_path / "testbed/__init__.py"))
    with pytest.raises(HostError, match="which is of this version of testbed") as refusal:
        check_image(engine)
    assert refusal.value.hint == "Try: testbed image build"
    assert image in refusal.value.message
    with pytest.raises(HostError, match=f"The image {image} contains testbed {__version__} "):
        check_image(engine, image)
