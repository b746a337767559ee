"""The README, the project's settings and the pages: links, widths, versions, extras."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import kerasish

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 has no tomllib")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
README = (ROOT / "README.md").read_text("utf-8")
LINK = re.compile(r"\]\(\s*([^)\s]+)\s*\)")
PAGES = [
    *ROOT.glob("*.md"),
    *(p for p in ROOT.glob("docs/**/*.md") if "_build" not in p.parts),
]
TEXTS = [*PAGES, *ROOT.glob("examples/**/*.md"), ROOT / "pyproject.toml", ROOT / ".ci" / "run"]


def relative_links(text):
    """Return the links of a page that stay within the project, without their anchors."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    links = (link.partition("#")[0] for link in LINK.findall(text))
    return [link for link in links if link and not link.startswith(("http:", "https:", "mailto:"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page):
    def exists(link):
        target = (page.parent / link).resolve()
        generated = target.is_relative_to(ROOT / "docs/api") or target.is_relative_to(
            ROOT / "docs/gallery"
        )
        return generated or target.exists()

    assert [link for link in relative_links(page.read_text("utf-8")) if not exists(link)] == []


def test_a_missing_file_is_noticed():
    assert relative_links("[a](x.md#part) [b](https://c.d) ![e](f.png) `[g]`") == ["x.md", "f.png"]


def wide_lines(text):
    """Return the numbers of the lines above 100 columns that could be broken at a space."""
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > 100 and len(line.strip(" -*").split()) > 1
    ]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_have_at_most_100_columns(path):
    assert wide_lines(path.read_text("utf-8")) == [], f"wrap these lines of {path.name}"


def test_a_wide_line_is_noticed():
    url = "https://kerasish.example/" + "x" * 80
    assert wide_lines("\n".join([url, f"- {url}", f"see {url}", "é " * 50, "é " * 50 + "é"])) == [
        3,
        5,
    ]


def test_a_package_index_shows_a_readme_of_absolute_links():
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = README
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert relative_links(README)
    assert relative_links(text) == []
    assert text.count("/raw/main/docs/_static/quickstart.png") == 1


def test_the_readme_has_a_picture_within_its_first_screens():
    place = README.index("![")
    assert place < 1200


def test_versions_and_licenses_agree():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {kerasish.__version__}\n" in citation
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "license: Apache-2.0\n" in citation
    assert all((ROOT / name).exists() for name in PROJECT["project"]["license-files"])
    assert not [c for c in PROJECT["project"]["classifiers"] if c.startswith("License ::")]


def test_the_extras_of_the_readme_are_those_of_the_project():
    table = README.partition("| extra |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\|([^|]*)\|", table, re.M))))
    assert named == set(PROJECT["project"]["optional-dependencies"])


def test_workflows_call_what_developers_call():
    workflows = ROOT / ".github" / "workflows"
    assert "run: .ci/run\n" in (workflows / "ci.yml").read_text("utf-8")
    assert "sphinx -W -n" in (workflows / "docs.yml").read_text("utf-8")
