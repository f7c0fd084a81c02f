"""The contract of every role of nodes. New roles are tested automatically."""

import pkgutil
import re
import subprocess
import sys
from importlib import import_module, util
from pathlib import Path
from typing import get_args

import pytest

from testbed.plan import nodes
from testbed.plan.make import plan
from testbed.plan.nodes import ROLES, Role, role_of
from testbed.plan.nodes.base import Inputs
from testbed.scenario import load_text
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import End, TrainingRole

NOT_ROLES = {"base", "places", "broker_files"}
TEXT = """\
name: planned
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 3}
programs: {sink: {command: [iperf3, --server]}}
stop: {updates: 1}
"""

every_role = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)


def unlisted(modules: set[str], roles: tuple[Role, ...]) -> list[str]:
    """The lines to add to the list for modules whose role is missing."""
    listed = {type(role).__module__ for role in roles}
    lines = []
    for name in sorted(modules - NOT_ROLES):
        module = import_module(f"testbed.plan.nodes.{name}")
        if module.__name__ not in listed:
            own = [
                value.__name__
                for value in vars(module).values()
                if isinstance(value, type)
                and issubclass(value, Role)
                and value.__module__ == module.__name__
            ]
            lines.append(f"add `{own[0]}()` to ROLES in testbed/plan/nodes/__init__.py")
    return lines


def test_every_role_is_listed() -> None:
    modules = {found.name for found in pkgutil.iter_modules(nodes.__path__)}
    assert unlisted(modules, ROLES) == []
    assert unlisted({"base", "worker"}, ()) == [
        "add `WorkerRole()` to ROLES in testbed/plan/nodes/__init__.py"
    ]
    assert unlisted(modules, ROLES[1:]) == [
        "add `ParameterServerRole()` to ROLES in testbed/plan/nodes/__init__.py"
    ]


def test_names_identify_roles() -> None:
    names = [role.name for role in ROLES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+", name) for name in names)


@every_role
def test_roles_only_report_known_events(role: Role) -> None:
    assert role.part in get_args(TrainingRole)
    assert role.end in get_args(End)
    assert role.cpu_weight >= 1
    earlier = {one.name for one in ROLES[: ROLES.index(role)]}
    assert set(role.needs) <= earlier, "its requirements start before it"


@every_role
def test_the_entry_point_exists(role: Role) -> None:
    if role.entry:
        module, _, function = role.entry.partition(":")
        found = util.find_spec(module)
        assert found is not None and found.origin is not None
        assert f"def {function}(" in Path(found.origin).read_text(encoding="utf-8")


def test_the_nodes_of_a_run_are_its_roles(tmp_path: Path) -> None:
    made = plan(load_text(TEXT), "r1")
    inputs = Inputs(RunFolder(tmp_path), tmp_path, own_files=True)
    for node in made.nodes:
        role = role_of(node)
        assert (node.part, node.cpu_weight) == (role.part, role.cpu_weight)
        grows = role.memory_bytes(node, made, vector=10**6) > role.memory_bytes(
            node, made, vector=0
        )
        assert grows == bool(role.entry), "every Python entry holds the model"
        assert bool(node.command) != bool(role.entry), "needs a command or an entry point"
        targets = [mount.target for mount in role.mounts(inputs)]
        assert all(Path("/run/testbed") in target.parents for target in targets)
    assert len({node.uid for node in made.nodes}) == len(made.nodes)
    addresses = [node.link.address for node in made.nodes if node.link is not None]
    assert len(set(addresses)) == len(addresses)


def test_only_the_parameter_server_serves() -> None:
    assert [role.name for role in ROLES if role.part == "server"] == ["ps"]


def test_listing_roles_does_not_import_them() -> None:
    code = "import sys, testbed.plan.nodes; print([m for m in sys.modules if m.startswith(HEAVY)])"
    heavy = ("torch", "grpc", "docker", "pyroute2", "testbed.roles")
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {heavy!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
