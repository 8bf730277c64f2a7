"""Write the book as a PDF that one would print: python tools/pdf.py [OUTPUT], by default _build/pdf/book.pdf.

The chapters as readers download them, through pandoc and Typst, without LaTeX: all code that stands open on a page,
figures to touch as they open, solutions behind the last chapter. ``make pdf`` installs what it needs.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pypandoc
import typst
import yaml
from chapters import ROOT, Notebook, address, directives, fold, numbers, pages_url, shown

sys.path.append(str(ROOT / "book" / "_ext"))
from book_cells import installs_on_colab
from book_evidence import RECORDS, verdict
from book_notebooks import CONFIG, Renderer, labels

REFERENCES = '\n#bibliography("references.bib", title: "References", full: true, style: "springer-basic-author-date")\n'
TEMPLATE = ROOT / "tools" / "pdf.typ"
VARIABLE = re.compile(r"var\(--[\w-]+, *([^()]+)\)")


def mark(name: str) -> str:
    """Where links to a chapter lead."""
    return f"chapter-{name.rpartition('/')[2]}"


class Printed(Renderer):
    """A page on paper: links lead to pages of the same book, solutions are kept for the end, boxes stand open."""

    def __init__(self, page: Notebook) -> None:
        super().__init__(page, None)
        self.solutions: list[str] = []

    def link(self, words: str, doc: str, name: str = "") -> str:
        return words if doc == self.doc else f"[{words}](#{mark(doc)})" if doc in PRINTED else words

    def fold(self, summary: str, body: str, end: str = "</details>") -> str:
        text = f"**{summary}**\n\n{self.markdown(body)}"
        if summary.startswith("Solution"):
            self.solutions.append(text)
            return ""
        return f"::: aside\n{text}\n:::"

    def sure(self, argument: str) -> str:
        name, _, key = argument.partition("/")
        record = json.loads((ROOT / RECORDS / f"{name}.json").read_text(encoding="utf-8"))
        return self.fold(f"How sure are we? {verdict(record, key)}", record["findings"][key]["text"])

    def directive(self, one: Any) -> str:
        if one.name in ("museum", "circuit"):
            return self.markdown(one.body)
        if one.name == "admonition":
            return f"::: aside\n**{one.argument}**\n\n{self.markdown(one.body)}\n:::"
        return super().directive(one)


def contents() -> list[tuple[str, list[str]]]:
    """The parts that are printed, each with its chapters."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = []
    for part in toc["parts"]:
        names = [one["file"] for one in part["chapters"]]
        if part.get("numbered"):
            found.append((part["caption"], names))
    return found


PRINTED = {name for _, names in contents() for name in names}


def picture(data: dict[str, Any], folder: Path, name: str) -> str | None:
    """The file of an output's picture: as pixels, or the first frame of a figure to touch."""
    if "image/png" in data:
        (folder / f"{name}.png").write_bytes(base64.b64decode("".join(data["image/png"])))
        return f"{name}.png"
    found = re.search(r"<svg\b.*?</svg>", "".join(data.get("text/html", "")), re.DOTALL)
    if not found or len(found[0]) < 1000:  # a viewer without a picture of its own
        return None
    text = VARIABLE.sub(r"\1", found[0]).replace("currentColor", "#22262b")
    if "xmlns=" not in text[:300]:
        text = text.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    (folder / f"{name}.svg").write_text(text, encoding="utf-8")
    return f"{name}.svg"


def outputs(cell: dict[str, Any], folder: Path) -> Iterator[str]:
    """What a cell gave, as Markdown."""
    for place, one in enumerate(cell["outputs"]):
        data = one.get("data", {})
        if "text" in one:
            yield f"```\n{''.join(one['text']).rstrip()}\n```"
        elif path := picture(data, folder, f"{cell['id']}-{place}"):
            yield f"![]({path})"
        elif "text/html" in data:
            about = re.search(r'aria-label="([^"]*)"', "".join(data["text/html"]))
            what = unescape(about[1]) if about else "A figure"
            where = f"[book on the web]({pages_url(url)})" if (url := address()) else "book on the web"
            yield f"*{what}: this figure is alive in the {where}.*"


def cells(one: Printed, folder: Path) -> Iterator[str]:
    """A chapter's cells as Markdown: open code, outputs, and text; solutions are kept apart."""
    for cell in one.page.data["cells"]:
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
        figure = cell["metadata"].get("mystnb", {}).get("figure")
        if cell["cell_type"] == "markdown":
            goes_on, text = one.open, one.markdown(source)
            if goes_on or one.open:
                one.solutions[-1] += f"\n\n{text.replace('</details>', '')}" if goes_on else ""
            elif text:
                yield text
            continue
        marks = directives(source)
        if installs_on_colab(source) or {"hide", "default_exp"} & marks.keys():
            continue
        open_code = fold(source, tags) is None and "remove-input" not in tags and shown(source)
        parts = [f"```python\n{shown(source)}\n```"] if one.open or open_code else []
        if "remove-output" not in tags:
            parts += outputs(cell, folder)
        if figure:
            number = labels()[figure["name"]][0]
            parts.append(f"::: caption\n**Fig. {number}.** {one.markdown(figure['caption'])}\n:::")
        if one.open:
            one.solutions[-1] += "\n\n" + "\n\n".join(parts)
        else:
            yield "\n\n".join(parts)


def chapter_text(name: str, folder: Path) -> tuple[str, list[str]]:
    """A chapter as Markdown with its title, and the solutions of its exercises."""
    path = ROOT / f"{name}.ipynb"
    one = Printed(Notebook(path, ROOT))
    text = "\n\n".join(cells(one, folder))
    number = numbers(ROOT).get(f"{name}.ipynb", "")
    text = re.sub(r"^# (.*)$", rf"# {number}. \1 {{#{mark(name)}}}", text, count=1, flags=re.M)
    text = re.sub(r'<a id="[^"]*"></a>\n*', "", text)
    return text, one.solutions


def main(target: Path) -> None:
    """Write the PDF, and say how long it is."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as kept:
        folder, parts, solutions = Path(kept), [], []
        for caption, names in contents():
            parts.append(f"::: part\n{caption}\n:::")
            for name in names:
                text, solved = chapter_text(name, folder)
                parts.append(text)
                if solved:
                    title = Notebook(ROOT / f"{name}.ipynb", ROOT).title
                    solutions.append(f"## {title}\n\n" + "\n\n".join(solved))
        parts += ["# Solutions", *solutions]
        body = pypandoc.convert_text(
            "\n\n".join(parts),
            "typst",
            format="markdown-smart-citations+tex_math_dollars+raw_html",
            extra_args=["--wrap=none", "--fail-if-warnings", f"--lua-filter={ROOT / 'tools' / 'pdf.lua'}"],
        )
        body = body.replace("dot.circle", "dot.o")
        body = re.sub(r"\bsect\b", "inter", body)  # both are called so today
        (folder / "references.bib").write_bytes((ROOT / CONFIG["bibtex_bibfiles"][0]).read_bytes())
        text = TEMPLATE.read_text(encoding="utf-8") + body + REFERENCES
        (folder / "book.typ").write_text(text, encoding="utf-8")
        pages, warnings = typst.compile_with_warnings(str(folder / "book.typ"))
        if warnings:
            sys.exit("\n".join(one.message for one in warnings))
        target.write_bytes(pages)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "_build" / "pdf" / "book.pdf")
