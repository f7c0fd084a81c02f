"""The pages of the site: links between them, and the generated reference."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs/site"))
    return importlib.import_module("pages")


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs/site"))
    return importlib.import_module("reference")


def test_every_link_of_every_page_has_a_target(pages: ModuleType, tmp_path: Path) -> None:
    pages.write_pages(tmp_path)
    written = sorted(tmp_path.rglob("*.md"))
    dead = [
        (str(page.relative_to(tmp_path)), link)
        for page in written
        for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
        if not re.match(r"[a-z]+:|#", link) and not (page.parent / link.partition("#")[0]).is_file()
    ]
    assert dead == []
    names = {str(page.relative_to(tmp_path)) for page in written}
    assert {"index.md", "contents.md", "network.md", "reference/scenario.md"} <= names
    assert {"scenarios/quickstart.md", "testbed/algorithms/about.md"} <= names
    shown = (tmp_path / "scenarios/quickstart.md").read_text(encoding="utf-8")
    assert (ROOT / "scenarios/quickstart.yaml").read_text(encoding="utf-8")[100:] in shown
    assert "testbed up quickstart" in shown


def test_links_lead_where_the_site_has_their_targets(pages: ModuleType, tmp_path: Path) -> None:
    text = "[a](../README.md#x) [b](network.md) [c](../LICENSE) [d](https://e.org) `[e](f)`"
    assert pages.redirected(text, "docs/page.md", tmp_path) == (
        "[a](index.md#x) [b](network.md) [c](LICENSE) [d](https://e.org) `[e](f)`"
    )
    assert (tmp_path / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    text = "[a](../../scenarios/first.yaml) [b](../../docs/data.md) [c](../models/README.md)"
    assert pages.redirected(text, "testbed/algorithms/README.md", tmp_path) == (
        "[a](../../scenarios/first.md) [b](../../data.md) [c](../models/about.md)"
    )


def test_the_contents_have_every_page_once(pages: ModuleType) -> None:
    listed = [page for _, part in pages.contents() for page in part]
    assert len(listed) == len(set(listed))
    assert {"examples.md", "reference/commands.md", "adacomp.md"} <= set(listed)
    assert "index.md" not in listed


def test_fields_have_types_defaults_and_meanings(reference: ModuleType) -> None:
    member = {
        "description": "The first.",
        "properties": {
            "name": {"const": "one"},
            "rate": {"type": "number", "exclusiveMinimum": 0, "default": 0.5},
            "most": {"type": ["integer", "null"], "minimum": 1},
        },
    }
    schema = {
        "properties": {
            "kind": {"anyOf": [{"oneOf": [{"$ref": "#/$defs/One"}], "required": ["name"]}, {}]},
            "sizes": {"type": "array", "items": {"$ref": "#/$defs/Size"}, "description": "a | b"},
        },
        "required": ["kind"],
        "$defs": {"One": member, "Size": {"type": "integer", "minimum": 1, "maximum": 2**63}},
    }
    assert reference.fields_page("Fields", "All.", schema).splitlines() == [
        "# Fields",
        "",
        "All.",
        "",
        "| field | type | default | meaning |",
        "| --- | --- | --- | --- |",
        "| `kind` | one of [one](#one) | required |  |",
        "| `sizes` | list of integer ≥ 1 |  | a \\| b |",
        "",
        "## One",
        "",
        "Name: `one`. The first.",
        "",
        "| field | type | default | meaning |",
        "| --- | --- | --- | --- |",
        "| `rate` | number > 0 | `0.5` |  |",
        "| `most` | integer ≥ 1 or null |  |  |",
    ]


def test_commands_have_their_help_at_any_depth(reference: ModuleType) -> None:
    @click.group()
    def root() -> None:
        """All."""

    @root.group()
    def net() -> None:
        """Links."""

    @net.command()
    @click.option("--up", help="Rate.")
    def set_(up: str) -> None:
        """Change a link."""

    page = reference.commands_page(root)
    assert re.findall("^## (.*)", page, re.MULTILINE) == [
        "testbed",
        "testbed net",
        f"testbed net {set_.name}",
    ]
    assert "--up TEXT  Rate." in page
