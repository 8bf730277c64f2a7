"""From cells to a module: imports at the top, and every part under the name of its page."""

from __future__ import annotations

import ast

import export

BEGIN = '''from math import sqrt
# a root
def root(x):
    """Its root."""
    from math import sqrt as inside
    return inside(x)
'''
MORE = "import torch\nONE = 1\n"
LATER = '''from math import sqrt
from transformer_lib.models.counter import root
TWO = sqrt(4), root(4)
TEXT = """
import this
"""
'''
PARTS = [("first", BEGIN), ("first", MORE), ("later", "import os"), ("later", LATER)]


def test_a_module_is_its_cells_with_their_imports_at_the_top() -> None:
    text = export.join("models.counter", PARTS)
    first = next(n for n, node in enumerate(ast.parse(text).body) if not isinstance(node, (ast.Import, ast.ImportFrom)))
    body = [ast.unparse(node) for node in ast.parse(text).body]
    assert body[:first] == ["from math import sqrt", "import torch", "import os"]  # once each, and not its own
    assert not any(line.startswith(("import", "from")) for line in body[first:])
    assert export.public(text) == ["root", "ONE", "TWO", "TEXT"]
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# page: first",
        "# a root",
        "# page: later",
    ]


def test_it_computes_what_the_cells_compute() -> None:
    page: dict[str, object] = {}
    for _, cell in PARTS:
        exec(cell.replace("from transformer_lib.models.counter import root\n", ""), page)
    library: dict[str, object] = {}
    exec(export.join("models.counter", PARTS), library)
    assert library["TWO"] == page["TWO"] == (2.0, 2.0) and library["TEXT"] == page["TEXT"]
