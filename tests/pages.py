"""What the pages say, for the tests that hold it against the records."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def read(path: Path) -> Any:
    """The content of a JSON file, such as a record or a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))


def prose_of(chapter: str) -> str:
    """All Markdown of a chapter, such as ``translation/training``, a line break between cells."""
    cells = read(ROOT / "book" / f"{chapter}.ipynb")["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def code_of(chapter: str) -> str:
    """All code of a chapter, a line break between cells."""
    cells = read(ROOT / "book" / f"{chapter}.ipynb")["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def record_of(name: str) -> dict[str, Any]:
    """A record, such as ``ablations``."""
    return read(ROOT / "transformer_lib" / "results" / f"{name}.json")
