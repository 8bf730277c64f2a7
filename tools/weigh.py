"""What the first page of the built book loads before anything is touched: python tools/weigh.py [FOLDER]

Prints each file with its bytes, and with those that a server sends which compresses text with gzip. Fails if these are
more than the bound. Needs what picture.py needs.
"""

import gzip
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from chapters import ROOT

sys.path.append(str(ROOT / "tests"))
from browser import launch, serve

FIRST = "book/index.html"
BOUND = 300_000
PACKED = {".png", ".webp", ".woff", ".woff2"}  # no smaller with gzip


def loads(built: Path, name: str = FIRST, browser: Any = None) -> dict[str, tuple[int, int]]:
    """The files that a page loads by itself, with their bytes and those that are sent; the largest first."""
    asked: list[str] = []
    with serve(built) as address, nullcontext(browser) if browser else launch() as browser:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}{name}", wait_until="networkidle")
        page.wait_for_timeout(2000)  # what a script asks for later
    found = {}
    for url in asked:
        path = built / unquote(urlsplit(url).path).lstrip("/")
        if url.startswith(address) and path.is_file():
            data = path.read_bytes()
            sent = len(data if path.suffix in PACKED else gzip.compress(data, 6))
            found[path.relative_to(built).as_posix()] = len(data), sent
    return dict(sorted(found.items(), key=lambda one: -one[1][1]))


def main(built: Path) -> int:
    found = loads(built)
    for name, (whole, sent) in found.items():
        print(f"{whole:9,} {sent:9,}  {name}")
    whole, sent = (sum(column) for column in zip(*found.values(), strict=True))
    print(f"{whole:9,} {sent:9,}  {len(found)} files; at most {BOUND:,} are to be sent")
    return int(sent > BOUND)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "_build" / "html"))
