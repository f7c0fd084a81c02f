"""Writes the Python classes of the protos: ``python protos/generate.py [--check]``.

With ``--check`` it writes nothing and fails if the committed ones are not those of the protos.

The one command behind it, run in the repository's root, is

    python -m grpc_tools.protoc -Itestbed/rpc/_pb=protos/testbed/v1 \
        --python_out=. --pyi_out=. testbed/rpc/_pb/{ps}.proto

The virtual path left of ``=`` makes the generated imports those of the package. What the compiler
adds to refuse every protobuf older than itself is left out: the rest needs nothing newer than 5.29,
and other packages in the same environment may hold protobuf back.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = Path("protos/testbed/v1")
PACKAGE = Path("testbed/rpc/_pb")
NAMES = ("ps",)
VERSION_CHECK = re.compile(
    r"^# Protobuf Python Version: .*\n|^from google\.protobuf import runtime_version.*\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\([^)]*\)\n",
    re.MULTILINE,
)


def generate(target: Path) -> list[Path]:
    """Write the classes below ``target``. Returns their paths, relative to it."""
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{PACKAGE}={SOURCES}"),
            *(f"--python_out={target}", f"--pyi_out={target}"),
            *(str(PACKAGE / f"{name}.proto") for name in NAMES),
        ],
        cwd=ROOT,
        check=True,
    )
    for name in NAMES:
        written = target / PACKAGE / f"{name}_pb2.py"
        text, found = VERSION_CHECK.subn("", written.read_text(encoding="utf-8"))
        if found != 3:
            raise ValueError(f"{written}: {found} of 3 parts of the check of versions found")
        written.write_text(text, encoding="utf-8")
    return [PACKAGE / f"{name}_pb2{suffix}" for name in NAMES for suffix in (".py", ".pyi")]


def differences() -> list[str]:
    """Lines in which the committed classes differ from those of the protos; empty if they agree."""
    with tempfile.TemporaryDirectory() as folder:
        found: list[str] = []
        for path in generate(Path(folder)):
            committed = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""
            fresh = (Path(folder) / path).read_text(encoding="utf-8")
            found += difflib.unified_diff(
                committed.splitlines(), fresh.splitlines(), str(path), "regenerated", lineterm=""
            )
    return found


def main(arguments: list[str]) -> int:
    """Generate, or compare. Returns the exit status."""
    if arguments == ["--check"]:
        found = differences()
        if found:
            sys.stderr.write("\n".join(found) + "\n")
            sys.stderr.write("The classes are not those of the protos. Try: make protos\n")
        return 1 if found else 0
    if arguments:
        sys.stderr.write(f"unknown arguments {arguments}; known is --check\n")
        return 2
    generate(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
