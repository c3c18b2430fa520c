"""The documentation site: `make docs`, then open build/docs/index.html."""

import subprocess
import sys
from pathlib import Path

import prefkin
from prefkin.apps.cli.commands import COMMANDS

HERE = Path(__file__).parent

project, author = "prefkin", "the prefkin developers"
version = release = prefkin.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_made/gallery/*.py"]
templates_path = ["_templates"]
html_theme, html_title = "pydata_sphinx_theme", "prefkin"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_center": [],  # pages are in the sidebar, under their headings
}
html_sidebars = {"**": ["globaltoc.html"]}
html_static_path, html_css_files = ["_static"], ["site.css"]
html_show_sourcelink = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "config.cache"]

autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": False}
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "_made/gallery",
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r"/(?!03_)\d\d_",  # 03 needs torch, and is run by make test-integrations
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
}


def commands(_app):
    """What every command says of itself, as it says it."""
    parts = ["# The command line\n"]
    for name in ("", *COMMANDS):
        call = [sys.executable, "-m", "prefkin", *([name] if name else []), "--help"]
        said = subprocess.run(call, capture_output=True, text=True, check=True, env={"COLUMNS": "92", "NO_COLOR": "1"})
        title = f"prefkin {name}".strip()
        text = "\n".join(line.rstrip() for line in said.stdout.strip().splitlines())
        text = text.replace("python -m prefkin", "prefkin")
        parts.append(f"## {title}\n\n```text\n{text}\n```\n")
    target = HERE / "_made" / "commands.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(parts))


def skipped(_app, _what, name, _obj, skip, _options):
    """Without what scikit-learn adds to every estimator."""
    return True if name.endswith("_request") or name == "get_metadata_routing" else skip


def with_tables(_app, _what, _name, _obj, _options, lines):
    """Tables in docstrings are meant to be read as they stand."""
    inside = False
    for at in range(len(lines) - 1, -1, -1):
        row = lines[at].startswith("|")
        if inside and not row:
            lines[at + 1 : at + 1] = ["", ".. code-block:: text", ""]
        inside = row
        if row:
            lines[at] = "    " + lines[at]


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", commands)
    app.connect("autodoc-skip-member", skipped)
    app.connect("autodoc-process-docstring", with_tables)
