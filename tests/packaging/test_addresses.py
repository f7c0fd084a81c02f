"""A release's page on PyPI: links and pictures of README.md, and the URLs of the project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
URL = "https://git.example/team/edge-testbed"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    command = (sys.executable, ROOT / ".github/addresses.py", URL, "v0.2.0")
    subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path


def test_every_link_and_picture_of_the_page_exists_in_the_repository(release: Path) -> None:
    page = (release / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)", page)
    pictures = re.findall(r'src(?:set)?="([^"]+)"', page)
    assert len(links) > 40 and len(pictures) == 4
    for start, found in (("blob", links), ("raw", pictures)):
        assert [one for one in found if "://" not in one] == []
        ours = [one for one in found if one.startswith(URL)]
        paths = [one.removeprefix(f"{URL}/{start}/v0.2.0/") for one in ours]
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_project_has_urls_and_is_otherwise_unchanged(release: Path) -> None:
    project = tomllib.loads((release / "pyproject.toml").read_text("utf-8"))
    urls = project["project"].pop("urls")
    assert urls.keys() == {"Repository", "Documentation", "Changelog", "Issues"}
    assert {url for url in urls.values() if not url.startswith(URL)} == set()
    assert project == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
