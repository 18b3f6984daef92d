"""The documentation as a site: `make docs`. The pages are the Markdown files next to this one."""

from __future__ import annotations

from typing import Any, Final

from sphinx.application import Sphinx

from headwater import __version__

_FIELDS: Final = ("Args:", "Returns:", "Raises:", "Yields:")

project = "Headwater"
author = "The Headwater maintainers"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["deflist"]
# Links within the pages are those of Markdown, so that they work on any forge too.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = f"Headwater {__version__}"
html_copy_source = False
# Code in docstrings stands in single backticks, as in Markdown.
default_role = "code"

# Output is shortened with an ellipsis, which is in no grammar; links are checked by the tests, also
# those to files outside of the pages.
suppress_warnings = ["misc.highlighting_failure", "myst.xref_missing"]


def mark_code(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings show code by indenting it, which reStructuredText wants announced."""
    marked: list[str] = []
    in_fields = False
    for line in lines:
        if line and not line.startswith(" "):
            in_fields = line.rstrip() in _FIELDS
        starts = line.startswith("    ") and not in_fields and marked and not marked[-1]
        if starts and not (len(marked) > 1 and marked[-2].startswith("    ")):
            marked += ["::", ""]
        marked.append(line)
    lines[:] = marked


def setup(app: Sphinx) -> None:
    # Before the extension that reads the fields of docstrings.
    app.connect("autodoc-process-docstring", mark_code, priority=400)
