"""Sphinx's configuration of the documentation site, which `make docs` builds."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

from scripts.docs.site_links import ROOT

project = "seq2seq-attn"
extensions = [
    "myst_parser", "scripts.docs.mathml", "sphinx.ext.apidoc", "sphinx.ext.autodoc", "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]  # fmt: skip
html_theme = "furo"
html_title = "seq2seq-attn"
html_static_path = [str(ROOT / "scripts/docs/static")]
html_css_files = ["site.css"]
html_extra_path = [str(ROOT / "build/docs/extra")]  # pages that are served as they are
html_math_renderer = "mathml"
highlight_language = "none"  # commands are no Python
html_copy_source = False
html_show_copyright = False
default_role = "code"  # docstrings name code in single backticks
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, "site": "{{path}}"}
apidoc_modules = [
    {"path": str(ROOT / "seq2seq_attn"), "destination": "api", "max_depth": 2, "module_first": True,
     "automodule_options": {"members", "ignore-module-all"},
     "exclude_patterns": [str(ROOT / "seq2seq_attn/*/triton_kernels.py")]}  # Triton comes with torch for a GPU only
]  # fmt: skip
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # those of torch and Lightning are for their own pages
napoleon_use_ivar = True
napoleon_attr_annotations = False
suppress_warnings = ["ref.python"]  # two classes of one name, in an annotation that has no module
autodoc_preserve_defaults = True
MARKUP = re.compile(r"[*|]|(?<=\w)_(?=\W|$)")


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", escape_markup, priority=1)  # before Napoleon


def escape_markup(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape what reStructuredText would read as markup: docstrings are plain text with code in backticks."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            texts = line.split("`")
            texts[::2] = [MARKUP.sub(r"\\\g<0>", text) for text in texts[::2]]
            lines[number] = "`".join(texts)
