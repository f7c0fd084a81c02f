"""Links, headings, commands and exit codes in the documents exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed import errors
from testbed.cli import BROKEN_PIPE, VERBS, report, runs
from testbed.errors import INTERRUPTED, INVALID
from testbed.scenario import load
from testbed.studies import is_study, load_study

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "testbed", "tests", "scenarios", "protos")
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
)

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def prose(document: Path) -> str:
    """A document's text without its code blocks."""
    return _FENCE.sub("", document.read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings on GitHub."""
    lowered = (heading.lower() for heading in _HEADING.findall(prose(document)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in lowered}


def dead_links(document: Path) -> Iterator[str]:
    """Links of a document to files or headings that do not exist."""
    for link in _LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_have_targets(document: Path) -> None:
    assert list(dead_links(document)) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("# A `b` c\n[x](#a-b-c) [y](#nowhere) [z](gone.md) [w](https://e.org)\n")
    assert list(dead_links(document)) == ["#nowhere", "gone.md"]


def code(document: Path) -> str:
    """A document's code: the lines of its blocks, and every piece within a sentence on a line."""
    blocks = _FENCE.findall(document.read_text(encoding="utf-8"))
    return "\n".join([*blocks, *_INLINE.findall(prose(document))])


def test_the_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    files = [file for file in ROOT.glob("scenarios/*/*.yaml") if is_study(file)]
    studies = {file.parent.name.replace("_", "-") for file in files}
    named = {
        (str(document.relative_to(ROOT)), target)
        for document in DOCUMENTS
        for target in re.findall(r"^(?:sudo )?make ([a-z0-9-]+)", code(document), re.MULTILINE)
    }
    assert ("README.md", "demo") in named
    of_studies = tuple(f"{study}-" for study in studies)
    unknown = {one for one in named if one[1] not in targets | studies}
    assert {one for one in unknown if not one[1].startswith(of_studies)} == set()


def test_the_scenario_in_the_readme_is_valid(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    file = tmp_path / "first.yaml"
    file.write_text(text, encoding="utf-8")
    assert load(file).name == "first"
    assert len(text.splitlines()) == 10


def test_the_scenarios_for_users_of_other_tools_are_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
    texts = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = []
    for text in texts:
        file = tmp_path / "one.yaml"
        file.write_text(text, encoding="utf-8")
        names.append(load(file).name)
    tools = ["flower", "fedscale", "containerlab", "mininet", "kollaps"]
    assert names == [f"from-{tool}" for tool in tools]


def test_the_study_in_the_documents_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    file = tmp_path / "rates.yaml"
    file.write_text(text.replace("scenarios/quick", f"{ROOT}/scenarios/quick"), encoding="utf-8")
    assert len(load_study(file).runs) == 2 * 2 * 3


def test_the_readme_has_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_the_documentation_lists_every_page() -> None:
    listed = _LINK.findall((ROOT / "docs/README.md").read_text(encoding="utf-8"))
    found = (ROOT / "docs").rglob("*.md")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in found} - {"README.md"}
    assert pages - {link.partition("#")[0] for link in listed} == set()


def test_the_documentation_lists_every_command() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `testbed ([a-z]+)", page, re.MULTILINE)) == set(VERBS)


def test_the_documentation_lists_every_exit_code() -> None:
    section = (ROOT / "docs/commands.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    listed = {int(code) for code in re.findall(r"^\| *(\d+) *\|", section, re.MULTILINE)}
    classes = [errors.TestbedError, *errors.TestbedError.__subclasses__()]
    statuses = {0, INVALID, report.DIFFERENT, runs.TIMED_OUT, INTERRUPTED, BROKEN_PIPE}
    assert listed == statuses | {one.exit_code for one in classes}


def test_every_exit_code_and_verdict_rule_has_a_cause_and_a_cure() -> None:
    codes = (ROOT / "docs/commands.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    rows = [row.split(" | ") for row in codes.splitlines() if re.match(r"\| [1-9]", row)]
    rules = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
    rows += [row.split(" | ") for row in rules.splitlines() if row.startswith("| `")]
    assert [row for row in rows if len(row) != 4 or not all(cell.strip(" |") for cell in row)] == []


def test_pictures_for_light_and_dark_pages_exist() -> None:
    named = {
        (document, path)
        for document in DOCUMENTS
        for path in re.findall(r'src(?:set)?="([^"]+)"', document.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert {one for one in named if not (one[0].parent / one[1]).is_file()} == set()


def test_one_version_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation["version"] == version
    released = re.search(r"^## \S+ \((\S+)\)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released is not None and released[1] == str(citation["date-released"])
    entry = (ROOT / "docs/guides/paper-figure.md").read_text()  # for BibTeX
    assert f"version = {{{version}}}" in entry and f"title   = {{{citation['title']}}}" in entry
    assert newest is not None
    assert newest.group(1) == version


def test_algorithms_do_not_import_each_other() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (kept,) = (one["modules"] for one in contracts["contracts"] if one["type"] == "independence")
    files = {path.stem for path in (ROOT / "testbed/algorithms").glob("*.py")}
    shared = {"__init__", "base", "config", "custom"}
    assert {f"testbed.algorithms.{name}" for name in files - shared} == set(kept)
