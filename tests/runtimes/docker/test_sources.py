"""The contents of the image, and the inputs of its hash."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from testbed.runtimes.docker import image
from testbed.runtimes.docker.image import DEPENDENCIES, image_name, part_name, source_hash

ROOT = Path(__file__).parents[3]
CONTROLLERS_ALONE = {
    "click",
    "docker",
    "jinja2",
    "matplotlib",
    "pandas",
    "pillow",
    "plotly",
    "prometheus-client",
    "pooch",
    "pyarrow",
    "rich",
    "scikit-learn",
    "scipy",
}
"""What the package requires and the image leaves out."""

IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
for absent in sys.argv[1:]:
    sys.modules[absent] = None
import testbed
CONTROLLERS = {"api", "cli", "run", "metrics", "reports", "studies", "__main__"}
for module in pkgutil.walk_packages(testbed.__path__, "testbed."):
    if not CONTROLLERS & set(module.name.split(".")):
        importlib.import_module(module.name)
print("imported")
"""


def requirement_name(requirement: str) -> str:
    return re.split(r"[<>=~! ]", requirement)[0]


def in_image() -> set[str]:
    lines = (ROOT / image.REQUIREMENTS).read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def in_project() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["dependencies"])


def test_the_image_has_exactly_the_requirements_of_the_project() -> None:
    assert in_image() <= in_project()


def test_the_image_omits_packages_that_only_the_controller_imports() -> None:
    assert {requirement_name(one) for one in in_project() - in_image()} == CONTROLLERS_ALONE


@pytest.mark.slow
def test_nodes_and_agent_import_nothing_that_the_image_omits() -> None:
    modules = {"scikit-learn": "sklearn", "prometheus-client": "prometheus_client"}
    absent = {modules.get(name, name) for name in CONTROLLERS_ALONE}
    result = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT_EVERYTHING, *sorted(absent)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("imported\n", "")


def test_the_sources_are_the_code_and_the_recipe_and_nothing_else() -> None:
    names = set(image.image_sources())
    code = {str(file.relative_to(ROOT)) for file in (ROOT / "testbed").rglob("*.py")}
    profiles = {"testbed/scenario/data/devices.yaml", "testbed/scenario/data/links.yaml"}
    assert names == code | profiles | set(image.RECIPE)
    assert "testbed/rpc/_pb/ps_pb2.py" in names
    in_folder = {f"docker/{file.name}" for file in (ROOT / "docker").iterdir()}
    assert in_folder == {name for name in image.RECIPE if name.startswith("docker/")}


def test_the_hash_depends_on_names_and_contents() -> None:
    # sha256(b"a\x001\0x" + b"b\x000\0") begins with these digits
    assert image.hash_sources({"a": b"x", "b": b""}) == "67d356ddc473"
    assert image.hash_sources({"a": b"", "b": b"x"}) != image.hash_sources({"a": b"x", "b": b""})
    assert image.hash_sources({"ab": b"x"}) != image.hash_sources({"a": b"bx"})


def test_the_dependencies_depend_on_no_code() -> None:
    found = image.image_sources()
    changed = {**found, "testbed/values/units.py": b"", "pyproject.toml": b""}
    assert part_name(DEPENDENCIES, changed) == part_name(DEPENDENCIES, found)
    assert image.hash_sources(changed) != image.hash_sources(found)
    changed["constraints.txt"] = b"torch==2.12.0\n"
    assert part_name(DEPENDENCIES, changed) != part_name(DEPENDENCIES, found)


def test_the_archive_is_the_same_for_every_builder_and_readable_by_every_user() -> None:
    files = {"docker/Dockerfile": b"FROM scratch\n", "testbed/__init__.py": b""}
    packed = image.pack(files)
    assert packed.getvalue() == image.pack(files).getvalue()
    with tarfile.open(fileobj=packed) as archive:
        assert {entry.name: entry.size for entry in archive} == {
            "docker/Dockerfile": 13,
            "testbed/__init__.py": 0,
        }
        assert {(entry.mode, entry.uid, entry.mtime) for entry in archive} == {(0o644, 0, 0)}


def test_the_name_has_version_and_hash() -> None:
    assert image_name(source="0123456789ab") == "edge-testbed:0.2.0-0123456789ab"
    assert image_name(gpu=True, source="0123456789ab") == "edge-testbed:0.2.0-0123456789ab-gpu"
    assert image_name().endswith(source_hash())


@pytest.mark.slow
def test_an_installed_wheel_and_the_clone_have_the_same_hash(tmp_path: Path, wheel: Path) -> None:
    prefix = tmp_path / "prefix"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed"]
    subprocess.run([*pip, "--prefix", prefix, wheel], check=True)
    (packages,) = prefix.glob("lib/python*/site-packages")
    script = "import testbed.runtimes.docker.image as i; print(i.__file__, i.source_hash())"
    printed = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "PYTHONPATH": str(packages)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert printed[0].startswith(str(prefix))
    assert printed[1] == image.hash_sources(image.image_sources())
