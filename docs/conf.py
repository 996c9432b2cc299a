"""Sphinx settings of the docs site: `make docs` builds it into build/docs."""

import gettext
import hashlib
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

from docutils.nodes import Element, SkipNode
from latex2mathml.converter import convert
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
smartquotes_action = "qe"  # not dashes: --version in a help text is an option

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "myst-nb"}
exclude_patterns = ["requirements.lock", "course/notebooks"]
nitpicky = True
suppress_warnings = ["epub.unknown_project_files"]

# MyST: headings get the same anchors as on a code-hosting site, so that links work in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["deflist", "dollarmath", "fieldlist", "colon_fence"]
myst_links_external_new_tab = False

# The chapters of the course are notebooks, executed in an empty folder, and again only after a change of their cells or
# of the package. A cell that fails is an error of the build. The cells of both languages are equal: a Korean chapter
# takes the outputs of the English one, unless its kernel has another `display_name`, for pictures in Korean.
_sources = sorted((HERE.parent / "src").rglob("*.*"))
_digest = hashlib.sha256(b"".join(path.read_bytes() for path in _sources if path.suffix in (".py", ".toml")))
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / "build" / "course" / _digest.hexdigest()[:16])
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_code_prompt_show = "Code of the answer"
nb_code_prompt_hide = "Hide the code"

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
html_math_renderer = "mathml"
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


CHAPTER = re.compile(r"course/(en|ko)/(\d\d-[\w-]+)")
WAYS = {
    "en": "[한국어](../ko/{0}.md) · {{download}}`notebook <../notebooks/en/{0}.ipynb>` · "
    "[Colab (unverified: upload the notebook)](https://colab.research.google.com/#upload=true)",
    "ko": "[English](../en/{0}.md) · {{download}}`노트북 <../notebooks/ko/{0}.ipynb>` · "
    "[Colab(검증 안 됨, 노트북을 업로드하세요)](https://colab.research.google.com/#upload=true)",
}
"""The line below the title of a chapter: the other language, and ways to run it."""


def _chapter(app: Sphinx, name: str, content: list[str]) -> None:
    """Write a chapter as a notebook file, add the line below its title, and let its pictures speak its language."""
    if found := CHAPTER.fullmatch(name):
        language, chapter = found.groups()
        os.environ["SEQ2SEE_LANG"] = language
        generate.write_notebook(content[0], HERE / "course" / "notebooks" / language / f"{chapter}.ipynb")
        content[0] = re.sub(r"^(# .+)$", rf"\1\n\n{WAYS[language].format(chapter)}", content[0], count=1, flags=re.M)


WORDS = {"Home": "홈", "Next": "다음", "On this page": "이 페이지의 내용", "Previous": "이전", "Search": "검색"}
"""What the theme says on Korean pages; Sphinx has no translation of most of it."""


class _Korean(gettext.NullTranslations):
    def gettext(self, message: str) -> str:
        return WORDS.get(message, message)


def _speak(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Let the theme speak Korean on Korean pages, and declare their language, by which browsers choose fonts."""
    korean = page.startswith(("ko/", "course/ko/"))
    context["language"] = "ko" if korean else "en"
    words = _Korean() if korean else gettext.NullTranslations()
    app.builder.templates.environment.install_gettext_translations(words)  # type: ignore[attr-defined]


def _formula(translator: Any, node: Element) -> None:
    """Write a formula as MathML, which browsers show without a script from elsewhere."""
    inline = node.tagname == "math"
    formula = convert(node.astext(), display="inline" if inline else "block")
    translator.body.append(formula if inline else f"<div>{formula}</div>")
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Register languages of code blocks, and the conversions of docstrings and links."""
    for name in ("csv", "tsv"):
        app.add_lexer(name, TextLexer)
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    app.connect("source-read", _relinked)
    app.connect("source-read", _chapter)
    app.connect("html-page-context", _speak)
    app.connect("autodoc-process-docstring", _docstring_as_rst, priority=400)
    app.connect("autodoc-process-docstring", _without_napoleon, priority=600)
