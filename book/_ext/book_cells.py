"""What a reader sees of a code cell: directives disappear, marked cells fold.

- lines that begin with ``#|`` are taken off the shown code;
- cells marked ``#| hide`` or ``#| default_exp``, and the cell that installs the library on Colab, are left out;
- exported cells get the class ``tag_export`` and ``module-NAME``; the page shows the module's name as a badge, drawn
  by the style sheet so that it is neither copied with the code nor quoted in the page's description;
- a cell that folds becomes a ``<details>`` under its label; what is folded is in the page, so it is found, printed
  and copied;
- a solution is a ``<details>`` too;
- a plot is drawn in the page, whose font its words have; in an ePub it is a file;
- a figure to touch, in an ePub, is its first frame.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from book_chapters import directives, fold, shown
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx_exercise.nodes import solution_node


def installs_on_colab(source: str) -> bool:
    """Whether this is the standard cell that installs the library on Colab."""
    return source.lstrip().startswith("import sys") and "%pip install" in source


def is_wide_table(text: str) -> bool:
    """Whether a printed table is too wide for a phone, but fits one in smaller type."""
    lines = text.splitlines()
    in_columns = sum("  " in line.strip() for line in lines)
    return in_columns > 1 and 52 < max(map(len, lines)) <= 60


def is_element(name: str) -> Callable[[nodes.Node], bool]:
    """A condition for ``findall``: the container that myst-nb made for this part of a cell."""
    return lambda node: (
        isinstance(node, nodes.container) and node.get("nb_element") == name
    )


class TidyCells(SphinxTransform):
    """Take what serves the exporter off the page, mark the exported cells, and fold what is to be folded."""

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
            left_out = {"hide", "default_exp"} & marks.keys() or installs_on_colab(
                source
            )
            if left_out or (blocks and not shown(source)):
                cell.parent.remove(cell)
                continue
            if "export" in marks:
                cell["classes"].append("tag_export")
                if goes_to := marks["export"] or module:
                    cell["classes"].append(f"module-{goes_to}")
            tags = (cell.get("cell_metadata") or {}).get("tags", [])
            if (label := fold(source, tags)) is not None:
                cell["hide_mode"] = cell.get("hide_mode") or "input"
                cell["prompt_show"] = cell["prompt_hide"] = label
            elif cell.get("hide_mode"):
                cell["prompt_show"] = cell["prompt_hide"] = "The output"
            for part in cell.findall(is_element("cell_code_output")):
                for printed in part.findall(nodes.literal_block):
                    if is_wide_table(printed.astext()):
                        printed["classes"].append("wide-table")
            for block in blocks:
                block.rawsource = shown(block.astext())
                block.children = []
                block += nodes.Text(block.rawsource)


# ---- in the page ----


def label_html(label: str) -> str:
    """The label of a folded cell, whose words in backticks are code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(label, quote=False))


def _open_fold(self: Any, node: HideCodeCellNode) -> None:
    label = f'<span class="fold-label">{label_html(node["prompt_show"])}</span>'
    if "below-input" not in node["classes"]:
        code = next(node.findall(nodes.literal_block)).astext()
        label += f' <span class="fold-size">{len(code.splitlines())} lines</span>'
    self.body.append(f'<details class="fold">\n<summary>{label}</summary>\n')


def _close_fold(self: Any, node: HideCodeCellNode) -> None:
    self.body.append("</details>\n")


def _open_solution(self: Any, node: solution_node) -> None:
    title = next(node.findall(nodes.title))
    node.remove(title)
    for child in node.children:
        child["ids"] = []  # every solution of a page has the same
    node["classes"].remove("dropdown")
    self.body.append(self.starttag(node, "details"))
    label = html.escape(title.astext(), quote=False)
    self.body.append(
        f'<summary><span class="fold-label">{label}</span></summary>\n'
    )


def still(page: str) -> str:
    """HTML for an ePub, whose pages are XML and run no scripts: without them, and without what needs them."""
    page = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    page = re.sub(
        r'<div class="touch-controls">.*?</div>', "", page, flags=re.DOTALL
    )
    page = re.sub(r"<(input|br|img)\b([^>]*?)\s*/?>", r"<\1\2/>", page)
    return re.sub(
        r"(<[^<>]*?\s)(checked|disabled|selected)(?=[\s/>])", r'\1\2="\2"', page
    )


def stand_still(app: Sphinx, doctree: nodes.document, page: str) -> None:
    if app.builder.name == "epub":
        for node in list(doctree.findall(nodes.raw)):
            if "html" in node["format"].split() and "<script" in node.astext():
                told = "In the book on the web, there is something to try here."
                node.replace_self(
                    nodes.paragraph("", "", nodes.emphasis("", told))
                    if "<form" in node.astext() or "<link" in node.astext()
                    else nodes.raw("", still(node.astext()), format="html")
                )


def draw_in_page(app: Sphinx, doctree: nodes.document, page: str) -> None:
    if app.builder.name == "epub":
        return
    for output in doctree.findall(is_element("cell_code_output")):
        for image in list(output.findall(nodes.image)):
            if image["uri"].endswith(".svg"):
                svg = Path(app.srcdir, image["uri"]).read_text(encoding="utf-8")
                words = html.escape(image.get("alt", ""))
                head = f'<svg class="plot" role="img" aria-label="{words}"'
                svg = svg.replace("<svg", head, 1)
                image.replace_self(nodes.raw("", svg, format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(TidyCells)
    app.connect("doctree-resolved", stand_still)
    app.connect("doctree-resolved", draw_in_page)
    for theirs in ("myst_nb", "sphinx_exercise"):
        app.setup_extension(theirs)
    app.add_node(HideCodeCellNode, override=True, html=(_open_fold, _close_fold))
    app.add_node(solution_node, override=True, html=(_open_solution, _close_fold))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
