"""The pages of the library: every public name, with readable shapes and links to the chapter and to the source.

Annotations such as ``Float[Tensor, "B T D"]`` are shown as they are written.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
from dataclasses import MISSING
from importlib import import_module
from pathlib import Path
from pydoc import locate
from typing import Any, TypeVar, get_type_hints

from book_chapters import chapters
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import stringify_signature
from sphinx_autodoc_typehints import process_signature

PACKAGE = "transformer_lib"
PLAIN: dict[str, list[str]] = {}  # docstrings of properties, as they are written
ANYTHING = re.compile(
    r"\(\*args(: ~?[\w.]+)?, \*\*kwargs(: ~?[\w.]+)?\)( -> None)?"
)

# Names that a reader can look up elsewhere. The build reaches no other project's index, so they are not links.
NOT_LINKED = [
    (
        "py:.*",
        r"(ast|collections\.abc|contextlib|random|types|os|pathlib|argparse|dataclasses|typing|torch|numpy|matplotlib|jaxtyping|tokenizers)\..*",
    ),
    (
        "py:.*",
        r"(Float|Int|Bool|Shaped|Tensor|ndarray|Path|Module|Generator|Axes|Figure|Path|Sequence|Iterable|Iterator|optional)",
    ),
    ("py:.*", r"(float|int|str|bool|list|dict|tuple)[\[ ].*"),
    ("py:class", r"transformer_lib\..*\.(T|S|P)"),
]


def settings_signature(made: type) -> str:
    """The fields of a dataclass with their plain types and defaults."""
    hints = get_type_hints(made)  # without the limits that pydantic checks
    fields = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY
            if one.kw_only
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=hints[one.name],
            default=inspect.Parameter.empty
            if one.default is MISSING is one.default_factory
            else ...
            if one.default is MISSING
            else one.default,
        )
        for one in dataclasses.fields(made)
        if one.init
    ]
    return stringify_signature(
        inspect.Signature(sorted(fields, key=lambda one: one.kind))
    )


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str, str | None] | None:
    """A class returns itself, so it needs no arrow; ``nn.Module`` and ``Protocol`` hide that it takes no arguments."""
    if what != "class":
        return None
    if dataclasses.is_dataclass(obj):
        return settings_signature(obj), None
    if ANYTHING.fullmatch(signature or ""):
        return "", None
    found = process_signature(app, what, name, obj, options, signature, returned)
    return found and (found[0].removesuffix(" -> None"), None)


def show_annotation(annotation: Any, config: Config) -> str | None:
    """Shapes as they are written; None leaves the annotation to the extension that asks."""
    if annotation is Ellipsis or isinstance(annotation, TypeVar):
        return "..." if annotation is Ellipsis else f"``{annotation.__name__}``"
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


def modules(place: str = "") -> list[str]:
    """The modules of a folder of the package, without its name: those that chapters build first, in their order."""
    package = Path(__file__).resolve().parents[2] / PACKAGE
    names = [
        ".".join(path.relative_to(package).with_suffix("").parts)
        for path in package.rglob("*.py")
        if not path.stem.startswith("__") and path.parent.name != "student"
    ]
    order = [name for page in chapters() for name in page.modules] + sorted(names)
    chosen = [name for name in names if place in ("", name, name.split(".")[0])]
    return sorted(chosen, key=lambda name: (name.split(".")[0], order.index(name)))


def built_in(name: str) -> str:
    """Links to the chapters that build a module."""
    pages = [page.docname for page in chapters() if name in page.modules]
    return ", ".join(f"{{Chapter}}`{page.rpartition('/')[2]}`" for page in pages)


def public(name: str) -> list[tuple[str, str]]:
    """The documented public names of a module, each with the first line of its docstring."""
    module = import_module(f"{PACKAGE}.{name}")
    names = getattr(
        module, "__all__", [one for one in vars(module) if not one.startswith("_")]
    )
    found = [(one, getattr(module, one)) for one in names]
    return [
        (one, inspect.getdoc(value).splitlines()[0])
        for one, value in found
        if (inspect.isclass(value) or inspect.isroutine(value))
        and value.__module__ == module.__name__
        and inspect.getdoc(value)
    ]


def entries(name: str) -> str:
    """What a module offers: first what the package exports, then what that is made of."""
    module, names = import_module(f"{PACKAGE}.{name}"), dict(public(name))
    exported = () if name.startswith("plain.") else dir(import_module(PACKAGE))
    lead = "".join(documented(module, one) for one in names if one in exported)
    rest = "".join(documented(module, one) for one in names if one not in exported)
    made_of = "```{rubric} Made of\n```\n\n" if lead and rest else ""
    place = f"```{{eval-rst}}\n.. py:module:: {PACKAGE}.{name}\n```\n\n"
    return place + lead + made_of + rest


def heading(name: str) -> str:
    """The first names that a module offers; of plain code its file, by which it is imported."""
    if name.startswith("plain."):
        return f"`{name}`"
    names, exported = [one for one, _ in public(name)], dir(import_module(PACKAGE))
    first = [one for one in names if one in exported] or names
    return ", ".join(f"`{one}`" for one in first[:3]) + " …" * (len(first) > 3)


def documented(module: Any, name: str) -> str:
    """A class with its methods, or a function, for autodoc."""
    kind = "class" if inspect.isclass(getattr(module, name)) else "function"
    members = "   :members:\n" if kind == "class" else ""
    return f"```{{eval-rst}}\n.. auto{kind}:: {module.__name__}.{name}\n{members}```\n\n"


class LibraryModules(SphinxDirective):
    """``{library-modules} models``: the modules of a folder, or those that are named, with every public name."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        text = ""
        named = [
            one for place in self.arguments[0].split() for one in modules(place)
        ]
        for name in filter(public, named):
            built = f"{built_in(name)}. " if built_in(name) else ""
            line = import_module(f"{PACKAGE}.{name}").__doc__.split("\n\n")[0]
            text += "" if name == self.arguments[0] else f"## {heading(name)}\n\n"
            text += f"{line}\n\n{built}Source: `{PACKAGE}/{name.replace('.', '/')}.py`.\n\n"
            text += entries(name)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class LibraryTable(SphinxDirective):
    """``{library-table}``: every public name of every module, with one line, and the chapter that builds it."""

    def run(self) -> list[nodes.Node]:
        text = ""
        for name in filter(public, modules()):
            text += f"| `{name}` | {built_in(name)} |\n|---|---|\n"
            for one, line in public(name):
                text += f"| {{py:obj}}`~{PACKAGE}.{name}.{one}` | {line} |\n"
            text += "\n"
        return self.parse_text_to_nodes(text)


