"""Sphinx's configuration. No page asks another host for anything."""

from importlib.metadata import version as version_of

project = "edge-testbed"
author = "the developers of edge-testbed"
release = version_of("edge-testbed")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
autodoc_typehints = "description"
html_theme = "furo"
html_title = f"edge-testbed {release}"
html_copy_source = False
suppress_warnings = ["myst.header"]  # results begin with the heading of a part
