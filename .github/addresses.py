"""Write the address of the repository into what PyPI shows: ``addresses.py URL TAG``.

In the repository, links are relative, and nothing depends on where it is hosted.
"""

import re
import sys
from pathlib import Path

_RELATIVE = re.compile(r'(\]\(|src="|srcset=")(?![a-z]+:|#)([^)"\s]+)')

URLS = """
[project.urls]
Repository = "{url}"
Documentation = "{url}/blob/{tag}/docs/README.md"
Changelog = "{url}/blob/{tag}/CHANGELOG.md"
Issues = "{url}/issues"
"""


def absolute(text: str, url: str, tag: str) -> str:
    """Return a document with absolute links to the files and pictures of a tag."""

    def extend(link: re.Match[str]) -> str:
        opening, path = link.groups()
        kind = "blob" if opening == "](" else "raw"
        return f"{opening}{url}/{kind}/{tag}/{path}"

    return _RELATIVE.sub(extend, text)


if __name__ == "__main__":
    url, tag = sys.argv[1:]
    readme, project = Path("README.md"), Path("pyproject.toml")
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), url, tag), encoding="utf-8")
    with project.open("a", encoding="utf-8") as file:
        file.write(URLS.format(url=url, tag=tag))