class LongSignatures(SphinxPostTransform):
    """A signature over several lines is a term whose lines the style sheet breaks, not a list without terms inside it."""

    default_priority = 700

    def run(self, **kwargs: Any) -> None:
        for node in self.document.findall(addnodes.desc_parameterlist):
            if node.get("multi_line_parameter_list"):
                node["multi_line_parameter_list"] = False
                node.parent["classes"].append("sig-lines")


def lent(name: str) -> bool:
    """Whether a method has no words of its own, and those of a class of another package would be shown."""
    owner, _, method = name.rpartition(".")
    for one in getattr(locate(owner), "__mro__", ()):
        if getattr(vars(one).get(method), "__doc__", None):
            return one.__module__.split(".")[0] != PACKAGE
    return False


def _docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Before napoleon: a module's page begins with the same words, so they need not stand twice."""
    if what == "module" or (what == "method" and lent(name)):
        lines[:] = []
    elif what in ("property", "attribute", "data"):
        PLAIN[name] = list(lines)


def _plain(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """After napoleon, which takes what stands before a colon in a property's first line for its type."""
    lines[:] = PLAIN.pop(name, lines)


def _configure(app: Sphinx, config: Config) -> None:
    config.typehints_formatter = show_annotation
    config.nitpick_ignore_regex = [*config.nitpick_ignore_regex, *NOT_LINKED]


def _no_fault_of_ours(record: logging.LogRecord) -> bool:
    """Pydantic names types that exist for type checkers only."""
    return not re.match(
        "Cannot resolve forward reference|Failed guarded type import",
        record.getMessage(),
    )


def setup(app: Sphinx) -> dict[str, Any]:
    logging.getLogger("sphinx.sphinx_autodoc_typehints").addFilter(
        _no_fault_of_ours
    )
    app.add_directive("library-modules", LibraryModules)
    app.add_directive("library-table", LibraryTable)
    app.add_post_transform(LongSignatures)
    app.connect("config-inited", _configure)
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("autodoc-process-docstring", _plain, priority=600)
    app.connect("autodoc-process-signature", _signature, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
