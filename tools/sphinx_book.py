"""Build the book with today's Sphinx, without Jupyter Book, warnings as errors: the way out when Jupyter Book 1.x ages.

    python tools/sphinx_book.py

Jupyter Book, in an environment of its own, writes the configuration; Sphinx, in another one, builds from it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOOK = ("jupyter-book>=1.0.4.post1,<2",)
SPHINX = [
    "sphinx>=8.2",
    "myst-nb",
    "sphinx-book-theme",
    "sphinx-external-toc",
    "sphinx-multitoc-numbering",
    "sphinx-togglebutton",
    "sphinx-copybutton",
    "sphinx-design",
    "sphinx-comments",
    "sphinx-jupyterbook-latex",
    "sphinxcontrib-bibtex",
    "sphinx-thebe",
    "sphinx-exercise",
    "sphinx-notfound-page",
    "sphinx-sitemap",
    "sphinxext-opengraph",
    "sphinx-autodoc-typehints",
]


def environment(name: str, *packages: str) -> Path:
    """The folder with the programs of a fresh environment."""
    folder = ROOT / "build" / name
    if not (folder / ".ready").exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / ".ready").touch()
    return folder / "bin"


def main() -> int:
    conf = ROOT / "conf.py"
    config = environment("jupyter-book", *BOOK) / "jupyter-book"
    (torch,) = re.findall(r"^torch==\S+", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M)
    sphinx = environment("sphinx", torch, *SPHINX, f"{ROOT}[viz]") / "python"
    try:
        subprocess.run([config, "config", "sphinx", ROOT], check=True, stdout=subprocess.DEVNULL)
        text = re.sub(r"'jupyter_book',? ?", "", conf.read_text(encoding="utf-8"))
        conf.write_text(f"import sys\nsys.path.insert(0, {str(ROOT / 'book' / '_ext')!r})\n{text}", encoding="utf-8")
        command = [sphinx, "-m", "sphinx", "-W", "--keep-going", "-n", "-b", "html", ROOT, ROOT / "_build" / "sphinx"]
        return subprocess.run(command).returncode
    finally:
        conf.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
