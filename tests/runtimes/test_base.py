"""The family of runtimes, as written in a scenario."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from testbed.runtimes import Docker, Native, Runtime

ANY = TypeAdapter(Runtime)


@pytest.mark.parametrize("text", ["native", {"name": "native"}, {"native": {}}, {"native": None}])
def test_the_native_runtime_has_a_short_form(text: object) -> None:
    assert ANY.validate_python(text) == Native(name="native")


def test_docker_may_name_an_image() -> None:
    assert ANY.validate_python("docker") == Docker(name="docker", image=None)
    assert ANY.validate_python({"docker": {"image": "mine:1"}}).image == "mine:1"


@pytest.mark.parametrize(
    "text",
    ["podman", {"name": "native", "image": "x"}, {"docker": {"image": ""}}, "Docker", {}, 3, None],
)
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(ValidationError):
        ANY.validate_python(text)


def test_a_runtime_is_immutable_and_in_the_union() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Native(name="native").name = "other"  # type: ignore[misc, assignment]
    assert Native in (get_args(Runtime)[0], *get_args(get_args(Runtime)[0]))


def test_importing_it_imports_nothing_heavy() -> None:
    program = (
        "import sys, testbed.runtimes.agent.client\n"
        "from testbed.run import runtime; runtime.drivers()\n"
        "print([m for m in ('torch', 'grpc', 'docker', 'pyroute2', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
