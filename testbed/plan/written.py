"""The plan in a run's folder, ``plan.json``: written once, read by every command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from testbed.errors import DataError, TestbedError
from testbed.runtimes import RUNTIME
from testbed.telemetry.files import first_mistake, read_bounded
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Plan

VERSION = 2
MAX_BYTES = 2**28
"""A node takes less than a kilobyte, and a simulation may have 100,000 of them."""

_PLAN = TypeAdapter(Plan)


def plan_text(plan: Plan) -> str:
    """Return the content of ``plan.json``."""
    content = _PLAN.dump_python(plan, mode="json")
    nodes = ",\n  ".join(json.dumps(node) for node in content.pop("nodes"))
    rest = json.dumps({"plan": VERSION, **content}, indent=1).removesuffix("\n}")
    return f'{rest},\n "nodes": [\n  {nodes}\n ]\n}}\n'


def read_plan(folder: RunFolder) -> Plan:
    """Return the plan of a run.

    Without a ``plan.json``, as when a damaged one was deleted, it is derived from the scenario.

    Raises:
        DataError: ``plan.json`` is damaged.
        TestbedError: a newer testbed wrote it.
        ScenarioError: there is none, and no scenario to derive it from.
    """
    try:
        content = _read(folder.plan)
    except FileNotFoundError:
        return _derive(folder)
    version = content.pop("plan", None)
    if isinstance(version, int) and version > VERSION:
        raise TestbedError(
            f"{folder.plan}: found version {version}, expected {VERSION}.",
            hint="Use the version of testbed that started the run, or a newer one.",
        )
    if version != VERSION:
        raise _damaged(folder.plan, f"its version is {version!r}, expected {VERSION}")
    try:
        made = _PLAN.validate_python(content, strict=False)
        RUNTIME.validate_python(dict(made.runtime))
    except ValidationError as error:
        raise _damaged(folder.plan, first_mistake(error)) from None
    if not any(node.part in ("server", "peer") for node in made.nodes):
        raise _damaged(folder.plan, "it contains neither a parameter server nor a workload")
    return made


def _derive(folder: RunFolder) -> Plan:
    # Imported only here: it takes 0.5 s of CPU, which is long for `testbed ps` on a busy host.
    from testbed.plan.make import plan
    from testbed.scenario import load

    return plan(load(folder.scenario, custom_files=folder.custom), folder.name)


def _read(path: Path) -> dict[str, Any]:
    """Return the object in the file; does not follow links or wait for pipes."""
    try:
        text = read_bounded(path, most=MAX_BYTES, flags=os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = "a symbolic link" if path.is_symlink() else error.strerror
        raise _damaged(path, f"found {reason}, expected a regular file") from None
    except ValueError as error:
        raise _damaged(path, f"found {error}") from None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"not valid JSON, or truncated ({error})") from None
    if not isinstance(content, dict):
        raise _damaged(path, "it is not a JSON object")
    return content


def _damaged(path: Path, what: str) -> DataError:
    return DataError(
        f"{path}: not a valid plan: {what}.",
        hint="Delete it: the plan is then computed from scenario.yaml in the same folder.",
    )
