"""What the tools of the pipeline know about the book's notebooks: where they are, and what a chapter declares."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("appendix", "history", "transformer", "translation", "descendants")
CHAPTER_PARTS = PARTS[1:]
PACKAGE = "transformer_lib"
BY_HAND = {"__init__.py", "__main__.py", "py.typed"}  # in the package and its folders
SHIPPED = "pretrained"  # folder of the package with the models that come with it: made by commands, not by notebooks

COLAB_CELL = """import sys

if "google.colab" in sys.modules:
    %pip install -q "attention-step-by-step[viz] @ git+{}@{}\""""

DEFAULT_EXP = re.compile(r"^#\|\s*default_exp\s+(\S+)\s*$", re.M)
EXPORT = re.compile(r"^#\|\s*(export\w*)[ \t]*(.*)$", re.M)
TITLE = re.compile(r"^# (\S.*)$", re.M)


@dataclass(frozen=True)
class Cell:
    """One cell: its place among all cells (from 0), and what the file holds."""

    index: int
    data: dict

    @property
    def kind(self) -> str:
        return self.data["cell_type"]

    @cached_property
    def source(self) -> str:
        return "".join(self.data["source"])

    @property
    def metadata(self) -> dict:
        return self.data.get("metadata", {})

    @property
    def tags(self) -> list[str]:
        return list(self.metadata.get("tags", []))

    @property
    def count(self) -> int | None:
        return self.data.get("execution_count")

    @property
    def outputs(self) -> list[dict]:
        return self.data.get("outputs", [])

    @property
    def exports(self) -> bool:
        """Whether the cell goes into the module."""
        return self.kind == "code" and EXPORT.search(self.source) is not None


@dataclass(frozen=True)
class Notebook:
    """One notebook of the book."""

    path: Path
    root: Path

    @property
    def name(self) -> str:
        """The path inside the repository."""
        return self.path.relative_to(self.root).as_posix()

    @property
    def part(self) -> str:
        """The folder below ``book``: history, transformer, ..., appendix."""
        return self.path.relative_to(self.root / "book").parts[0]

    @cached_property
    def data(self) -> dict:
        return json.loads(self.path.read_text(encoding="utf-8"))

    @cached_property
    def cells(self) -> list[Cell]:
        return [Cell(index, data) for index, data in enumerate(self.data["cells"])]

    @property
    def code(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.kind == "code"]

    @property
    def title(self) -> str | None:
        """The first heading of level one."""
        for cell in self.cells:
            if cell.kind == "markdown" and (found := TITLE.search(cell.source)):
                return found[1].strip()
        return None

    @cached_property
    def defaults(self) -> list[str]:
        """Every module that a ``default_exp`` directive names; a sound page has one at most."""
        return [name for cell in self.code for name in DEFAULT_EXP.findall(cell.source)]

    @property
    def module(self) -> str | None:
        """The page's main module, where ``#| export`` without a name goes."""
        return self.defaults[0] if self.defaults else None

    @cached_property
    def modules(self) -> list[str]:
        """Every module that the page exports, in the order of its cells."""
        return list(dict.fromkeys(self.target(cell) for cell in self.exported))

    def target(self, cell: Cell) -> str | None:
        """The module that an exported cell goes into."""
        return EXPORT.search(cell.source)[2].strip() or self.module

    @property
    def exported(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.exports]

    @property
    def number(self) -> int | None:
        """The place in the order of the book: the number in the file's name; 0 for the appendix, the ground floor."""
        if self.part == "appendix":
            return 0
        found = re.match(r"(\d+)_", self.path.name)
        return int(found[1]) if found else None


def notebooks(root: Path = ROOT) -> list[Path]:
    """Every notebook of the book, the appendix (the ground floor) first, then in reading order."""
    ignored = {".ipynb_checkpoints", "_build"}
    found = [path for path in (root / "book").rglob("*.ipynb") if not ignored & set(path.parts)]
    order = {part: place for place, part in enumerate(PARTS)}
    return sorted(found, key=lambda path: (order.get(path.parent.name, len(order)), path.name))


def book(root: Path = ROOT) -> list[Notebook]:
    """The notebooks, read."""
    return [Notebook(path, root) for path in notebooks(root)]


def repository(root: Path = ROOT) -> tuple[str, str]:
    """The project's address and the branch that readers get: both are declared in pyproject.toml."""
    declared = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return declared["project"]["urls"]["Homepage"], declared["tool"]["transformer-lib"]["branch"]


def colab_cell(root: Path = ROOT) -> str:
    """The source of every notebook's second cell: on Colab it installs the package."""
    return COLAB_CELL.format(*repository(root))
