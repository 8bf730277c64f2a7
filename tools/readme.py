"""The parts of README.md that follow from other files: how to install, and the table of chapters."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from chapters import ROOT, Notebook, address, pages_url, repository

PART = re.compile(r"(<!-- (install|chapters): make export writes this -->\n).*?(<!-- end -->)", re.S)


def install(root: Path = ROOT) -> str:
    """The command that installs the library: from GitHub, or from the clone as long as there is no address."""
    url = address(root)
    what = f'"attention-step-by-step[viz] @ git+{url}"' if url else '".[viz]"'
    where = "" if url else "  # in a clone of this repository"
    return f"```bash\npip install {what}{where}\n```\n"


def chapters(root: Path = ROOT) -> str:
    """The numbered chapters by part, linked to notebooks or, once there is an address, to page and Colab."""
    url, rows = address(root), ["| part | chapters |", "|---|---|"]
    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        links = []
        for entry in part["chapters"] if part.get("numbered") else ():
            page = Notebook(root / f"{entry['file']}.ipynb", root)
            read, run = page.name, ""
            if url:
                read = f"{pages_url(url)}{entry['file']}.html"
                colab = url.replace("https://github.com", "https://colab.research.google.com/github")
                run = f" ([Colab]({colab}/blob/{repository(root)[1]}/{page.name}))"
            links.append(f"{page.number} [{page.title}]({read}){run}")
        if links:
            rows.append(f"| {part['caption']} | {'<br>'.join(links)} |")
    return "\n".join(rows) + "\n"


def renewed(text: str, root: Path = ROOT) -> str:
    """README with these parts as they are now."""
    parts = {"install": install, "chapters": chapters}
    return PART.sub(lambda found: found[1] + parts[found[2]](root) + found[3], text)


def write(root: Path = ROOT) -> None:
    """Bring the README up to date."""
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    if (new := renewed(text, root)) != text:
        path.write_text(new, encoding="utf-8")
