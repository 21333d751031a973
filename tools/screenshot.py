"""A picture of the page of a run, by the browser that the tests of the page use.

    ISSFA_BROWSER=$(tools/browser) tools/python tools/screenshot.py RUN/report.html picture.png [--width 400] [--dark]
        [--part '#features'] [--height 560] [--feature ID]

Without --part it is the whole page; --height cuts what is lower. It fails where the page has a problem or is wider than asked.
"""

import argparse
import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def picture(page, options):
    if options.feature is not None:
        page.locator(f'.card[data-id="{options.feature}"]').click()
    # Pictures of features are drawn when they are scrolled to.
    page.evaluate("document.querySelectorAll('.card').forEach((card) => card.draw())")
    page.wait_for_timeout(300)
    wide = page.evaluate("document.documentElement.scrollWidth")
    whole = {"x": 0, "y": 0, "width": options.width, "height": page.evaluate("document.documentElement.scrollHeight")}
    box = page.locator(options.part).bounding_box() if options.part else whole
    if options.height:
        box["height"] = min(box["height"], options.height)
    page.screenshot(path=options.picture, clip=box, full_page=True)
    return [f"the page is {wide} pixels wide"] if wide > options.width else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--height", type=int)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--part", help="a selector, such as #features")
    parser.add_argument("--feature", type=int, help="the id of the feature to show")
    options = parser.parse_args()
    problems = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=os.environ["ISSFA_BROWSER"], args=["--no-sandbox"])
        size, scheme = {"width": options.width, "height": 900}, "dark" if options.dark else "light"
        page = browser.new_context(viewport=size, offline=True, color_scheme=scheme).new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(options.page.resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        problems += picture(page, options)
        browser.close()
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
