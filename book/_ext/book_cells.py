"""What a reader sees of a code cell: the directives of the exporter and the cells that only serve it disappear.

- lines that begin with ``#|`` are taken off the shown code;
- cells marked ``#| hide`` or ``#| default_exp``, and the cell that installs the library on Colab, are left out;
- exported cells get the class ``tag_export`` and ``module-NAME``; the page shows the module's name as a badge, drawn
  by the style sheet so that it is neither copied with the code nor quoted in the page's description.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

DIRECTIVE = re.compile(r"^#\|\s*([\w-]+)[ \t]*([\w.]*)[^\n]*\n?", re.M)
EXPORTED = {"export", "exports", "exporti"}
LEFT_OUT = {"hide", "default_exp"}


def directives(source: str) -> dict[str, str]:
    """The exporter's directives of a cell, each with its first argument: {"default_exp": "metrics"}."""
    return {found[1]: found[2] for found in DIRECTIVE.finditer(source)}


def shown(source: str) -> str:
    """The code without the exporter's directives."""
    return DIRECTIVE.sub("", source).strip("\n")


def installs_on_colab(source: str) -> bool:
    """Whether this is the standard cell that installs the library on Colab."""
    return (
        source.lstrip().startswith("import sys")
        and "google.colab" in source
        and "%pip install" in source
    )


def is_element(name: str) -> Callable[[nodes.Node], bool]:
    """A condition for ``findall``: the container that myst-nb made for this part of a cell."""
    return lambda node: (
        isinstance(node, nodes.container) and node.get("nb_element") == name
    )


class TidyCells(SphinxTransform):
    """Take what serves the exporter off the page, and mark the exported cells."""

    default_priority = 300

    def apply(self, **kwargs: Any) -> None:
        module = ""
        for cell in list(self.document.findall(is_element("cell_code"))):
            blocks = [
                block
                for part in cell.findall(is_element("cell_code_source"))
                for block in part.findall(nodes.literal_block)
            ]
            source = "\n".join(block.astext() for block in blocks)
            marks = directives(source)
            module = marks.get("default_exp", "") or module
            if (
                LEFT_OUT & marks.keys()
                or installs_on_colab(source)
                or (blocks and not shown(source))
            ):
                cell.parent.remove(cell)
                continue
            if EXPORTED & marks.keys():
                cell["classes"] += [
                    "tag_export",
                    *([f"module-{module}"] if module else []),
                ]
            for block in blocks:
                block.rawsource = shown(block.astext())
                block.children = []
                block += nodes.Text(block.rawsource)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(TidyCells)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
