"""The pages of the library: one per folder, with readable shapes and links back to the chapter and to the source.

Docstrings end with ``Source:`` (paper, equation) and ``Chapter:`` (title). Both become fields; the chapter becomes a
link. Annotations such as ``Float[Tensor, "B T D"]`` are shown as they are written.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from typing import Any

from book_chapters import (
    chapters,
    link,
    spoken,
    table,
)
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)

PACKAGE = "transformer_lib"
HELD = "\ue000"
FIELD = re.compile(r"(?:^|(?<=\s))(Source|Chapter):\s+")
ANYTHING = re.compile(
    r"\(\*args(: ~?[\w.]+)?, \*\*kwargs(: ~?[\w.]+)?\)( -> None)?"
)
NOTEBOOK = re.compile(r"\s*\(book/[\w/]+\.ipynb\)")

# Names that a reader can look up elsewhere. The build reaches no other project's index, so they are not links.
NOT_LINKED = [
    (
        "py:.*",
        r"(collections\.abc|os|pathlib|argparse|dataclasses|typing|torch|numpy|matplotlib|jaxtyping|tokenizers)\..*",
    ),
    (
        "py:.*",
        r"(Tensor|Path|Module|Generator|Axes|Figure|Path|Sequence|Iterable|Iterator|optional)",
    ),
    ("py:.*", r"(float|int|str|bool|list|dict|tuple)[\[ ].*"),
    ("py:class", r"transformer_lib\..*\.(T|S|P)"),
]


def split_fields(text: str) -> list[tuple[str, str]]:
    """``"Source: a. Chapter: b."`` as ``[("Source", "a."), ("Chapter", "b.")]``."""
    parts = FIELD.split(text.strip())
    return [
        (name, value.strip())
        for name, value in zip(parts[1::2], parts[2::2], strict=True)
    ]


def fields(
    lines: list[str], page_of: dict[str, str]
) -> tuple[list[str], list[str]]:
    """A docstring whose ``Source:`` and ``Chapter:`` paragraphs are turned into fields, and the titles not found."""
    out: list[str] = []
    unknown: list[str] = []
    rest = list(lines)
    while rest:
        line = rest.pop(0)
        found = FIELD.search(line)
        if not found or line[:1].isspace():
            out.append(line)
            continue
        before, paragraph = line[: found.start()].rstrip(), [line[found.start() :]]
        while rest and rest[0].strip() and not rest[0].startswith(":"):
            paragraph.append(rest.pop(0).strip())
        out += [before, ""] if before else [""] if out and out[-1].strip() else []
        for name, value in split_fields(" ".join(paragraph)):
            if name == "Source" and value.rstrip(".") == "none":
                continue
            if name == "Chapter":
                title = NOTEBOOK.sub("", value).rstrip(".").strip()
                if title in page_of:
                    value = f":doc:`{title} </{page_of[title]}>`"
                else:
                    unknown.append(title)
            out.append(f":{name}: {value}")
    return [*out, ""], unknown


def pages_by_title() -> dict[str, str]:
    """The page of each chapter, by its title."""
    return {found.title: found.docname for found in chapters()}


def _docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    if what == "module":  # its page begins with the same words
        lines[:] = []
        return
    new, unknown = fields(lines, pages_by_title())
    for title in unknown:
        logger.warning(
            "%s names the chapter %r, which no page of the book has as its title",
            name,
            title,
        )
    if what in ("property", "attribute", "data") and new:
        new[0] = new[0].replace(
            ": ", HELD
        )  # napoleon would take what stands before it for a type
    lines[:] = new


def _give_back(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = [line.replace(HELD, ": ") for line in lines]


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str, str | None] | None:
    """No arguments for a class that takes none: ``nn.Module`` and ``Protocol`` show theirs in its place."""
    if what == "class" and ANYTHING.fullmatch(signature or ""):
        return "", returned
    return None


def show_annotation(annotation: Any, config: Config) -> str | None:
    """Shapes as they are written; None leaves the annotation to the extension that asks."""
    if annotation is Ellipsis:
        return "..."
    if getattr(annotation, "__module__", "") == "jaxtyping" and hasattr(
        annotation, "dim_str"
    ):
        array = getattr(
            annotation.array_type, "__name__", str(annotation.array_type)
        )
        kind = re.match(r"\w+", annotation.__name__)
        return (
            f'``{kind[0] if kind else "Shaped"}[{array}, "{annotation.dim_str}"]``'
        )
    return None


def source_lines(domain: str, info: dict[str, str]) -> tuple[str, int, int] | None:
    """The file and lines of a public name, relative to the repository."""
    if domain != "py" or not info.get("module", "").startswith(PACKAGE):
        return None
    found: Any = sys.modules.get(info["module"])
    for part in info["fullname"].split("."):
        found = getattr(found, part, None)
    if isinstance(found, property):
        found = found.fget
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(found))
    except (TypeError, OSError, ValueError):
        return None
    return info["module"].replace(".", "/") + ".py", first, first + len(lines) - 1


def blob(config: Config, path: str) -> str:
    """The address of a file of the repository."""
    options = config.html_theme_options
    return f"{options['repository_url']}/blob/{options['repository_branch']}/{path}"


class LibraryModules(SphinxDirective):
    """``{library-modules} models``: the modules of a folder, in the order of the book, with every public name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = ""
        for found in chapters():
            for name in found.modules:
                if name.split(".")[0] == self.arguments[0]:
                    path = f"{PACKAGE}/{name.replace('.', '/')}.py"
                    text += f"## `{name}`\n\nBuilt in {{chapter}}`{found.number}`, {found.title}. "
                    text += f"Source: [`{path}`]({blob(self.config, path)}).\n\n"
                    if not import_module(f"{PACKAGE}.{name}").__all__:
                        text += "It has no public names: other modules of its page use it.\n\n"
                        continue
                    text += "```{eval-rst}\n"
                    text += f".. automodule:: {PACKAGE}.{name}\n   :members:\n   :member-order: bysource\n```\n\n"
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class LibraryTable(SphinxDirective):
    """``{library-table}``: the modules, each with its page and what it builds."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for found in chapters():
            for name in found.modules:
                own = found._replace(docname=f"book/api/{name.split('.')[0]}")
                rows.append(
                    [
                        [link(self.env.docname, own, name)],
                        [
                            link(
                                self.env.docname,
                                found,
                                f"{spoken(found)}, {found.title}",
                            )
                        ],
                    ]
                )
        return [table(["Module", "Built in"], rows, [40, 60], ["library-modules"])]


def _configure(app: Sphinx, config: Config) -> None:
    def resolve(domain: str, info: dict[str, str]) -> str | None:
        if (place := source_lines(domain, info)) is None:
            return None
        path, first, last = place
        return f"{blob(config, path)}#L{first}-L{last}"

    config.linkcode_resolve = resolve
    config.typehints_formatter = show_annotation
    config.nitpick_ignore_regex = [*config.nitpick_ignore_regex, *NOT_LINKED]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("library-modules", LibraryModules)
    app.add_directive("library-table", LibraryTable)
    app.connect("config-inited", _configure)
    app.connect(
        "autodoc-process-docstring", _docstring, priority=400
    )  # before napoleon reads it
    app.connect("autodoc-process-docstring", _give_back, priority=600)  # after it
    app.connect("autodoc-process-signature", _signature, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
