"""Choices of the Makefile: interpreter, package index, packages. Nothing is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
INDEX = "https://index.invalid/cpu"

REAL = f'exec {sys.executable} "$@"'
MISSING_ENSUREPIP = f'case "$2" in *ensurepip*) exit 1;; esac; {REAL}'
TOO_OLD = "exit 1"
# Stands in for the environment's interpreter: logs its calls; only ANSWERS decides whether the
# index answers.
RECORDING = 'echo "$@" >> calls; case "$2" in *urllib*) exit "$ANSWERS";; *nvidia*) exit 1;; esac'

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with the files that the Makefile reads, and a folder for commands."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "commands").mkdir()
    return tmp_path


def command(path: Path, script: str) -> None:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def make(
    tree: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run make in ``tree``, finding commands in ``tree/commands`` first."""
    clean = {
        key: value for key, value in os.environ.items() if "MAKE" not in key and key != "MFLAGS"
    }
    clean["PATH"] = f"{tree / 'commands'}:{clean['PATH']}"
    return subprocess.run(
        ["make", *arguments],
        cwd=tree,
        env={**clean, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_the_commands() -> None:
    lines = make(ROOT, "help").stdout.splitlines()
    names = [line.split()[1] for line in lines]
    assert {"demo", "test", "setup", "check", "run", "report", "clean"} <= set(names)
    assert len(names) == len(set(names))


def test_help_lists_targets_with_digits_and_the_studies(tree: Path) -> None:
    with (tree / "Makefile").open("a") as file:
        file.write("\nfig4: setup ## draw the fourth\n\t@true\n")
    (tree / "scenarios/paper2").mkdir(parents=True)
    (tree / "scenarios/paper2/study.yaml").write_text("name: one\nscenario: base.yaml\n")
    (tree / "scenarios/paper2/base.yaml").write_text("name: base\n")
    shown = make(tree, "help").stdout
    assert "  make fig4          draw the fourth\n" in shown
    assert "  make paper2        run and report the study in scenarios/paper2/\n" in shown


@pytest.fixture
def studies(tree: Path) -> Path:
    """The tree with two studies, and fresh stamps, so that nothing is installed."""
    command(tree / ".venv/bin/python", RECORDING)
    for stamp in (".made", ".torch", ".installed"):
        (tree / ".venv" / stamp).touch()
    (tree / "scenarios/paper2").mkdir(parents=True)
    for name in ("fig3", "study"):
        (tree / f"scenarios/paper2/{name}.yaml").write_text("name: one\nscenario: base.yaml\n")
    return tree


STUDY = "-m testbed {} scenarios/{} --runs runs --scale {}"


@pytest.mark.parametrize(
    ("target", "scale", "calls"),
    [
        ("paper2", "1", ["paper2/fig3.yaml", "paper2/study.yaml"]),
        ("paper2-fig3", "0.5", ["paper2/fig3.yaml"]),
        ("paper2-fig4", "1", ["paper2/study.yaml --only fig4"]),
    ],
)
def test_a_study_is_run_and_reported(
    studies: Path, target: str, scale: str, calls: list[str]
) -> None:
    tree = studies
    made = make(tree, target, f"SCALE={scale}", environment={"ANSWERS": "1"})
    assert made.returncode == 0, made.stderr
    called = (tree / "calls").read_text(encoding="utf-8").splitlines()
    expected = [STUDY.format(verb, one, scale) for one in calls for verb in ("sweep", "report")]
    if target == "paper2":  # all results, at the end
        both = "scenarios/paper2/fig3.yaml scenarios/paper2/study.yaml"
        expected.append(f"-m testbed report {both} --verdicts --runs runs --scale {scale}")
    assert called == expected


def test_finished_runs_of_a_study_are_kept(studies: Path) -> None:
    made = make(studies, "paper2-fig3", "KEEP=1", environment={"ANSWERS": "1"})
    assert made.returncode == 0, made.stderr
    last = (studies / "calls").read_text(encoding="utf-8").splitlines()[-1]
    assert last == "-m testbed report scenarios/paper2/fig3.yaml --keep --runs runs --scale 1"
    refused = make(studies, "paper2-fig3", "KEEP=1", "SCALE=0.1")
    assert refused.returncode == 2
    assert "not for SCALE=0.1" in refused.stderr


def test_an_old_interpreter_is_refused(tree: Path) -> None:
    command(tree / "commands/python3.9", TOO_OLD)
    result = make(tree, "setup", "PYTHON=python3.9")
    assert result.returncode == 2
    assert "Python 3.11 or newer is needed; tried: python3.9." in result.stderr
    assert "sudo apt install" in result.stderr
    assert not (tree / ".venv").exists()


def test_the_first_interpreter_that_is_new_enough_is_used(tree: Path) -> None:
    for name in ("python3", "python3.14", "python3.13"):
        command(tree / "commands" / name, TOO_OLD)
    command(tree / "commands/python3.12", MISSING_ENSUREPIP)
    result = make(tree, ".venv/.made")
    assert "python3.12 cannot make virtual environments" in result.stderr


@pytest.mark.parametrize("name", ["python3", "python3.11"])
def test_a_python_without_venv_names_the_package(tree: Path, name: str) -> None:
    command(tree / "commands" / name, MISSING_ENSUREPIP)
    result = make(tree, "demo", f"PYTHON={name}")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    package = "python3-venv" if name == "python3" else f"{version}-venv"
    assert result.returncode == 2
    assert f"sudo apt install {package}\n" in result.stderr
    assert not (tree / ".venv").exists()


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="has an NVIDIA driver")
@pytest.mark.parametrize(
    ("answers", "driver", "expected"),
    [
        ("0", "exit 9", f" --extra-index-url {INDEX}"),
        ("1", "exit 9", ""),
        ("0", "exit 0", ""),
    ],
    ids=["CPU index", "CPU index unreachable", "NVIDIA driver"],
)
def test_the_source_of_torch(tree: Path, answers: str, driver: str, expected: str) -> None:
    command(tree / ".venv/bin/python", RECORDING)
    command(tree / "commands/nvidia-smi", driver)
    result = make(tree, ".venv/.torch", f"TORCH_INDEX={INDEX}", environment={"ANSWERS": answers})
    assert result.returncode == 0, result.stderr
    installed = (tree / "calls").read_text(encoding="utf-8").splitlines()[-1]
    pip = "-m pip --disable-pip-version-check install --no-compile"
    assert installed == f"{pip} --constraint constraints.txt{expected} torch"


def write_wheel(index: Path, name: str, version: str, *, requires: str = "") -> None:
    """A wheel with nothing but its name."""
    folder = index / name
    folder.mkdir(parents=True, exist_ok=True)
    inside = f"{name}-{version}.dist-info"
    required = f"Requires-Dist: {requires}\n" if requires else ""
    with ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{inside}/METADATA", head + required)
        wheel.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{inside}/RECORD", "")
    links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in folder.glob("*.whl"))
    (folder / "index.html").write_text(links, encoding="utf-8")


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="has an NVIDIA driver")
@pytest.mark.parametrize(
    ("builds", "installed", "warned"),
    [
        ({"": "nvidia_toolkit"}, "torch-2.13.0.dist-info", True),
        ({"": "nvidia_toolkit", "+cpu": ""}, "torch-2.13.0+cpu.dist-info", False),
        ({"": ""}, "torch-2.13.0.dist-info", False),
    ],
    ids=["CUDA alone", "both", "CPU alone"],
)
@pytest.mark.slow
def test_cuda_is_downloaded_only_if_nothing_else_is_available(
    tree: Path, builds: Mapping[str, str], installed: str, warned: bool
) -> None:
    (tree / "constraints.txt").write_text("torch==2.13.0\n")
    index = tree / "index"
    write_wheel(index, "nvidia_toolkit", "1.0")
    (index / "nvidia_toolkit").rename(index / "nvidia-toolkit")
    for build, requires in builds.items():
        write_wheel(index, "torch", f"2.13.0{build}", requires=requires)
    command(tree / ".venv/bin/python", REAL)
    command(tree / "commands/nvidia-smi", "exit 9")
    environment = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": index.as_uri(),
        "PIP_TARGET": str(tree / "target"),
    }
    result = make(tree, ".venv/.torch", f"TORCH_INDEX={INDEX}", environment=environment)
    assert result.returncode == 0, result.stderr
    assert (tree / "target" / installed).exists()
    assert ("downloads gigabytes of CUDA" in result.stderr) == warned
    assert (tree / "target/nvidia_toolkit-1.0.dist-info").exists() == warned


