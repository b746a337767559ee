"""The examples as the gallery ran them: they learned what they should, and warned of nothing.

`python -m sphinx -W -n -j auto docs docs/_build/html` runs them; the tests skip where that has not
been done.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from example_goals import GOALS, OUTSIDE_THE_GALLERY, check_goals

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
STEMS = sorted(p.stem for p in (ROOT / "examples").glob("*.py"))
# An indented block behind the mark that the gallery sets before what a script printed.
OUTPUT = re.compile(
    r"^\.\. rst-class:: sphx-glr-script-out\n\s*\n \.\. code-block:: none\n\n"
    r"((?:    .*\n|[ \t]*\n)+)",
    re.M,
)
INDEX = """
.. rst-class:: sphx-glr-script-out

 .. code-block:: none

    accuracy  0.97

    picture: a.png


.. GENERATED FROM PYTHON SOURCE LINES 75-79

The map
    not printed
"""


def printed_in(page: str) -> str:
    """Return what a page of the gallery says that the example printed."""
    return "".join(textwrap.dedent(text) for text in OUTPUT.findall(page))


def test_what_was_printed_is_read():
    assert printed_in(INDEX).split("\n") == ["accuracy  0.97", "", "picture: a.png", "", "", ""]


def test_the_gallery_leaves_out_what_is_tested_elsewhere():
    text = (ROOT / "docs" / "conf.py").read_text("utf-8")
    assert f'"ignore_pattern": r"({"|".join(OUTSIDE_THE_GALLERY)})\\.py$"' in text


@pytest.mark.slow
@pytest.mark.parametrize("stem", [stem for stem in STEMS if stem not in OUTSIDE_THE_GALLERY])
def test_examples_learn_in_the_gallery(stem):
    if not GALLERY.exists():
        pytest.skip("the site is not built: python -m sphinx -W -n -j auto docs docs/_build/html")
    printed = printed_in((GALLERY / f"{stem}.rst").read_text("utf-8"))
    assert printed
    assert stem in GOALS
    check_goals(stem, printed)
    assert "Warning" not in printed
