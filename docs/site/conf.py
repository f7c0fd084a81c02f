"""Sphinx's configuration. No page asks another host for anything."""

from importlib.metadata import version as version_of

project = "edge-testbed"
author = "the developers of edge-testbed"
release = version_of("edge-testbed")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]  # for pictures of light and dark pages
autodoc_typehints = "description"
html_theme = "furo"
html_title = f"edge-testbed {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["cards.css"]
suppress_warnings = ["myst.header"]  # results begin with the heading of a part
