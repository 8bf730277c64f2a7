"""The parts of README.md that follow from other files: how to install, and the table of chapters."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import ROOT, Notebook, address, repository

PART = re.compile(r"(<!-- (install|chapters): make export writes this -->\n).*?(<!-- end -->)", re.S)


def install(root: Path = ROOT) -> str:
    """The command that installs the library: from GitHub, or from the clone as long as there is no address."""
    url = address(root)
    what = f'"attention-step-by-step[viz] @ git+{url}"' if url else '".[viz]"'
    where = "" if url else "  # in a clone of this repository"
    return f"```bash\npip install {what}{where}\n```\n"


def chapters(root: Path = ROOT) -> str:
    """The numbered chapters in their order, linked to notebooks or, once there is an address, to page and Colab."""
    url, rows = address(root), ["| | chapter | |", "|---|---|---|"]
    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        for entry in part["chapters"] if part.get("numbered") else ():
            page = Notebook(root / f"{entry['file']}.ipynb", root)
            read, run = page.name, ""
            if url:
                owner, name = urlsplit(url).path.strip("/").split("/")
                read = f"https://{owner.lower()}.github.io/{name}/{entry['file']}.html"
                colab = f"https://colab.research.google.com/github/{owner}/{name}"
                run = f"[Colab]({colab}/blob/{repository(root)[1]}/{page.name})"
            rows.append(f"| {page.number} | [{page.title}]({read}) | {run} |")
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
