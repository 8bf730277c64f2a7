"""A small sound book, written into a temporary folder: what the tests of the pipeline break, one thing at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

import chapters
import export
import gate
import guard
import nbformat
import notebooks
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[1]

GRAMMAR = '''
@dataclass(frozen=True)
class Word:
    """A word."""

    text: str

    @property
    def length(self) -> int:
        """The number of letters."""
        return len(self.text)

    def shout(self) -> str:
        """The word in capitals."""
        return self.text.upper()

    def __str__(self) -> str:
        return self.text
'''
COUNTING = '''
LIMIT = 3


def count(words: list[Word], *others: Word, least: int = 0) -> int:
    """The number of words.

    Source: nobody.
    """
    return sum(word.length >= least for word in [*words, *others])
'''
DOUBLING = '''
def double(words: list[Word]) -> int:
    """Twice the number of words."""
    return 2 * count(words)


def _half(number: int) -> int:
    return number // 2
'''
SOUND = {
    "data.grammar": ("appendix/caption_grammar", "A small grammar", "from dataclasses import dataclass", GRAMMAR),
    "models.counting": (
        "history/counting",
        "Counting words",
        "from transformer_lib.data.grammar import Word",
        COUNTING,
    ),
    "models.doubling": (
        "history/doubling",
        "Doubling",
        "from transformer_lib.data.grammar import Word\nfrom transformer_lib.models.counting import count",
        DOUBLING,
    ),
}
PLACES = {module.split(".")[1]: place for module, (place, *_) in SOUND.items()}
INIT = '''"""A small library."""

from .data.grammar import Word
from .models.counting import LIMIT, count
from .models.doubling import double

__all__ = ["LIMIT", "Word", "count", "double"]
'''


CONTENTS = """root: book/index
parts:
  - caption: First
    numbered: true
    chapters:
      - file: book/history/counting
      - file: book/history/doubling
"""


class TinyProject:
    """Three notebooks, the modules they export, and a list of public names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "transformer_lib"

    def build(self) -> None:
        """Write and export the book."""
        root = self.root
        self.package.mkdir()
        (self.package / "__init__.py").write_text(INIT)
        (self.package / "py.typed").touch()
        (root / "_toc.yml").write_text(CONTENTS)
        shutil.copy(ROOT / "pyproject.toml", root)
        for module, (place, title, imports, code) in SOUND.items():
            self.write(place, self.cells(module, title, imports, code))
        export.export(root)

    def cells(self, module: str, title: str, imports: str, code: str) -> list[nbformat.NotebookNode]:
        """The cells of a chapter, with counts as if it had been executed."""
        sources = [
            chapters.colab_cell(root=self.root),
            f"#| default_exp {module}",
            f"#| export\n{imports}",
            f"#| export\n{code.strip()}",
        ]
        cells = [new_code_cell(source, execution_count=count) for count, source in enumerate(sources, 1)]
        shown = new_code_cell("print(6)\nassert 2 * 3 == 6", execution_count=len(cells) + 1)
        shown.outputs = [new_output("stream", name="stdout", text="6\n")]
        return [new_markdown_cell(f"# {title}\n\n> What {title} builds."), *cells, shown]

    def write(self, place: str, cells: list[nbformat.NotebookNode]) -> Path:
        """Write a notebook below book/."""
        for number, cell in enumerate(cells):
            cell.id = f"cell-{number}"
        notebook = new_notebook(cells=cells, metadata=nbformat.from_dict(notebooks.METADATA))
        path = self.root / "book" / f"{place}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        return path

    def path(self, module: str) -> Path:
        """The notebook of a module, named without its folder."""
        return self.root / "book" / f"{PLACES[module]}.ipynb"

    def module(self, module: str) -> Path:
        """The file of a module, named without its folder."""
        return next(self.package.rglob(f"{module}.py"), self.package / f"{module}.py")

    def edit(self, module: str, change) -> None:
        """Change one notebook through a function of its parsed content."""
        notebook = nbformat.read(self.path(module), as_version=4)
        change(notebook)
        nbformat.write(notebook, self.path(module))

    def replace(self, module: str, old: str, new: str, cell: int = 4) -> None:
        """Replace words in one cell of a chapter, and export the chapter."""

        def change(notebook: nbformat.NotebookNode) -> None:
            assert old in notebook.cells[cell].source, f"{old!r} is not in the cell"
            notebook.cells[cell].source = notebook.cells[cell].source.replace(old, new)

        self.edit(module, change)
        export.export(self.root)

    def gate(self) -> list[str]:
        """What the export gate says."""
        return gate.check(self.root)

    def guard(self) -> list[str]:
        """What the notebook guard says."""
        return guard.check(self.root)
