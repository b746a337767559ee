"""Settings of the documentation site: `python -m sphinx -W -n -j auto docs docs/_build/html`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_ext"))

import kerasish

project = "kerasish"
author = "the kerasish developers"
copyright = "the kerasish developers, Apache License 2.0"
version = release = kerasish.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "plain_docstrings",
    "api_pages",
    "flowcharts",
]
exclude_patterns = ["_build", "_ext", "**/*.ipynb", "gallery/*.py.md5"]
default_role = "code"
smartquotes_action = "D"  # dashes alone: quotes and dots stand in code and shapes
nitpicky = True
nitpick_ignore_regex = [
    ("py:exc", r"[A-Z]\w+"),  # Python's own errors, and ours by short names
    ("py:class", r"kerasish\.tensor\.variable\.Store"),  # a protocol that users need not know
]

# --- docstrings ---------------------------------------------------------------------------------

autodoc_typehints = "none"  # plain_docstrings puts the types beside the parameters
autodoc_inherit_docstrings = False
autodoc_member_order = "groupwise"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Shape", "Source"]
python_maximum_signature_line_length = 88
toc_object_entries = False

# --- pages in Markdown --------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # the gallery's sort key is a class: no reason to read again

# --- gallery ------------------------------------------------------------------------------------


# A folder without examples/backend, whose README would make it a part of the gallery.
EXAMPLES = DOCS / "_build" / "examples"
EXAMPLES.mkdir(parents=True, exist_ok=True)
for old in EXAMPLES.glob("*.py"):
    old.unlink()
for path in (DOCS.parent / "examples").glob("*.*"):
    shutil.copy2(path, EXAMPLES)

sphinx_gallery_conf = {
    "examples_dirs": [str(EXAMPLES)],
    "gallery_dirs": ["gallery"],
    # The one starts a process of its own and kills it, the other is for several processes.
    "ignore_pattern": r"(quickstart|two_ranks)\.py$",
    "filename_pattern": r"\.py$",
    "reset_argv": "gallery_arguments.arguments",
    "within_subsection_order": "gallery_arguments.ByDifficulty",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "parallel": int(os.environ.get("KERASISH_GALLERY_JOBS", "1")),
    "matplotlib_animations": False,
}

# --- HTML ---------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "kerasish"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "kerasish"},
    "header_links_before_dropdown": 7,
    "navigation_depth": 2,
    "show_toc_level": 2,
    "collapse_navigation": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# A list of 900 names beside each of 900 pages would take most of the build's time.
html_sidebars = {"api/*": [], "index": [], "start": [], "changelog": [], "keras_coverage": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
