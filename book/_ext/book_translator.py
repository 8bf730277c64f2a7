"""``{live-translator}``: a translator that computes in the page, and the files that it loads when the reader asks.

The recorded example comes from ``transformer_lib/results/page-translator.json``. The scripts and the shipped models are copied from the
package into the built book, so that nothing is committed twice; pages without the directive load none of it.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "transformer_lib"
SCRIPTS = ("translator.js", "translator_page.js", "translator.css")
MODEL_FILES = ("config.json", "source.json", "target.json", "weights.safetensors")
FOLDER = "_static/translator"
KINDS = ("captions", "raw")  # the preparations of text that the script knows
LANGUAGES = {"en": "English", "de": "German", "fr": "French"}
TRIES = {  # sentences of the kind that each model of real captions knows
    "en": (
        "Two dogs are playing in the snow.",
        "A woman in a red coat is reading a newspaper.",
        "Three children are sitting on a bench.",
    ),
    "de": (
        "Zwei Hunde spielen im Schnee.",
        "Eine Frau in einem roten Mantel liest eine Zeitung.",
        "Drei Kinder sitzen auf einer Bank.",
    ),
}
KNOWS = {
    "captions": "Knows {words} {source} words, and only scenes like this one: people and animals, what they do, and what they are like.",
    "raw": "Knows captions of photographs only, like the three above. Anything else comes out as nonsense.",
}


def models(folder: Path) -> list[dict[str, Any]]:
    """What the page must know of each shipped model that it can run; captions first."""
    found = []
    for path in sorted(folder.glob("*/config.json")):
        text = json.loads(path.read_text(encoding="utf-8"))["text"]
        if text["kind"] not in KINDS:
            continue
        files = [path.with_name(name).read_bytes() for name in MODEL_FILES]
        source, target = (LANGUAGES[text[side]] for side in ("source", "target"))
        card = path.with_name("README.md")
        captions = text["kind"] == "captions"
        words = len(json.loads(files[1])["pieces"])
        found.append({
            "name": path.parent.name,
            "label": f"{'Captions' if captions else 'Multi30k'}, {source} to {target}",
            "source": text["source"],
            "target": text["target"],
            "tries": () if captions else TRIES[text["source"]],
            "captions": captions,
            "bytes": sum(map(len, files)),
            "version": hashlib.sha256(b"".join(files)).hexdigest()[:12],
            "knows": KNOWS[text["kind"]].format(words=words, source=source),
            "terms": card.read_text(encoding="utf-8").strip().split("\n\n")[-1],
        })  # fmt: skip
    return found


def page(record: dict[str, Any], shipped: list[dict[str, Any]], files: str) -> str:
    """The widget as HTML: the recorded example stands there without any script."""
    pattern, slots, start = record["pattern"], record["slots"], record["start"]
    first, other = (
        record["examples"][key]
        for key in (" ".join(start), " ".join([*start[:-1], slots[-1][-1]]))
    )
    data = {
        "files": f"{files}/",
        "models": [
            one | ({"head": record["head"]} if one["captions"] else {})
            for one in shipped
        ],
        "pattern": pattern,
        "start": start,
        "examples": record["examples"],
    }
    source = "".join(
        f"<span>{html.escape(word)}</span> " for word in first["source"]
    )
    target = "".join(
        f'<button type="button">{html.escape(word)}</button> '
        for word in first["target"]
    )
    groups = "".join(
        f'<span role="group" aria-label="{name}">'
        + "".join(
            f'<button type="button" data-slot="{slot}">{html.escape(word)}</button>'
            for word in words
        )
        + "</span>"
        for slot, (name, words) in enumerate(
            zip(("Who", "What", "Why"), slots, strict=True)
        )
    )
    alone, first_model = " hidden" if len(shipped) == 1 else "", shipped[0]
    options = "".join(
        f"<option>{html.escape(one['label'])}</option>" for one in shipped
    )
    told = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace(
        "</", r"<\/"
    )
    return f"""<link rel="stylesheet" href="{files}/translator.css">
<div class="tl-translator" role="group" aria-label="A translator in this page">
<script>document.currentScript.parentNode.classList.toggle("tl-columns", innerWidth <= 650)</script>
<div class="tl-picture"><svg aria-hidden="true"></svg>
<p class="tl-source" lang="en">{source}<span class="tl-end">end</span></p>
<p class="tl-target" lang="de" role="group" aria-label="Translation: choose a word to see what it attended to">{target}</p>
</div>
<p class="tl-static">{html.escape(" ".join(other["source"]))} → <span lang="de">{html.escape(" ".join(other["target"]))}</span>
</p>
<p class="tl-state tl-live" aria-live="polite">&nbsp;</p>
<p class="visually-hidden" aria-live="polite"><span class="tl-says" lang="de"></span></p>
<div class="tl-live">
<div class="tl-changes" role="group" aria-label="Change a word">{groups}</div>
<div class="tl-tries" role="group" aria-label="Try one of these" hidden></div>
<form class="tl-form"><label><span class="visually-hidden">A sentence of your own</span>
<input name="sentence" value="{html.escape(pattern.format(*start))}" autocomplete="off" spellcheck="false"></label>
<button>Load the translator ({first_model["bytes"] / 1e6:.1f} MB)</button></form>
<p class="tl-notice" role="status"></p>
<div class="tl-settings"><label{alone}>Model <select>{options}</select></label>
<label>Search <select></select></label>
<label>Lines <select></select></label></div>
<p class="tl-terms"><strong>{html.escape(first_model["knows"])}</strong> {html.escape(first_model["terms"])}</p></div>
<script type="application/json">{told}</script>
<script type="module" src="{files}/translator_page.js"></script>
</div>"""


class LiveTranslator(SphinxDirective):
    """``{live-translator}``: the widget with its recorded example."""

    def run(self) -> list[nodes.Node]:
        path = (
            Path(self.env.srcdir) / "transformer_lib/results/page-translator.json"
        )
        for used in (path, *sorted((PACKAGE / "pretrained").glob("*/*"))):
            self.env.note_dependency(str(used))
        record = json.loads(path.read_text(encoding="utf-8"))
        up = "../" * self.env.docname.count("/")
        return [
            nodes.raw(
                "",
                page(record, models(PACKAGE / "pretrained"), up + FOLDER),
                format="html",
            )
        ]


def published(script: str) -> str:
    """A script without its lines of comment, which an appendix shows."""
    return re.sub(r"(?m)^ *//.*\n", "", script)


def copy_files(target: Path) -> None:
    """Put the scripts and the models that they can run into a folder."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in SCRIPTS:
        text = (PACKAGE / "viz" / name).read_text(encoding="utf-8")
        (target / name).write_text(published(text), encoding="utf-8")
    for one in models(PACKAGE / "pretrained"):
        (target / one["name"]).mkdir()
        for name in MODEL_FILES:
            shutil.copyfile(
                PACKAGE / "pretrained" / one["name"] / name,
                target / one["name"] / name,
            )


def _copy_files(app: Sphinx, exception: Exception | None) -> None:
    """Put them beside the pages."""
    # the tests' small books have no models
    if (
        exception is None
        and app.builder.format == "html"
        and (PACKAGE / "pretrained").exists()
    ):
        copy_files(Path(app.outdir) / FOLDER)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("live-translator", LiveTranslator)
    app.connect("build-finished", _copy_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
