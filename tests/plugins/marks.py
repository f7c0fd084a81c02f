"""Marks that tests of several files share."""

import pytest

in_docker_nightly = pytest.mark.parametrize(
    "runtime",
    [
        pytest.param("native", marks=pytest.mark.root),
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.nightly]),
    ],
    indirect=True,
)
"""Run a test in both runtimes of the fixture ``runtime``, in Docker with `make nightly` only."""
