"""The packages are complete: installed anywhere, testbed does without the clone."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import testbed

run = testbed.simulate({
    "name": "wheel",
    "algorithm": {"custom": {"file": "mine.py", "class": "DcAsgd"}},
    "model": "digits-cnn",
    "dataset": "digits",
    "workers": {"count": 2, "classes": {"fast": {"speed": "20ms"}}},
    "stop": {"updates": 20},
}, name="wheel")
print(testbed.__file__, len(run.updates), run.verdict.valid)
"""


def execute(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_folder(tmp_path: Path, wheel: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "folder"
    folder.mkdir()
    pip = ("-m", "pip", "--disable-pip-version-check")
    execute(*pip, "install", "--no-deps", "--target", site, wheel, folder=tmp_path)
    shutil.copy(ROOT / "scenarios" / "custom" / "dc_asgd.py", folder / "mine.py")
    own = {"PYTHONPATH": str(site), "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    out = execute("-c", PROGRAM, folder=folder, **own)
    assert out == f"{site / 'testbed' / '__init__.py'} 20 True\n"
    listed = execute("-P", "-m", "testbed", "ps", "--all", "--json", folder=folder, **own)
    assert '"run": "wheel"' in listed
    assert (site / "testbed" / "py.typed").exists()


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment with the wheel, which shares the dependencies of this one."""
    folder = tmp_path_factory.mktemp("prefix")
    venv.create(folder, with_pip=False)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    python = str(folder / "bin" / "python")
    subprocess.run((*pip, "--python", python, "install", "--no-deps", wheel), check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder


@pytest.fixture
def installed(prefix: Path, tmp_path: Path) -> Callable[..., str]:
    """Executes the installed command in an empty folder, which is its user's home as well."""
    none = tmp_path / "bin"
    none.mkdir()
    (none / "docker").write_text("#!/bin/sh\nexit 1\n")  # an engine is another test's
    (none / "docker").chmod(0o755)
    shutil.copy(none / "docker", none / "docker-compose")
    folder = tmp_path / "work"
    folder.mkdir()

    def testbed(*words: str, **variables: str) -> str:
        done = subprocess.run(
            (prefix / "bin" / "testbed", *words),
            cwd=folder,
            env={"PATH": f"{none}:/usr/bin:/bin", "HOME": str(folder), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return testbed


@pytest.mark.slow
def test_scenarios_need_no_clone(
    installed: Callable[..., str], prefix: Path, tmp_path: Path
) -> None:
    assert "testbed up quickstart" in installed("--help")
    assert installed("validate", "quickstart", "adacomp/paper").count("ok  ") == 2
    installed("init", "mine")
    schema = prefix / "share" / "edge-testbed" / "scenarios" / "schema.json"
    mine = (tmp_path / "work" / "mine.yaml").read_text(encoding="utf-8")
    assert f"$schema={schema}\n" in mine
    assert schema.is_file()
    settings = ("--runtime", "simulated", "--set", "stop.updates=40")
    assert "finished: 40 updates applied" in installed("up", "mine.yaml", *settings)


@pytest.mark.slow
def test_a_study_needs_no_clone(installed: Callable[..., str], tmp_path: Path) -> None:
    study = ("federated/study", "--only", "adacomp", "--scale", "0.02")
    swept = installed("sweep", *study)
    assert "1 of 1 runs exist, 0 of them not valid" in swept
    assert "testbed report federated/study --runs runs --scale 0.02" in swept
    assert "### results" in installed("report", *study, "--figures", "figures")
    figures = {file.name for file in (tmp_path / "work" / "figures").glob("*.svg")}
    assert figures == {"time.svg", "bytes.svg", "steps.svg"}


@pytest.mark.slow
def test_dashboards_need_no_clone(installed: Callable[..., str]) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus: apt install prometheus")
    settings = ("--runtime", "simulated", "--set", "stop.updates=40")
    installed("up", "quickstart", "--name", "first", *settings)
    installed("dashboards", "add", "first", "--at", yesterday())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shown = installed("dashboards", "up", TESTBED_PROMETHEUS_PORT=port)
    assert "ended Prometheus" in installed("dashboards", "down")
    assert f"http://127.0.0.1:{port} (the installed one)" in shown


def yesterday() -> str:
    return f"{datetime.now() - timedelta(days=1):%Y-%m-%dT%H:%M}"


@pytest.mark.slow
def test_the_containers_of_the_dashboards_find_their_files(prefix: Path) -> None:
    folder = prefix / "share" / "edge-testbed" / "compose"
    services = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))["services"]
    volumes = [volume for one in services.values() for volume in one["volumes"]]
    files = [folder / volume.split(":")[0] for volume in volumes if volume.startswith("./")]
    assert len(files) == 4
    assert [file for file in files if not file.exists()] == []
    for name in ("dashboards", "provisioning"):
        clone = {file.name for file in (ROOT / "compose/grafana" / name).rglob("*.*")}
        assert {file.name for file in (folder / "grafana" / name).rglob("*.*")} == clone


@pytest.mark.slow
def test_the_source_package_has_what_the_wheel_is_made_of(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns(".venv", ".git", ".*_cache", "__pycache__", "*.egg-info")
    copy = shutil.copytree(ROOT, tmp_path / "sources", ignore=left_out)
    build = "from setuptools import build_meta as b; b.build_sdist('..')"
    execute("-c", build, folder=copy)
    (packed,) = tmp_path.glob("edge_testbed-*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "constraints.txt"} <= names
    assert {"compose/dashboards", "docker/Dockerfile", "scenarios/quickstart.yaml"} <= names
    assert {"testbed/py.typed", "testbed/rpc/_pb/ps_pb2.pyi"} <= names
    assert {name for name in names if re.match(r"tests|docs|runs|\..|.*/results", name)} == set()
