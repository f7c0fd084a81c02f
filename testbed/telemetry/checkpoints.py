"""Checkpoints as files: a state as plain data in safetensors, whole or not at all.

The arrays stand under their numbers; the tree and what is known of the checkpoint are JSON in the
metadata, under the key ``testbed``. Reading one executes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from testbed.errors import TestbedError
from testbed.telemetry.files import replacing
from testbed.telemetry.untrusted import open_untrusted
from testbed.values.state import PlainState

FORMAT = 1
KEY = "testbed"


@dataclass(frozen=True)
class About:
    """What is known of a checkpoint.

    Attributes:
        kind: ``simulation``, or ``ps``: of a live run's parameter server.
        scenario: see ``scenario_digest``.
        version: updates in the model.
        time_seconds: when that was, emulated.
        note: what else its writer wants to know again.
    """

    kind: str
    scenario: str
    version: int
    time_seconds: float
    note: Mapping[str, Any]


def scenario_digest(folder: Path) -> str:
    """Of a run's scenario and the user's own files, as they lie in its folder."""
    digest = hashlib.sha256()
    custom = folder / "custom"
    own = sorted(custom.glob("*.py")) if custom.is_dir() else []
    for path in (folder / "scenario.yaml", *own):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


def checkpoint_bytes(about: About, state: PlainState) -> bytes:
    """A checkpoint as it stands in its file."""
    text = json.dumps({"format": FORMAT, **asdict(about), "tree": state.tree})
    arrays = {str(number): array for number, array in enumerate(state.arrays)}
    return save(arrays, metadata={KEY: text})


def write_checkpoint(path: Path, about: About, state: PlainState) -> None:
    """Put a checkpoint in the place of the one before."""
    with replacing(path) as fresh:
        fresh.write_bytes(checkpoint_bytes(about, state))


def read_checkpoint(path: Path, *, kind: str, scenario: str) -> tuple[About, PlainState]:
    """Read a checkpoint of this kind and scenario.

    Raises:
        TestbedError: there is none, it is damaged, or it is another scenario's.
    """
    try:
        with (
            open_untrusted(path, node="ps") as written,
            safe_open(f"/proc/self/fd/{written.fileno()}", framework="numpy") as file,
        ):
            content = json.loads((file.metadata() or {})[KEY])
            arrays = tuple(file.get_tensor(str(number)) for number in range(len(file.keys())))
        found, tree = content.pop("format"), content.pop("tree")
        about = About(**content)
    except FileNotFoundError:
        raise TestbedError(
            f"There is no checkpoint {path}.",
            hint="A scenario with `checkpoint: {every: 500}` makes them; without one, `testbed up` "
            "runs it from its beginning.",
        ) from None
    except PermissionError as error:
        raise damaged(path, str(error.strerror)) from None
    except SafetensorError as error:
        raise damaged(path, f"no safetensors, or cut short ({error})") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None
    if (found, about.kind) != (FORMAT, kind):
        raise damaged(path, f"format {found} of a {about.kind}, expected {FORMAT} of a {kind}")
    if about.scenario != scenario:
        raise TestbedError(
            f"{path}: a checkpoint of another scenario than the run's scenario.yaml, or of other "
            "files of the user's own.",
            hint="What a run is made of must not change before it goes on; `testbed up` runs it "
            "from its beginning, under another name.",
        )
    return about, PlainState(tree, arrays)


def damaged(path: Path, what: str) -> TestbedError:
    """What to say of a checkpoint that cannot be used."""
    return TestbedError(
        f"{path}: not a checkpoint: {what}.",
        hint="The file is damaged; `testbed up` runs the scenario from its beginning.",
    )
