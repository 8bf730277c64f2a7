"""What of README.md follows from other files: how to install, the table of chapters, and where links lead."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from chapters import ROOT, Notebook, address, pages_url, repository

PART = re.compile(r"(<!-- (install|chapters): make export writes this -->\n).*?(<!-- end -->)", re.S)


def install(root: Path = ROOT) -> str:
    """The command that installs the library: from GitHub, or from the clone as long as there is no address."""
    url = address(root)
    what = f'"attention-step-by-step[viz] @ git+{url}@{repository(root)[1]}"' if url else '".[viz]"'
    where = "" if url else "  # in a clone of this repository"
    return f"```bash\npip install {what}{where}\n```\n"


def chapters(root: Path = ROOT) -> str:
    """The chapters by part, each with its promise; links go to notebooks or, once there is an address, to pages."""
    url, rows = address(root), []
    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        if not part.get("numbered"):
            continue
        rows += [f"**{part['caption']}**", "", "| | chapter | |", "|---|---|---|"]
        for entry in part["chapters"]:
            page = Notebook(root / f"{entry['file']}.ipynb", root)
            read, run = page.name, ""
            if url:
                read = f"{pages_url(url)}{entry['file']}.html"
                colab = url.replace("https://github.com", "https://colab.research.google.com/github")
                run = f" ([Colab]({colab}/blob/notebooks/{page.name}))"
            rows.append(f"| {page.number} | [{page.title}]({read}){run} | {plain(page.promise)} |")
        rows.append("")
    return "\n".join(rows)


def plain(promise: str) -> str:
    """A chapter's line of promise without the book's own roles and bars, which a table would take for columns."""
    return re.sub(r"\{[\w:]+\}`([^`]*)`", r"\1", promise).replace("|", "\\|")


def absolute(text: str, url: str | None) -> str:
    """Links that a package index can follow, too: to the book's pages, and to files of the repository."""
    if url is None:
        return text
    text = re.sub(r'(?<=[("])#(?:chapters|try-it)(?=[)"])', pages_url(url), text)  # the first page does both
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
