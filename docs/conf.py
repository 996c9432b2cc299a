"""Sphinx settings of the docs site: `make docs` builds it into build/docs."""

import sys
import types
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "reference"))

import generate  # noqa: E402

from seq2see import __version__  # noqa: E402

generate.write()

project = "seq2see"
author = "the seq2see authors"
copyright = "the seq2see authors, Apache-2.0"
release = version = __version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["requirements.lock"]
nitpicky = True
suppress_warnings = ["epub.unknown_project_files"]

# MyST: headings get the same anchors as on a code-hosting site, so that links work in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["deflist", "dollarmath", "fieldlist", "colon_fence"]
myst_links_external_new_tab = False

# Docstrings are written in Markdown-like plain text; types are shown in short form and are not links.
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "furo"
html_title = f"seq2see {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#7ab8ff", "color-brand-content": "#7ab8ff"},
    "navigation_with_keys": True,
}
html_context = {"default_mode": "auto"}


_converted: dict[str, list[str]] = {}


def _docstring_as_rst(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn the plain text and Markdown of docstrings into reStructuredText."""
    if isinstance(obj, types.UnionType):  # it has the docstring of its class
        lines[:] = ["Any of the events of a training, also the progress of a download."]
    lines[:] = [generate.restructured(line) for line in lines]
    _converted[name] = list(lines)


def _without_napoleon(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Undo what napoleon does to attributes: it takes the words before a colon in the first line for a type."""
    if what in ("attribute", "data", "property"):
        lines[:] = _converted[name]


def _relinked(app: Sphinx, name: str, content: list[str]) -> None:
    """Let links to README.md and other files of the project lead to their pages."""
    path = HERE / f"{name}.md"
    content[0] = generate.relink(content[0], path, path)


def setup(app: Sphinx) -> None:
    """Register languages of code blocks, and the conversions of docstrings and links."""
    for name in ("csv", "tsv"):
        app.add_lexer(name, TextLexer)
    app.connect("source-read", _relinked)
    app.connect("autodoc-process-docstring", _docstring_as_rst, priority=400)
    app.connect("autodoc-process-docstring", _without_napoleon, priority=600)
