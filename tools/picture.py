"""Film the opening of the built first page for the README, light and dark: python tools/picture.py [the built book].

A sentence translates itself; then the slider goes to one word, and to all words equally. Needs Chromium.
"""

import io
import sys
from pathlib import Path

from chapters import ROOT
from PIL import Image

sys.path.append(str(ROOT / "tests"))
from browser import launch, serve

WORD = 90  # milliseconds, as in breaking.js
SHOWN = 55  # how long the film shows each; it is a little faster
STOPS = {"0": 600, "4": 800, "5": 900}  # where the slider goes, and how long what is left stays to be read


def film(page):
    """The frames, each with the milliseconds for which it stays."""
    slider, frame = page.locator(".br-stage input"), page.locator(".br-stage").bounding_box()
    clip = {key: round(value) for key, value in frame.items()}
    for stop, rest in STOPS.items():
        slider.evaluate("(it, to) => { it.value = to; it.dispatchEvent(new Event('input')) }", stop)
        while page.locator(".br-later").count():
            page.clock.run_for(WORD)
            yield page.screenshot(clip=clip), SHOWN
        page.clock.run_for(WORD)
        yield page.screenshot(clip=clip), rest


def main(book: Path) -> None:
    """Serve the book, open it in both modes, and keep what the opening does."""
    with serve(book) as address, launch() as browser:
        for mode in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1060, "height": 900}, color_scheme=mode)
            page.clock.install()
            page.goto(f"{address}book/index.html", wait_until="networkidle")
            page.clock.pause_at(page.evaluate("Date.now()") + 10_000)  # from here on, time passes when we say so
            shots, times = zip(*film(page), strict=True)
            first, *others = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
            path = ROOT / "book" / "_static" / f"opening-{mode}.webp"
            options = {"quality": 55, "method": 6, "minimize_size": True, "loop": 0}
            first.save(path, save_all=True, append_images=others, duration=list(times), **options)
            print(f"{path.name}: {sum(times) / 1000:.1f} s, {len(times)} frames, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "_build" / "html")
