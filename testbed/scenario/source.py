"""Scenario files: those shipped with testbed, and reading a file without blocking."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from errno import ENOENT
from pathlib import Path

import testbed
from testbed.errors import Problem, ScenarioError
from testbed.host.installed import installed_files
from testbed.values.traces import InvalidLine

_OF_A_STUDY = re.compile(r"^(scenario|vary):", re.MULTILINE)
"""Top-level keys of studies, which scenarios do not have."""


def shipped() -> Mapping[str, Path]:
    """Return the scenario files by name, sorted; empty in a partial installation."""
    return {name: file for name, file in _by_name().items() if not _is_study(file)}


def shipped_studies() -> Mapping[str, Path]:
    """Return the files of studies, likewise."""
    return {name: file for name, file in _by_name().items() if _is_study(file)}


def find_scenario(path: Path, *, name: str = "") -> Path:
    """Return the path, or that of a shipped scenario or study if the file does not exist.

    Args:
        path: the path given by the user.
        name: name of the shipped scenario, if not the path.
    """
    if path.suffix or os.path.lexists(path):
        return path
    return _by_name().get(name or path.as_posix(), path)


def _is_study(file: Path) -> bool:
    return _OF_A_STUDY.search(file.read_text(encoding="utf-8")) is not None


def _by_name() -> Mapping[str, Path]:
    return dict(sorted(_files()))


def _files() -> Iterator[tuple[str, Path]]:
    clone = Path(testbed.__file__).parent.parent / "scenarios"
    if (clone / "schema.json").is_file():
        for file in clone.rglob("*.yaml"):
            yield file.relative_to(clone).with_suffix("").as_posix(), file
        return
    for name, file in installed_files("scenarios"):
        if name.endswith(".yaml"):
            yield name.removesuffix(".yaml"), file


Locate = Callable[[str], Path]
"""Returns the path of a file that a scenario names."""

LARGEST_BYTES = 2**20
LARGEST_NAMED_BYTES = 32 * 2**20
"""Maximum bytes of a file that a scenario names, such as a recording."""

_BYTE_ORDER_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Invalid in YAML files: control characters, lone surrogates, noncharacters.
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def display_name(path: Path) -> str:
    """Return the path in printable form, even if its name is not valid text."""
    name = os.fsencode(path).decode("utf-8", "replace")
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def read_text(path: Path) -> str:
    """Read the text of a scenario file.

    Raises:
        ScenarioError: the file does not exist, is not a regular file (a folder, a pipe, a device),
            is not readable, is too large, or is not UTF-8 text.
    """
    file = display_name(path)
    try:
        content = _read_bytes(path, file)
    except FileNotFoundError:
        raise _refusal(file, "no such file", "a scenario file", hint=_nearest_file(path)) from None
    except PermissionError:
        found, hint = "a file you may not read", "Change its permissions (chmod +r) or its owner"
        raise _refusal(file, found, "a readable file", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal(file, f"a file that cannot be read ({reason})", "a scenario file") from None
    return _decode(content, file)


def read_named(name: str, locate: Locate | None) -> str:
    """Read the text of a recording or a table that a scenario names.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read, or the scenario is not in a file.
        InvalidLine: it is too large.
    """
    if locate is None:
        raise FileNotFoundError(ENOENT, "a scenario that is not in a file cannot name one")
    with locate(name).open("rb") as file:
        content = file.read(LARGEST_NAMED_BYTES + 1)
    if len(content) > LARGEST_NAMED_BYTES:
        raise InvalidLine(0, "a larger file", f"at most {LARGEST_NAMED_BYTES // 2**20} MiB")
    return content.decode("utf-8-sig")


def check_text(text: str, file: str) -> None:
    """Refuse text that is invalid in a YAML file.

    Raises:
        ScenarioError: it is too long or contains control characters.
    """
    if len(text) > LARGEST_BYTES:
        raise _too_large(file, len(text))
    wrong = _NOT_TEXT.search(text)
    if wrong is not None:
        line = text.count("\n", 0, wrong.start()) + 1
        found = f"the character U+{ord(wrong.group()):04X}"
        raise _refusal(file, found, "text (is this a YAML file?)", line=line)


def _read_bytes(path: Path, file: str) -> bytes:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        hint = f"Name a file in it, like {file.rstrip('/')}/quickstart.yaml"
        raise _refusal(file, "a folder", "a scenario file", hint=hint)
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(file, "a pipe or a device", "a regular file")
    with path.open("rb") as stream:
        content = stream.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise _too_large(file, max(status.st_size, len(content)))
    return content


def _decode(content: bytes, file: str) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            raise _refusal(file, f"{encoding} text", "UTF-8", hint="Save the file as UTF-8", line=1)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"the byte 0x{error.object[error.start]:02x}, which is not UTF-8"
        raise _refusal(file, found, "UTF-8 text", line=line) from None


def _nearest_file(path: Path) -> str:
    try:
        names = {entry.stem: entry.name for entry in path.parent.iterdir()}
    except OSError:
        names = {}  # the folder is missing, too
    near = get_close_matches(path.stem, names, n=1)
    if near:
        return f"Did you mean {display_name(path.parent / names[near[0]])}?"
    near = get_close_matches(path.as_posix(), _by_name(), n=1)
    return f"Did you mean {near[0]}?" if near else "`testbed init` creates one that can be run"


def _too_large(file: str, size: int) -> ScenarioError:
    return _refusal(file, f"{size:,} bytes", f"a scenario file of at most {LARGEST_BYTES:,} bytes")


def _refusal(
    file: str, found: str, expected: str, *, hint: str = "", line: int = 0
) -> ScenarioError:
    return ScenarioError([Problem(file, line, "", found, expected, hint)])
