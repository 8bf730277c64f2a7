"""The table of chapters in README.md, from the notebooks: number, title with its Colab link, promise, modules."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import ROOT, Notebook, repository

OPEN, CLOSE = "<!-- chapters: make export writes this table -->\n", "<!-- end of chapters -->"


def table(root: Path = ROOT) -> str:
    """The rows, in the order of the contents; appendices have letters."""
    address, branch = repository(root)
    colab = address.replace("https://github.com", "https://colab.research.google.com/github")
    rows, letters = (
        ["| | chapter | what it builds | modules |", "|---|---|---|---|"],
        iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    )
    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        for entry in part["chapters"]:
            path = root / f"{entry['file']}.ipynb"
            if path.exists():
                page = Notebook(path, root)
                number = f"{page.number:02}" if page.number else next(letters)
                promise = re.search(r"^> (.+)$", page.cells[0].source, re.M)[1].rstrip(".")
                modules = ", ".join(f"`{module}`" for module in page.modules)
                rows.append(f"| {number} | [{page.title}]({colab}/blob/{branch}/{page.name}) | {promise} | {modules} |")
    return "\n".join(rows) + "\n"


def renewed(text: str, root: Path = ROOT) -> str:
    """README with the table as it is now."""
    before, rest = text.split(OPEN)
    return before + OPEN + table(root) + CLOSE + rest.split(CLOSE, 1)[1]


def write(root: Path = ROOT) -> None:
    """Bring the README up to date."""
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    if (new := renewed(text, root)) != text:
        path.write_text(new, encoding="utf-8")
