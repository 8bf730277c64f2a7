"""The theme's styles, without the rules that no page and no script of the book can use.

A rule goes if each of its selectors names a class or an id that stands in no page's HTML and in no script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tinycss2
from sphinx.application import Sphinx

NAMED = re.compile(r"\b(?:class|id)=(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
WORD = re.compile(r"[\w-]+")
WANTED = re.compile(r"[.#](-?(?:[A-Za-z_]|\\.)(?:[\w-]|\\.)*)")
EXCUSED = re.compile(r":(?:not|is|where)\([^()]*(?:\([^()]*\)[^()]*)*\)")
NESTED = {"media", "supports", "layer", "container"}


def used(pages: Iterable[str], scripts: Iterable[str]) -> set[str]:
    """All names of classes and ids that pages hold, and all words of scripts, which may set any."""
    names = {
        name
        for page in pages
        for found in NAMED.findall(page)
        for name in "".join(found).split()
    }
    return names.union(*map(WORD.findall, scripts))


def trim(style: str, names: set[str]) -> str:
    """A style sheet without the rules that need other names."""
    rules = tinycss2.parse_stylesheet(
        style, skip_comments=True, skip_whitespace=True
    )
    return "".join(kept(rule, names) for rule in rules)


def kept(rule: Any, names: set[str]) -> str:
    if rule.type == "at-rule" and rule.content and rule.lower_at_keyword in NESTED:
        inside = trim(tinycss2.serialize(rule.content), names)
        head = f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}"
        return f"{head}{{{inside}}}" if inside else ""
    if rule.type != "qualified-rule":
        return rule.serialize()
    selectors = [
        one
        for one in split(tinycss2.serialize(rule.prelude))
        if names.issuperset(wanted(one))
    ]
    content = tinycss2.serialize(rule.content)
    return f"{','.join(selectors)}{{{content}}}" if selectors else ""


def wanted(selector: str) -> list[str]:
    """The classes and ids without which a selector finds nothing."""
    plain = re.sub(r"\[[^]]*\]", "", EXCUSED.sub("", selector))
    return [name.replace("\\", "") for name in WANTED.findall(plain)]


def split(selectors: str) -> list[str]:
    """The selectors of a rule: at commas that stand in no bracket and no string."""
    parts, depth = [""], 0
    for token in re.findall(r"\"[^\"]*\"|'[^']*'|\\.|[\s\S]", selectors):
        depth += (token in "([") - (token in ")]")
        if token == "," and not depth:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts]


def _trim_all(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    pages = (path.read_text("utf-8") for path in out.rglob("*.html"))
    scripts = (
        path.read_text("utf-8")
        for path in out.rglob("*.js")
        if path.name != "searchindex.js"
    )
    names = used(pages, scripts)
    for path in (out / "_static").rglob("*.css"):
        if path.name == "book.css" or {"translator", "katex"} & set(path.parts):
            continue  # ours, and what formulas need
        path.write_text(trim(path.read_text("utf-8"), names), "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", _trim_all, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
