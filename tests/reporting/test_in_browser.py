"""The report in headless Chromium, if playwright can start one: light and dark, narrow and wide."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import make_problem, make_store

from streamsvm import fit, report

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
playwright = pytest.importorskip("playwright.sync_api")

_BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
# Texts on the page: size, whether the picture around them holds them, and contrast with what is behind.
_TEXTS = """() => {
  const light = (c, inverted) => {
    const v = c.match(/[0-9.]+/g).slice(0, 3).map((x) => inverted ? 1 - x / 255 : x / 255)
      .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (c !== "rgba(0, 0, 0, 0)") return light(c);
    }
  };
  const kinds = "svg text, h1, p, td, th, figcaption, .facts b, .facts span";
  return [...document.querySelectorAll(kinds)].map((e) => {
    const svg = e.closest("svg"), style = getComputedStyle(e), box = e.getBoundingClientRect();
    const inverted = svg && getComputedStyle(svg).filter.includes("invert");  // which a fill does not tell
    const a = light(svg ? style.fill : style.color, inverted), b = behind(e);
    const frame = svg && svg.getBoundingClientRect();
    return {
      text: e.textContent,
      contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05),
      size: parseFloat(style.fontSize) * (svg ? frame.width / svg.viewBox.baseVal.width : 1),
      inside: !svg || (box.left >= frame.left - 1 && box.right <= frame.right + 1
        && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1),
    };
  });
}"""


@pytest.fixture(scope="module")
def page_path(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    X, codes = make_problem(400, 7, 12, noise=1.5)
    train, valid = (
        make_store(folder / f"{name}.h5", X[rows], codes[rows], n_classes=12)
        for name, rows in (("train", slice(200)), ("valid", slice(200, 400)))
    )
    fit(train, out=folder / "run", passes=4, gap="pass", tol=1e-9, valid=valid)
    return report(folder / "run")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    own = os.environ.get("STREAMSVM_CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    with playwright.sync_playwright() as started:
        try:
            found = started.chromium.launch(executable_path=own, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield found
        found.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1600])
def test_it_is_readable(browser, page_path: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request", lambda request: said.append(request.url) if request.url != page_path.as_uri() else None
    )
    page.goto(page_path.as_uri())
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("document.querySelectorAll('svg').length") == 9 + 9
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    texts = page.evaluate(_TEXTS)
    assert len(texts) > 200
    assert [each for each in texts if each["contrast"] < 4.5] == []
    assert [each for each in texts if each["size"] < 9] == []
    assert [each for each in texts if not each["inside"]] == []
    page.close()


def test_it_can_be_printed(browser, page_path: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(page_path.as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    page.close()
