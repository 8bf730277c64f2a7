"""What of README.md follows from other files: how to install, the list of chapters, and where links lead."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from chapters import ROOT, Notebook, address, pages_url, repository

PART = re.compile(r"(<!-- (install|chapters): make export writes this -->\n).*?(<!-- end -->)", re.S)


def install(root: Path = ROOT) -> str:
    """The commands that get and install the project; without an address, it is there already."""
    url = address(root)
    clone = f"git clone --branch {repository(root)[1]} {url}\ncd {url.rsplit('/', 1)[1]}\n" if url else ""
    return f'```bash\n{clone}pip install ".[viz]"{"" if url else "  # in a clone of this repository"}\n```\n'


def chapters(root: Path = ROOT) -> str:
    """The chapters by part; links go to notebooks or, once there is an address, to pages."""
    url, rows = address(root), []
    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        if not part.get("numbered"):
            continue
        links = []
        for entry in part["chapters"]:
            page = Notebook(root / f"{entry['file']}.ipynb", root)
            where = f"{pages_url(url)}{entry['file']}.html" if url else page.name
            links.append(f"{page.number} [{page.title}]({where})")
        rows.append(f"- **{part['caption']}**: {' · '.join(links)}\n")
    return "".join(rows)


def absolute(text: str, url: str | None) -> str:
    """Links that a package index can follow, too: to the book's pages, and to files of the repository."""
    if url is None:
        return text
    text = re.sub(r"(?<=\()#(?:chapters|try-it)(?=\))", pages_url(url), text)  # the first page does both
    text = re.sub(r"(?s)(?<!\">)<picture>.*?</picture>", rf'<a href="{pages_url(url)}">\g<0></a>', text)
    text = re.sub(r"\]\((book/[\w/]+)\.(?:md|ipynb)\)", rf"]({pages_url(url)}\1.html)", text)
    text = re.sub(r'(src(?:set)?=")(?!https:)', rf"\1{url}/raw/main/", text)
    return re.sub(r"\]\((?!https:)", f"]({url}/blob/main/", text)


def renewed(text: str, root: Path = ROOT) -> str:
    """README with these parts as they are now."""
    parts = {"install": install, "chapters": chapters}
    return absolute(PART.sub(lambda found: found[1] + parts[found[2]](root) + found[3], text), address(root))


def write(root: Path = ROOT) -> None:
    """Bring the README up to date."""
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    if (new := renewed(text, root)) != text:
        path.write_text(new, encoding="utf-8")
