"""The documentation site, opened in Chromium: search, pictures, narrow pages, light and dark.

`python -m sphinx -W -n -j auto docs docs/_build/html` builds the site; the tests skip where that
has not been done, or where there is no browser.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
import zlib
from pathlib import Path

import pytest

SITE = Path(os.environ.get("KERASISH_SITE", Path(__file__).parents[2] / "docs" / "_build" / "html"))
COMMAND = "python -m sphinx -W -n -j auto docs docs/_build/html"
PAGES = (
    "index.html", "start.html", "guides/training.html", "coming_from/pytorch.html",
    "gallery/index.html", "api/index.html", "api/module-layers.html", "api/layers.Dense.html",
    "api/layers.Conv2D.html", "api/Model.html", "architecture.html", "keras_coverage.html",
    "changelog.html", "contributing/guide.html", "mutants.html",
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def the_browser(playwright):
    """Return Chromium: the system's, or Playwright's own."""
    system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    path = system or playwright.chromium.executable_path
    if not Path(path).exists():
        pytest.skip("no Chromium: apt-get install chromium, or playwright install chromium")
    # A container's user is often root, which Chromium's sandbox refuses.
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def address():
    if not (SITE / "index.html").exists():
        pytest.skip(f"the documentation site is not built: {COMMAND}")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            """Print nothing."""

    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser(address):
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra docs is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = the_browser(playwright)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, address):
    """Return a function that opens a page of the site and notes what goes wrong there."""
    contexts = []

    def opened(path, width=1200, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.wrong = []
        page.on(
            "console",
            lambda m: page.wrong.append(m.text) if m.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("requestfailed", lambda request: page.wrong.append(request.url))
        page.goto(f"{address}/{path}", wait_until="load")
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens_without_errors_and_asks_no_other_server(open_page, address, path):
    page = open_page(path)
    loaded = page.evaluate("performance.getEntriesByType('resource').map(r => r.name)")
    assert [name for name in loaded if not name.startswith((address, "data:"))] == []
    assert page.wrong == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_400_pixels_does_not_scroll_sideways(open_page, path):
    page = open_page(path, width=400)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 400, f"{path} is {wide} pixels wide"
    size = page.evaluate(
        "parseFloat(getComputedStyle(document.querySelector('article p, article li')).fontSize)"
    )
    assert size >= 14


def brightness(page, element, property):
    """Return 0 (black) to 255 (white) of a color of an element."""
    text = page.evaluate(
        "([e, p]) => getComputedStyle(document.querySelector(e))[p]", [element, property]
    )
    red, green, blue = (float(c) for c in text.strip("rgba()").split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue


@pytest.mark.parametrize(("scheme", "sign"), [("light", 1), ("dark", -1)])
def test_text_has_contrast_in_light_and_dark(open_page, scheme, sign):
    page = open_page("guides/training.html", scheme=scheme)
    page.wait_for_function("document.documentElement.dataset.theme")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    background = brightness(page, "body", "backgroundColor")
    assert sign * (background - brightness(page, "article p, article td", "color")) > 120
    code = brightness(page, ".highlight pre", "backgroundColor")
    assert sign * (code - brightness(page, ".highlight pre", "color")) > 100


def test_search_finds_dense(open_page):
    page = open_page("search.html?q=Dense")
    page.wait_for_selector("ul.search li a")
    links = page.eval_on_selector_all("ul.search li a", "all => all.map(a => a.href)")
    assert any("layers.Dense.html" in link for link in links[:5]), links[:5]
    assert page.wrong == []


def test_the_search_box_leads_to_the_results(open_page):
    page = open_page("index.html")
    page.keyboard.press("Control+k")
    page.locator("input[name=q]:visible").first.fill("EarlyStopping")
    page.keyboard.press("Enter")
    page.wait_for_selector("ul.search li a")
    assert "EarlyStopping" in page.inner_text("ul.search")


def examples():
    folder = Path(__file__).parents[2] / "examples"
    elsewhere = ("quickstart", "two_ranks")  # they start processes, and are no pages
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in elsewhere)


@pytest.mark.parametrize("name", examples())
def test_a_gallery_page_shows_its_picture(open_page, name):
    page = open_page(f"gallery/{name}.html")
    sizes = page.eval_on_selector_all(
        "article img.sphx-glr-single-img, article img.sphx-glr-multi-img",
        "all => all.map(i => [i.complete, i.naturalWidth])",
    )
    assert sizes, f"{name} has no picture"
    assert all(complete and width > 300 for complete, width in sizes)
    assert page.wrong == []


def test_the_gallery_shows_a_thumbnail_of_every_example(open_page):
    page = open_page("gallery/index.html")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_function(
        "[...document.querySelectorAll('.sphx-glr-thumbcontainer img')].every(i => i.naturalWidth)"
    )
    sources = page.eval_on_selector_all(
        ".sphx-glr-thumbcontainer img", "all => all.map(i => i.src)"
    )
    assert len(sources) == len(examples())


def test_constructor_arguments_are_shown(open_page):
    page = open_page("api/layers.Dense.html")
    shown = page.inner_text("dl.py.class > dt")
    assert "units" in shown and "activation" in shown and "args" not in shown.replace("kwargs", "")


def test_other_sites_can_link_to_every_name():
    if not (SITE / "objects.inv").exists():
        pytest.skip(f"the documentation site is not built: {COMMAND}")
    header, *_, body = (SITE / "objects.inv").read_bytes().split(b"\n", 4)
    assert header == b"# Sphinx inventory version 2"
    names = {line.split(" ", 1)[0] for line in zlib.decompress(body).decode().splitlines()}
    assert {"kerasish.layers.Dense", "kerasish.Model.fit", "kerasish.ops.matmul"} <= names
    assert len(names) > 1000
