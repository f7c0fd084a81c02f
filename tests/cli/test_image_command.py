"""``testbed image`` as typed; tests/runtimes/docker inspects the images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.errors import HostError
from testbed.runtimes.docker.image import image_name


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Docker address without an engine."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    yield f"{tmp_path}/absent.sock"


@pytest.mark.parametrize("verb", ["build", "check", "show", "prune"])
def test_a_missing_engine_is_reported_with_its_address(
    verb: str, no_engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["image", verb]) == HostError.exit_code
    said = capsys.readouterr().err
    assert no_engine in said
    assert "Traceback" not in said


def test_an_image_from_a_registry_is_not_built_offline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "build", "--offline", "--base", "python:3.12-slim"]) == 2
    assert "--offline cannot be combined with --base." in capsys.readouterr().err


@pytest.mark.docker
@pytest.mark.slow
def test_the_image_is_built_checked_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "build"]) == 0
    name = capsys.readouterr().out.strip()
    assert name == image_name()
    assert main(["image", "check"]) == 0
    assert capsys.readouterr().out.strip() == name
    assert main(["image", "show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    (row,) = (row for row in rows if row["name"] == name)
    assert (row["part"], row["current"]) == ("nodes", True)
    assert main(["image", "show"]) == 0
    assert name in capsys.readouterr().out


@pytest.mark.docker
def test_a_missing_image_for_gpus_is_reported_with_how_to_build_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["image", "check", "--gpu"]) == HostError.exit_code
    assert "Try: testbed image build --gpu" in capsys.readouterr().err
