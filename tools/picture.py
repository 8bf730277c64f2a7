"""Photograph the translator of the built first page for the README, light and dark: python tools/picture.py.

Needs chromium and ``pip install playwright``.
"""

import sys

from chapters import ROOT

sys.path.append(str(ROOT / "tests"))
from browser import launch, serve


def main() -> None:
    """Serve the book, open it in both modes, and keep what the widget looks like."""
    with serve(ROOT / "_build" / "html") as address, launch() as browser:
        for mode in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": 1100, "height": 900},
                color_scheme=mode,
                reduced_motion="reduce",
                device_scale_factor=2,
            )
            page.goto(f"{address}book/index.html", wait_until="networkidle")
            page.locator(".tl-translator").screenshot(path=ROOT / "book" / "_static" / f"translator-{mode}.png")


if __name__ == "__main__":
    main()
