"""Settings of Sphinx for the documentation site: `make docs` builds it into `build/docs`.

The source folder is the repository, so that links from the pages to measurements, examples and the guide for contributors work in
the site as they do in a checkout.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

project = "m3b"
author = "The m3b authors"
release = version = importlib.metadata.version("m3b")
root_doc = "docs/index"
include_patterns = [
    "docs/*.md", "benchmarks/RESULTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/notebooks/README.md", "resources/indexes/*.md"
]  # fmt: skip
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"m3b {release}"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["site"]


def add_navigation(app: object, page: str, source: list[str]) -> None:
    """Add a table of contents for each section of the first page: what its links lead to."""
    if page != root_doc:
        return
    for section in re.split(r"(?m)^## ", source[0])[1:]:
        pages = re.findall(r"(?m)^\| \[([^\]]+)\]\(([^)#]+)\.md\)", section)
        caption, entries = (
            section.splitlines()[0].partition(":")[0],
            "\n".join(f"{title} <{path}>" for title, path in pages),
        )
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def setup(app: object) -> None:
    """Connect `add_navigation`."""
    app.connect("source-read", add_navigation)  # type: ignore[attr-defined]
