"""Write the pages of the site, as Markdown for Sphinx: ``python docs/site/pages.py FOLDER``.

Documents link to each other as GitHub shows them, relative to their place in the repository. Here,
every document becomes a page, every shipped scenario a page with its text, and other files that
are linked are copied. The contents come from ``docs/README.md``: a heading for each part, and the
pages in order.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import gallery
import reference

from testbed.cli import cli
from testbed.scenario.flower import WorkloadFile
from testbed.scenario.schema import Scenario
from testbed.studies.document import StudyDocument
from testbed.studies.json_schema import file_schema, model_schema

ROOT = Path(__file__).parents[2]
CONTENTS = "docs/README.md"
PLACES = {"README.md": "index.md", CONTENTS: "contents.md"}
"""Documents with a name of their own in the site."""

GENERATED: dict[str, Callable[[], str]] = {
    "commands.md": lambda: reference.commands_page(cli),
    "python.md": reference.python_page,
    "scenario.md": lambda: reference.scenario_page(file_schema(Scenario)),
    "workload.md": lambda: reference.workload_page(file_schema(WorkloadFile)),
    "study.md": lambda: reference.study_page(model_schema(StudyDocument)),
}
"""The pages of the reference, by their names."""

_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(
    r'<picture>.*?srcset="([^"]+)".*?src="([^"]+)" alt="([^"]+)".*?</picture>', re.S
)
"""A picture for dark pages and one for light pages, as GitHub shows them."""


def write_pages(folder: Path) -> None:
    """Write all pages, and copy the files that they link to."""
    parts = contents()
    for document in documents():
        text = (ROOT / document).read_text(encoding="utf-8")
        page = redirected(text, document, folder)
        if document == "README.md":
            page += "\n" + "\n".join(tree(caption, pages) for caption, pages in parts)
        elif not any(place(document) in pages for _, pages in parts):
            page = f"---\norphan: true\n---\n{page}"
        _write(folder / place(document), page)
    for file in sorted(gallery.SCENARIOS.rglob("*.yaml")):
        _write(folder / place(file.relative_to(ROOT).as_posix()), scenario(file))
    shutil.copytree(gallery.PICTURES, folder / "pictures", dirs_exist_ok=True)
    _write(folder / "examples.md", gallery.gallery())
    for name, write in GENERATED.items():
        _write(folder / "reference" / name, write())


def documents() -> list[str]:
    """Return the paths of all documents in the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for folder in ("testbed", "scenarios"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def place(path: str) -> str:
    """Return the page of the site that shows a file or folder of the repository, or its copy."""
    if path in PLACES:
        return PLACES[path]
    if (ROOT / path).is_dir():
        about = f"{path}/README.md"
        return place(about) if (ROOT / about).is_file() else "examples.md"
    if path.startswith("scenarios/") and path.endswith(".yaml"):
        return f"{path.removesuffix('.yaml')}.md"
    path = path.removeprefix("docs/")
    return re.sub(r"README\.md$", "about.md", path)


def contents() -> list[tuple[str, list[str]]]:
    """Return the parts of the documentation: their headings and pages."""
    parts: dict[str, list[str]] = {}
    for part in (ROOT / CONTENTS).read_text(encoding="utf-8").split("\n## ")[1:]:
        targets = [target.partition("#")[0] for _, target, _ in _LINK.findall(part)]
        paths = (posixpath.normpath(posixpath.join("docs", target)) for target in targets)
        pages = [page for page in map(place, paths) if page.endswith(".md") and page != "index.md"]
        heading = part.partition("\n")[0]
        if heading == "Reference":
            pages += [f"reference/{name}" for name in GENERATED]
        before = {page for others in parts.values() for page in others}
        parts[heading] = [page for page in dict.fromkeys(pages) if page not in before]
    return [*parts.items()]


def tree(caption: str, pages: list[str]) -> str:
    """Return a part of the contents for the side of every page."""
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"


def redirected(text: str, document: str, folder: Path) -> str:
    """Redirect the links of a document to the pages of the site; copy other files."""
    here = posixpath.dirname(place(document)) or "."

    def redirect(link: re.Match[str]) -> str:
        opening, target, closing = link.groups()
        path, mark, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return link.group()
        found = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
        page = place(found)
        if not page.endswith(".md"):
            (folder / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / found, folder / page)
        return f"{opening}{posixpath.relpath(page, here)}{mark}{anchor}{closing}"

    pieces = _CODE.split(_PICTURE.sub(r"![\3](\2){.only-light}![\3](\1){.only-dark}", text))
    pieces[::2] = (_LINK.sub(redirect, piece) for piece in pieces[::2])
    return "".join(pieces)


def scenario(file: Path) -> str:
    """Return the page of a shipped scenario or study."""
    name = _name(file)
    text = file.read_text(encoding="utf-8").partition("\n")[2]
    return f"""---
orphan: true
---
# {name}

{gallery.head_of(file)}

```sh
{gallery.command_of(file)}
```

```yaml
{text}```
"""


def _name(file: Path) -> str:
    return file.relative_to(gallery.SCENARIOS).with_suffix("").as_posix()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