def test_a_report_needs_a_run_before_anything_is_installed(tree: Path) -> None:
    result = make(tree, "report")
    assert result.returncode == 2
    assert "make report RUN=name" in result.stderr
    assert not (tree / ".venv").exists()


def test_installed_packages_are_not_installed_again(tree: Path) -> None:
    command(tree / ".venv/bin/python", RECORDING)
    command(tree / "commands/nvidia-smi", "exit 9")
    environment = {"ANSWERS": "1"}
    make(tree, "setup", environment=environment)
    calls = tree / "calls"
    assert "--editable .[dev]" in calls.read_text(encoding="utf-8")
    calls.unlink()
    make(tree, "setup", ".venv/.installed", environment=environment)
    assert not calls.exists()
    newer = (tree / ".venv/.installed-dev").stat().st_mtime + 1
    os.utime(tree / "pyproject.toml", (newer, newer))
    make(tree, "setup", environment=environment)
    assert "--editable .[dev]" in calls.read_text(encoding="utf-8")


def test_the_ci_script_is_valid_shell() -> None:
    result = subprocess.run(
        ["bash", "-n", ROOT / ".ci/run"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_the_marks_by_which_make_finds_files_are_in_these_files() -> None:
    """`make slow` and others collect only files that contain the mark: no fixture may add it."""
    kinds = re.compile(r"call marked,(\w+)")
    found = set(kinds.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert found == {"alone", "netem", "slow"}
    elsewhere = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("*.py")
        if not file.name.startswith("test_")
        for kind in found
        if re.search(rf"mark\.{kind}\b", file.read_text(encoding="utf-8"))
    ]
    assert elsewhere == []
