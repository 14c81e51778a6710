"""The site: `make docs` builds it, offline, with warnings as errors."""

import sys
from pathlib import Path

import holdfast

sys.path.insert(0, str(Path(__file__).parent))

project = "holdfast"
author = "the holdfast contributors"
version = release = holdfast.__version__
html_title = f"holdfast {version}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "site_pages"]
exclude_patterns = ["**/.*"]
nitpicky = True
# Of other packages, whose pages are not asked for, and of types that are no names of ours.
nitpick_ignore_regex = [("py:.*", r"(?!holdfast\.).*"), ("py:.*", r"holdfast\.(?!\w+$).*")]

myst_heading_anchors = 3
default_role = "code"  # docstrings write names in single backticks
highlight_language = "text"

python_maximum_signature_line_length = 80  # longer ones, an argument a line
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_default_options = {"undoc-members": False}

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
# System fonts and nothing from elsewhere: a page opens from disk, without a network.
html_theme_options = {"navigation_with_keys": True}
