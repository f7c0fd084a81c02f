"""Every file, module and class named in a document or a docstring exists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from testbed.telemetry.folder import Inside, RunFolder

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "testbed", "tests", "scenarios", "protos", "docker", "compose")
TREE = [
    *(path for path in ROOT.iterdir() if path.is_file()),
    *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")),
]
DOCUMENTS = sorted(path for path in TREE if path.suffix == ".md")
SOURCES = sorted(
    path
    for path in TREE
    if path.suffix in {".py", ".yaml", ".proto", ".toml"} and "_pb" not in path.parts
    if path.parent != Path(__file__).parent  # whose tests make up file names
)
NAMES = {path.name for path in TREE}
CODE = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in SOURCES)

BASES = (ROOT, ROOT / "testbed", ROOT / "tests", ROOT / "scenarios")
"""Where a path may begin, in addition to the document's own folder."""

OF_A_RUN = {inside.path for inside in vars(RunFolder).values() if isinstance(inside, Inside)} | {
    *("updates.bin", "model/best.safetensors", "model/final.safetensors"),
    *("checkpoint.safetensors", "agent.log", "controller.log", "logs/agent.log"),
    *("simulation.log", "logs/simulation.log"),
    "control/agent.pid",
}
OF_OTHERS = {"apache/kafka", "bin/kafka-server-start.sh", "runs.csv", "report.md", "report.html"}
"""An image, a Kafka program, and output files of commands."""

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_PLACEHOLDER = re.compile(r"(?:^|[./-])(?:[A-Z]{3,4}|my_\w+|test_my_\w+|mine|rates)(?:$|[./-])")
_SUFFIXES = "py|md|ya?ml|json|toml|txt|csv|proto|ipynb|sh|log|jsonl|png|safetensors|bin|sock|pid"
_FILE = re.compile(rf"\.?[\w.-]+(?:/[\w.-]+)*\.(?:{_SUFFIXES})|\.?[\w.-]+(?:/[\w.-]+)+/?")
_LONG_PATH = re.compile(
    rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w\.(?:py|md|ya?ml|proto|json|toml|ipynb)\b"
)
_MEMBER = re.compile(r"([A-Z]\w*[a-z]\w*)\.([a-z_]\w+)(?:\(.*\))?")
_CLASS = re.compile(r"((?:[A-Z][a-z]+){2,})(?:\(.*\))?")
_TABLE = re.compile(r"^\| file \| holds \|\n.*\n((?:\|.*\n)+)", re.MULTILINE)


def inline(document: Path) -> list[str]:
    """The text in backticks of a document, without its blocks of code."""
    return _INLINE.findall(_FENCE.sub("", document.read_text(encoding="utf-8")))


def missing_files(pieces: Iterable[str], folder: Path) -> Iterator[str]:
    """Words of code that look like files, and are not."""
    for word in (word for piece in pieces for word in re.split(r"[\s,;()=]+", piece)):
        if not _FILE.fullmatch(word) or "..." in word or _PLACEHOLDER.search(word):
            continue
        known = word in OF_A_RUN | OF_OTHERS or ("/" not in word and word in NAMES)
        places = [base / end for base in (*BASES, folder) for end in (word, f"{word}.yaml")]
        if not known and not any(place.exists() for place in places):
            yield word


def missing_names(pieces: Iterable[str], code: str) -> Iterator[str]:
    """Classes and members of classes that are in no source."""
    for piece in pieces:
        if found := _MEMBER.fullmatch(piece):
            if not (defines(found[1], code) and re.search(rf"\b{found[2]}\b", code)):
                yield piece
        elif (found := _CLASS.fullmatch(piece)) and not re.search(rf"\b{found[1]}\b", code):
            yield piece


def defines(name: str, code: str) -> bool:
    return re.search(rf"\bclass {name}\b", code) is not None


def missing_rows(text: str, folder: Path) -> Iterator[str]:
    """Modules in the table of a package's README that do not exist."""
    for rows in _TABLE.findall(text):
        for row in rows.splitlines():
            for name in _INLINE.findall(row.split("|")[1]):
                if not (folder / name).exists() and not (folder / f"{name}.py").exists():
                    yield name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_existing_files(document: Path) -> None:
    pieces, text = inline(document), document.read_text(encoding="utf-8")
    assert list(missing_files(pieces, document.parent)) == []
    assert list(missing_names(pieces, CODE)) == []
    assert list(missing_rows(text, document.parent)) == []


def test_sources_name_existing_files() -> None:
    missing = {
        (str(source.relative_to(ROOT)), path)
        for source in SOURCES
        for path in _LONG_PATH.findall(source.read_text(encoding="utf-8", errors="replace"))
        if not (ROOT / path).exists()
    }
    assert missing == set()


def test_missing_files_are_found(tmp_path: Path) -> None:
    pieces = ["testbed/units.py", "connection.py", "cli/up.py", "python gone.py", "NAME.yaml"]
    assert [*missing_files(pieces, tmp_path)] == ["testbed/units.py", "connection.py", "gone.py"]
    names = ["Device.perform", "Device.fly", "Nowhere.at", "RunFolder", "GoneFolder", "Kafka"]
    assert [*missing_names(names, CODE.replace("fly", ""))] == ["Device.fly", *names[2:3], names[4]]
    (tmp_path / "here.py").touch()
    table = "| file | holds |\n| --- | --- |\n| `here`, `gone` | x `other` |\n"
    assert [*missing_rows(table, tmp_path)] == ["gone"]
