"""Write the book as PDFs that one would print: python tools/pdf.py [FOLDER], by default _build/pdf.

``book.pdf`` holds the chapters as readers download them, through pandoc and Typst, without LaTeX: all code that stands
open on a page, figures to touch as they open, solutions behind the last chapter. ``exercises.pdf`` is for teachers:
plans for a course, then each chapter's exercises with their solutions. ``poster.pdf`` is one page to hang up.
``make pdf`` installs what it needs.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from textwrap import dedent
from typing import Any

import pypandoc
import typst
import yaml
from chapters import ROOT, Notebook, address, directives, fold, numbers, pages_url, shown
from matplotlib import get_data_path

sys.path.append(str(ROOT / "book" / "_ext"))
from book_cells import installs_on_colab
from book_evidence import RECORDS, verdict
from book_notebooks import CONFIG, Renderer, labels

REFERENCES = '\n#bibliography("references.bib", title: "References", full: true, style: "springer-basic-author-date")\n'
TEMPLATE = ROOT / "tools" / "pdf.typ"
SOLUTION = "(what follows is the solution, up to) </details>"
PAPER = "#fbfaf7"  # of the pages on the web
SHRUNK, WIDEST = 0.85, 440  # of figures, whose labels are a little smaller than the text; points
VARIABLE = re.compile(r"var\(--[\w-]+, *([^()]+)\)")


def mark(name: str) -> str:
    """Where links to a chapter lead."""
    return f"chapter-{name.rpartition('/')[2]}"


class Printed(Renderer):
    """A page on paper: links lead to pages of the same book, solutions are kept for the end, boxes stand open."""

    def __init__(self, page: Notebook, linked: bool) -> None:
        super().__init__(page, None)
        self.solutions: list[str] = []
        self.linked = PRINTED if linked else ()

    def link(self, words: str, doc: str, name: str = "") -> str:
        return f"[{words}](#{mark(doc)})" if doc in self.linked and doc != self.doc else words

    def fold(self, summary: str, body: str, end: str = "</details>") -> str:
        text = f"**{summary}**\n\n{self.markdown(body)}"
        if summary.startswith("Solution"):
            self.solutions.append(text)
            return "" if end else SOLUTION  # which goes on in other cells
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
    """A link to the file of an output's picture: a plot, or the first frame of a figure to touch."""
    page = "".join(data.get("image/svg+xml") or data.get("text/html", ""))
    found = re.search(r"<svg\b.*?</svg>", page, re.DOTALL)
    if not found or len(found[0]) < 1000:  # a viewer without a picture of its own
        return None
    text = VARIABLE.sub(r"\1", found[0]).replace("currentColor", "#22262b")
    head, end, rest = text.partition(">")
    head = re.sub(r' (?:xmlns|font-family|width)="[^"]*"', "", head) + ' xmlns="http://www.w3.org/2000/svg"'
    if " font-size=" in head:  # by matplotlib, which measured the words in its own font
        head += ' font-family="DejaVu Sans"'
    paper = (head + end + rest).replace(PAPER, "#ffffff")
    (folder / f"{name}.svg").write_text(paper, encoding="utf-8")
    width = float(head.split("viewBox=")[1].split()[2])
    return f"![]({name}.svg){{width={min(SHRUNK * width, WIDEST):.0f}pt}}"


def outputs(cell: dict[str, Any], folder: Path) -> Iterator[str]:
    """What a cell gave, as Markdown."""
    for place, one in enumerate(cell["outputs"]):
        data = one.get("data", {})
        if "text" in one:
            yield f"```\n{''.join(one['text']).rstrip()}\n```"
        elif link := picture(data, folder, f"{cell['id']}-{place}"):
            yield link
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
            solved = one.open
            for part in re.split(f"({re.escape(SOLUTION)}|</details>)", one.markdown(source)):
                if part in (SOLUTION, "</details>"):
                    solved = part == SOLUTION
                elif solved:
                    one.solutions[-1] += f"\n\n{part}"
                elif part.strip():
                    yield part
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


def chapter_text(name: str, folder: Path, linked: bool = True) -> tuple[str, list[str]]:
    """A chapter as Markdown with its title, and the solutions of its exercises."""
    path = ROOT / f"{name}.ipynb"
    one = Printed(Notebook(path, ROOT), linked)
    text = "\n\n".join(cells(one, folder))
    number = numbers(ROOT).get(f"{name}.ipynb", "")
    text = re.sub(r"^# (.*)$", rf"# {number}. \1 {{#{mark(name)}}}", text, count=1, flags=re.M)
    text = re.sub(r'<a id="[^"]*"></a>\n*', "", text)
    return text, one.solutions


def book(folder: Path) -> Iterator[str]:
    """All parts with their chapters, and behind them the solutions."""
    solutions = []
    for caption, names in contents():
        yield f"::: part\n{caption}\n:::"
        for name in names:
            text, solved = chapter_text(name, folder)
            yield text
            if solved:
                title = Notebook(ROOT / f"{name}.ipynb", ROOT).title
                solutions.append(f"## {title}\n\n" + "\n\n".join(solved))
    yield from ["# Solutions", *solutions]


