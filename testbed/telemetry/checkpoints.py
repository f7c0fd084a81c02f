"""Checkpoint files: a state as plain data in safetensors, written atomically.

The arrays are stored under their numbers; the tree and the checkpoint's metadata are JSON in the
safetensors metadata, under the key ``testbed``. Next to it is the SHA-256 of the whole file with
the digest set to zeros, which detects any changed, added or missing byte. Reading a checkpoint
executes no code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from testbed.errors import DataError
from testbed.telemetry.files import replacing
from testbed.telemetry.untrusted import SpoiledError, open_untrusted
from testbed.values.state import PlainState

FORMAT = 7
KEY = "testbed"
DIGEST = "sha256"
NO_DIGEST = "0" * 64
PIECE_BYTES = 2**20


@dataclass(frozen=True)
class About:
    """The metadata of a checkpoint."""

    kind: str  # ``simulation``, or ``ps``: of a live run's parameter server
    scenario: str  # see ``scenario_digest``
    version: int  # updates in the model
    time_seconds: float  # emulated time of the checkpoint
    note: Mapping[str, Any]  # additional data of its writer


def scenario_digest(folder: Path) -> str:
    """Return the digest of a run's scenario and the user's own files in its folder."""
    digest = hashlib.sha256()
    custom = folder / "custom"
    own = sorted(custom.glob("*.py")) if custom.is_dir() else []
    for path in (folder / "scenario.yaml", *own):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


def write_checkpoint(path: Path, about: About, state: PlainState) -> None:
    """Write a checkpoint in place of the previous one."""
    text = json.dumps({"format": FORMAT, **asdict(about), "tree": state.tree})
    arrays = {str(number): array for number, array in enumerate(state.arrays)}
    data = save(arrays, metadata={KEY: text, DIGEST: NO_DIGEST})
    with replacing(path) as fresh, fresh.open("wb") as file:
        file.write(data)
        file.seek(_digest_place(data))
        file.write(hashlib.sha256(data).hexdigest().encode())


def read_checkpoint(path: Path, *, kind: str, scenario: str) -> tuple[About, PlainState]:
    """Read a checkpoint of this kind and scenario.

    Raises:
        DataError: it does not exist, is damaged, or belongs to another scenario.
    """
    try:
        with open_untrusted(path, node="ps") as written:
            if change := _change(written):
                raise damaged(path, change)
            with safe_open(f"/proc/self/fd/{written.fileno()}", framework="numpy") as file:
                content = json.loads((file.metadata() or {})[KEY])
                arrays = tuple(file.get_tensor(str(number)) for number in range(len(file.keys())))
        found, tree = content.pop("format"), content.pop("tree")
        about = About(**content)
        if not isinstance(tree, list) or not isinstance(about.note, dict):
            raise ValueError(f"its tree is a {type(tree).__name__}")
    except FileNotFoundError:
        raise DataError(
            f"There is no checkpoint {path}.",
            hint="A scenario with `checkpoint: {every: 500}` creates checkpoints; without one, "
            "repeat the run with `testbed up`.",
        ) from None
    except PermissionError as error:
        raise damaged(path, str(error.strerror)) from None
    except SafetensorError as error:
        raise damaged(path, f"not a safetensors file, or truncated ({error})") from None
    except SpoiledError as error:
        raise DataError(error.message, hint=error.hint) from None
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None
    if found != FORMAT:
        raise DataError(
            f"{path}: a checkpoint of format {found!r}, expected {FORMAT}.",
            hint="Resume with the version of testbed that wrote it, or repeat the run with "
            "`testbed up`.",
        )
    if about.kind != kind:
        kinds = {"simulation": "a simulation", "ps": "a live run's parameter server"}
        raise DataError(
            f"{path}: a checkpoint of {kinds.get(about.kind, repr(about.kind))}, expected one of "
            f"{kinds[kind]}.",
            hint="It was copied from another run; repeat this run with `testbed up`.",
        )
    if about.scenario != scenario:
        raise DataError(
            f"{path}: the checkpoint belongs to another scenario than the run's scenario.yaml, "
            "or to other custom files.",
            hint="The scenario and custom files of a run must not change before it is resumed; "
            "start a new run with `testbed up`, under another name.",
        )
    return about, PlainState(tree, arrays)


def damaged(path: Path, what: str) -> DataError:
    """Return the error for an unusable checkpoint."""
    return DataError(
        f"{path}: not a checkpoint: {what}.",
        hint="The file is damaged; repeat the run with `testbed up`.",
    )


def _digest_place(data: bytes | bytearray) -> int:
    """Return the offset of the digest in a file, or in its beginning."""
    name = f'"{DIGEST}":"'.encode()
    return data.index(name, 0, 8 + int.from_bytes(data[:8], "little")) + len(name)


def _change(file: BinaryIO) -> str:
    """Return how a file differs from its digest; empty if it does not."""
    size = os.fstat(file.fileno()).st_size
    head_bytes = 8 + int.from_bytes(file.read(8), "little")
    if head_bytes > size:
        return "not a safetensors file, or truncated"
    file.seek(0)
    head = bytearray(file.read(head_bytes))
    try:
        at = _digest_place(head)
    except ValueError:
        return "it has no digest: it was written by another version, or is damaged"
    end = at + len(NO_DIGEST)
    told, head[at:end] = bytes(head[at:end]), NO_DIGEST.encode()
    digest = hashlib.sha256(head)
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
    if told == digest.hexdigest().encode():
        return ""
    return "it was truncated or changed after it was written: its SHA-256 differs"
