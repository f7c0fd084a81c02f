"""The workflows of GitHub Actions and the citation, against their schemas. GitHub runs them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
    ],
    ids=["workflows", "citation"],
)
def test_a_file_fits_its_schema(schema: str, files: list[Path]) -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        schema,
        *map(str, files),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_of_workflows_finds_nothing() -> None:
    command = (Path(sys.executable).with_name("zizmor"), "--offline", "--quiet", ".github")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_targets_of_the_workflows_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    used = set()
    for file in WORKFLOWS:
        for job in yaml.safe_load(file.read_text("utf-8"))["jobs"].values():
            for step in job["steps"]:
                for words in re.findall(r"^make (.*)$", step.get("run", ""), re.MULTILINE):
                    used |= {word for word in words.split() if "=" not in word}
    assert {"setup", "test", "docs", "images"} <= used <= targets


def test_the_tests_run_on_every_python_that_is_supported() -> None:
    jobs = {
        name: job
        for file in WORKFLOWS
        for name, job in yaml.safe_load(file.read_text("utf-8"))["jobs"].items()
    }
    matrix = jobs["tests"]["strategy"]["matrix"]["python"]
    assert jobs["user"]["strategy"]["matrix"]["python"] == matrix
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = re.compile(r"Programming Language :: Python :: (3\.\d+)$")
    assert [one[1] for one in map(version.match, project["classifiers"]) if one] == matrix
    known = re.search(
        r"^PYTHONS := python3 (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    assert known is not None
    assert {f"python{one}" for one in matrix} == set(known[1].split())