def exercises(folder: Path) -> Iterator[str]:
    """Plans for a course, and the exercises of every chapter, each chapter's with their solutions."""
    page = Notebook(ROOT / "book" / "appendix" / "write_it_yourself.md", ROOT)
    plans = page.path.read_text(encoding="utf-8").partition("## For teachers")[2].partition("\n## ")[0]
    yield "# For teachers\n\n" + Printed(page, linked=False).markdown(plans)
    for _, names in contents():
        for name in names:
            text, solved = chapter_text(name, folder, linked=False)
            title = text[: text.index("\n")]
            asked = text.partition("\n## Exercises\n")[2].partition("\n## ")[0]
            if asked:
                yield "\n\n".join([title, asked, "## Solutions", *solved])


def write(target: Path, title: str, about: str, parts: Iterator[str], folder: Path, after: str = "") -> None:
    """Write one PDF; a warning ends it."""
    body = pypandoc.convert_text(
        "\n\n".join(parts),
        "typst",
        format="markdown-smart-citations+tex_math_dollars+raw_html",
        extra_args=["--wrap=none", "--fail-if-warnings", f"--lua-filter={ROOT / 'tools' / 'pdf.lua'}"],
    )
    body = body.replace("dot.circle", "dot.o")
    body = re.sub(r"\bsect\b", "inter", body)  # both are called so today
    body = body.replace("#h(-1em)", "#h(-1em / 6)")  # pandoc takes a thin space backwards, \!, for a whole em
    template = TEMPLATE.read_text(encoding="utf-8").replace("TITLE", title).replace("ABOUT", about)
    (folder / "book.typ").write_text(template + body + after, encoding="utf-8")
    pages, warnings = typst.compile_with_warnings(str(folder / "book.typ"), font_paths=[get_data_path()])
    if warnings:
        sys.exit("\n".join(one.message for one in warnings))
    target.write_bytes(pages)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


SNIPPETS = {  # on the poster: what stands in transformer_lib/plain
    "loss": ("prediction", "loss"),
    "encoder": ("encoder_decoder", "Encoder.forward"),
    "align": ("bahdanau", "Score.forward", "Attention.forward"),
    "dot": ("luong", "Dot.forward", "General.forward"),
    "selfattention": ("self_attention", "SelfAttention.forward"),
    "scaled": ("attention", "attention"),
    "heads": ("multi_head", "Attention.forward"),
    "sees": ("masks", "sees"),
    "positions": ("positions", "sinusoids"),
    "layer": ("layers", "EncoderLayer.add", "EncoderLayer.forward"),
    "transformer": ("transformer", "Transformer.forward"),
}
COLOURS = ".cell{fill:#e6e3dc}.paper{fill:#fff}" + "".join(
    f".{name}{{fill:{value}}}.line-{name}{{fill:none;stroke:{value}}}"
    for name, value in {"blue": "#0072b2", "green": "#009e73", "orange": "#d55e00", "muted": "#8a8f96"}.items()
)
MUSEUM = {"one vector": "one-vector", "Bahdanau": "bahdanau", "Luong": "luong", "Transformer": "transformer"}


def definition(module: str, name: str) -> str:
    """The text of a function or method of ``transformer_lib/plain``."""
    source = (ROOT / "transformer_lib" / "plain" / f"{module}.py").read_text(encoding="utf-8")
    body: list[Any] = ast.parse(source).body
    for part in name.split("."):
        found = next(one for one in body if getattr(one, "name", None) == part)
        body = found.body
    lines = dedent("\n".join(source.splitlines()[found.lineno - 1 : found.end_lineno])).splitlines()
    return "\n".join(line.split("  #")[0] for line in lines if '"""' not in line)  # without remarks


def poster(target: Path, folder: Path) -> None:
    """The road from one vector to the Transformer, with code and scores as they are."""
    code = {key: "\n\n".join(definition(module, one) for one in names) for key, (module, *names) in SNIPPETS.items()}
    scores = []
    for name, ending in MUSEUM.items():
        record = json.loads((ROOT / RECORDS / f"multi30k-de-en-{ending}.json").read_text(encoding="utf-8"))
        bleu = record["metrics"]["test_bleu_lowercase"]["value"]
        scores.append({"name": name, "score": bleu, "shown": f"{bleu:.1f}"})
    for path in [*(ROOT / "book" / "_ext" / "glyphs").glob("*.svg"), *(ROOT / "tools" / "poster").glob("*.svg")]:
        text = path.read_text(encoding="utf-8").replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        text = text.replace('xmlns="http://www.w3.org/2000/svg" xmlns', "xmlns").replace(
            ">", f"><style>{COLOURS}</style>", 1
        )
        (folder / path.name).write_text(text, encoding="utf-8")
    (folder / "poster.json").write_text(json.dumps({"code": code, "scores": scores}), encoding="utf-8")
    (folder / "poster.typ").write_text((ROOT / "tools" / "poster.typ").read_text(encoding="utf-8"), encoding="utf-8")
    page, warnings = typst.compile_with_warnings(str(folder / "poster.typ"))
    if warnings:
        sys.exit("\n".join(one.message for one in warnings))
    target.write_bytes(page)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


def main(target: Path) -> None:
    """Write the PDFs, and say how large they are."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as kept:
        folder, name = Path(kept), CONFIG["title"]
        (folder / "references.bib").write_bytes((ROOT / CONFIG["bibtex_bibfiles"][0]).read_bytes())
        about = "A book you can run: build the Transformer from its first idea,\\ with code that becomes a library."
        write(target / "book.pdf", name, about, book(folder), folder, REFERENCES)
        poster(target / "poster.pdf", folder)
        about = "The exercises of all chapters, with their solutions,\\ and plans for a course."
        write(target / "exercises.pdf", f"{name}: exercises", about, exercises(folder), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "_build" / "pdf")
