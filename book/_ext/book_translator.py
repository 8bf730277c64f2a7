"""``{live-translator}``, ``{museum}``, ``{circuit}``, ``{guess}``, ``{breaking}`` and ``{learning}``: translators that compute in the page, and the files that they load when asked.

The recorded examples come from ``how_many_words.json`` and the ``page-*.json`` of each directive in ``transformer_lib/results``. The scripts and the shipped
models are copied from the package into the built book, so that nothing is committed twice; pages without the directives load none of it.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
from book_chapters import chapter
from docutils import nodes
from markupsafe import Markup
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from transformer_lib.data.captions import make_captions
from transformer_lib.viz import learning_viewer

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "transformer_lib"
RESULTS = PACKAGE / "results"
SCRIPTS = (
    "translator.js",
    "pieces.js",
    "product.js",
    "kit.js",
    "known.js",
    "page_parts.js",
    "translator_page.js",
    "own_model.js",
    "museum_page.js",
    "circuit.js",
    "circuit_page.js",
    "translator.css",
    "breaking.js",
    "breaking.css",
    "guess.js",
    "guess.css",
)
MODEL_FILES = ("config.json", "source.json", "target.json", "weights.safetensors")
KNOWN = "known.json"  # what a model has read, by which it doubts; loaded when somebody types
FOLDER = "_static/translator"
KINDS = ("captions", "raw")  # the preparations of text that the script knows
MUSEUM = json.loads(
    (Path(__file__).parent / "museum.json").read_text(encoding="utf-8")
)
LANGUAGES = {"en": "English", "de": "German", "fr": "French"}
SENTENCES = json.loads(  # of the kind that each model of real captions knows; the first three are offered at once
    (Path(__file__).parent / "sentences.json").read_text(encoding="utf-8")
)
ORDER = {  # by what a model has learned from, which begins its name: what it is called, what it knows, and what of
    "everyday": ("Everyday", "Knows everyday {source}: short sentences, questions, names.", "everyday sentences"),
    "captions": ("Captions", "Knows {words} {source} words, and only scenes like this one: people and animals, what they do, and what they are like.", "its captions"),
    "multi30k": ("Multi30k", "Knows captions of photographs only. Anything else comes out as nonsense.", "captions of photographs"),
}  # fmt: skip


WIDGETS = jinja2.Environment(
    loader=jinja2.FileSystemLoader(ROOT / "book" / "_templates"), autoescape=True
)


def about(folder: Path) -> dict[str, Any]:
    """What a page must know of a model to load it, and the terms of its card."""
    files = [(folder / name).read_bytes() for name in MODEL_FILES]
    card = (folder / "README.md").read_text(encoding="utf-8")
    path = folder / KNOWN
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    more = [path.read_bytes()] if known else []
    return {
        "known": bool(known),
        "wrong": known.get("wrong"),
        "unsure": known.get("unsure"),
        "name": folder.name,
        "bytes": sum(map(len, files)),
        "version": hashlib.sha256(b"".join(files + more)).hexdigest()[:12],
        "terms": card.strip().split("\n\n")[-1],
    }


@cache
def covering(drawn: int = 2000) -> list[str]:
    """Some generated captions, as people write them, that together have nearly every word of all."""
    left = {p.source for p in make_captions(drawn, seed=4, max_length=8)}
    found = [
        "The cat sleeps because it is tired.",
        "A small girl eats bread.",
        "Two dogs run in the garden.",
    ]
    missing = {word for text in left for word in text.split()}
    while len(missing) > 20:
        best = max(sorted(left), key=lambda text: len(missing & set(text.split())))
        left.remove(best)
        missing -= set(best.split())
        found.append(best[0].upper() + best[1:].replace(" ,", ",") + ".")
    return found


def models(folder: Path) -> list[dict[str, Any]]:
    """The models of ``{live-translator}``: the shipped ones that it can run, without the museum's."""
    found = []
    museum = [one["name"] for one in MUSEUM["models"].values()]
    paths = [
        p for begin in ORDER for p in sorted(folder.glob(f"{begin}-*/config.json"))
    ]
    for path in paths:
        config = json.loads(path.read_text(encoding="utf-8"))
        text, name = config["text"], path.parent.name
        if text["kind"] not in KINDS or name in museum:
            continue
        if config["model"]["name"] != "transformer":
            continue
        source, target = (LANGUAGES[text[side]] for side in ("source", "target"))
        label, knows, of = ORDER[name.split("-")[0]]
        captions = text["kind"] == "captions"
        pieces = json.loads(path.with_name("source.json").read_bytes())["pieces"]
        found.append(about(path.parent) | {
            "label": f"{label}, {source} to {target}",
            "source": text["source"],
            "target": text["target"],
            "sentences": covering() if captions else SENTENCES.get(name) or SENTENCES[text["source"]],
            "captions": captions,
            "knows": knows.format(words=sum(map(str.isalpha, pieces)), source=source),
            "of": of,
        })  # fmt: skip
    return found


def widget(
    name: str, models: list[dict[str, Any]], data: dict[str, Any], **more: Any
) -> str:
    """A widget as HTML, from its template, with the data for its script as JSON that can stand in a page."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    size = f"{sum(one['bytes'] for one in models) / 1e6:.1f} MB"
    more |= {
        "files": data["files"][:-1],
        "size": size,
        "data": Markup(text.replace("</", r"<\/")),
    }
    return WIDGETS.get_template(f"{name}.html").render(more)


def page(
    record: dict[str, Any],
    shipped: list[dict[str, Any]],
    files: str,
    guide: str = "",
) -> str:
    """The widget as HTML: the recorded example stands there without any script; ``guide`` tells how to train a model."""
    kept = {name: record[name] for name in ("pattern", "start", "examples")}
    own = [
        one | ({"head": record["head"]} if one["captions"] else {})
        for one in shipped
    ]
    slots, start = record["slots"], record["start"]
    keys = " ".join(start), " ".join([*start[:-1], slots[-1][-1]])
    first, other = (record["examples"][key] for key in keys)
    more = {"first": first, "other": other, "slots": slots, "shipped": shipped}
    more["guide"] = guide
    return widget(
        "translator",
        shipped[:1],
        {"files": f"{files}/", "models": own} | kept,
        **kept | more | {"head": record["head"]},
    )


def museum(
    folder: Path, record: dict[str, Any], key: str | None = None
) -> list[dict[str, Any]]:
    """The museum's models that are shipped and recorded; with a key, only that one."""
    return [
        about(folder / one["name"])
        | one
        | ({"layer": record["layer"]} if own == "transformer" else {})
        for own, one in MUSEUM["models"].items()
        if key in (None, own)
        and one["name"] in record.get("models", ())
        and (folder / one["name"] / "config.json").exists()
    ]


def wall(
    shown: list[dict[str, Any]],
    record: dict[str, Any],
    files: str,
    link: Callable[[str], str],
) -> str:
    """The museum as HTML: the first sentence stands there without any script."""
    names = [one["name"] for one in shown]
    sentences = [
        one
        | {"words": record["examples"][one["source"]]["words"]}
        | {"translations": {n: record["examples"][one["source"]][n] for n in names}}
        for one in MUSEUM["sentences"]
    ]
    own = [
        {k: v for k, v in one.items() if k not in ("terms", "chapter")}
        for one in shown
    ]
    told = {"files": f"{files}/", "models": own, "sentences": sentences}
    more = {
        "shown": shown,
        "sentences": sentences,
        "first": sentences[0],
        "alone": len(shown) == 1,
        "link": link,
    }
    return widget("museum", shown, told, **more)


PRONOUNS = ("er", "sie", "es")


def lead(scores: list[int], right: int) -> int:
    """By how much the right pronoun is ahead of the best other one."""
    return scores[right] - max(
        score for i, score in enumerate(scores[:3]) if i != right
    )


def circuit(folder: Path, record: dict[str, Any], files: str) -> str:
    """The pronoun's circuit as HTML: what is left without each head stands there without any script."""
    shown = [
        about(folder / path.name)
        for path in [folder / "captions-en-de"]
        if path.exists()
    ]
    first, second = record["pairs"][0]
    whole = lead(first["scores"], first["right"])
    cells = []
    for row, outcome in zip(first["looks"], first["heads"], strict=True):
        place, weight = max(row, key=lambda pair: pair[1])
        left = round(100 * lead(outcome, first["right"]) / whole)
        word = [*first["words"], "end"][place].rstrip(".,")
        cells.append({"word": word, "weight": weight / 1000, "left": f"{left} %"})
    board = [cells[n : n + 4] for n in range(0, len(cells), 4)]
    told = {"files": f"{files}/", "models": shown, "pairs": record["pairs"]}
    more = {"pairs": record["pairs"], "first": first, "second": second}
    more |= {"board": board, "pronouns": PRONOUNS, "terms": shown[0]["terms"]}
    return widget("circuit", shown, told, **more)


SHOWN = 25  # words of a translation that doesn't end


def breaking(
    record: dict[str, Any], bleu: dict[str, float], sentences: int, files: str
) -> str:
    """The opening of the first page as HTML: the whole translation stands there without any script."""
    states, whole = [], record["states"]["all words"]["target"]
    for name, state in record["states"].items():
        words = state["target"]
        kept = state["kept"]
        says = f"{len(kept)} of the {len(whole)} words of its translation are still there."
        if len(kept) == len(whole):
            says = "This is enough for the same translation."
        if name == "all words":
            says = "All words, each as much as it likes. Choose an English word to see where the translator looked."
        if len(words) > SHOWN:
            words = [*words[:SHOWN], "…"]
        states.append({
            "name": name,
            "bleu": bleu[name],
            "words": words,
            "weights": state["weights"][: len(words)],
            "changed": [i for i in range(len(words)) if i not in kept],
            "says": says,
        })  # fmt: skip
    longest = max((" ".join(one["words"]) for one in states), key=len)
    told = {"files": f"{files}/", "source": record["source"], "states": states}
    more = {"source": record["source"], "states": states, "first": states[0]}
    return widget(
        "breaking", [], told, **more, longest=longest, sentences=sentences
    )


GUESSES = 10


def guess(record: dict[str, Any], files: str) -> str:
    """A game with the sentences of the circuit as HTML: which word does the pronoun stand for, and where did each head look?"""
    found = []
    for one in chain.from_iterable(record["pairs"]):
        pronoun = PRONOUNS[one["right"]]
        before, after = one["texts"][0].split(f" {pronoun} ", 1)
        votes = [max(row, key=lambda pair: pair[1])[0] for row in one["looks"]]
        found.append({
            "words": [*one["words"], "⟨end⟩"],
            "german": [f"{before} ", f" {after}"],
            "pronoun": pronoun,
            "noun": one["words"].index(one["noun"]),
            "votes": votes,
        })  # fmt: skip
    chosen = random.Random(0).sample(found, GUESSES)
    names = [f"layer {n // 4 + 1}, head {n % 4 + 1}" for n in range(16)]
    told = {"files": f"{files}/", "sentences": chosen, "names": names}
    return widget("guess", [], told, first=chosen[0])


class _Widget(SphinxDirective):
    """What the directives share: the records, and the place of the files."""

    def record(self, name: str) -> dict[str, Any]:
        path = RESULTS / f"{name}.json"
        for used in (path, *sorted((PACKAGE / "pretrained").glob("*/*"))):
            self.env.note_dependency(str(used))
        return json.loads(path.read_text("utf-8")) if path.exists() else {}

    def place(self, path: str) -> str:
        return "../" * self.env.docname.count("/") + path


class LiveTranslator(_Widget):
    """``{live-translator}``: the widget with its recorded example."""

    def run(self) -> list[nodes.Node]:
        shipped = models(PACKAGE / "pretrained")
        guide = self.place(f"{chapter('the_command').docname}.html#own-sentences")
        record = self.record("page-translator")
        text = page(record, shipped, self.place(FOLDER), guide)
        return [nodes.raw("", text, format="html")]


class Museum(_Widget):
    """``{museum}`` for all models, or ``{museum} bahdanau`` for one; its content is left out with it."""

    optional_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        key = self.arguments[0] if self.arguments else None
        if key not in (None, *MUSEUM["models"]):
            raise self.error(
                f"no {key!r} in the museum, only {[*MUSEUM['models']]}"
            )
        record = self.record("page-museum")
        shown = museum(PACKAGE / "pretrained", record, key)
        if len(shown) < (1 if key else 2):
            return []

        def link(name: str) -> str:
            return self.place(f"{chapter(name).docname}.html")

        text = wall(shown, record, self.place(FOLDER), link)
        introduction = nodes.Element()
        self.state.nested_parse(
            self.content, self.content_offset, introduction, match_titles=True
        )
        return [*introduction.children, nodes.raw("", text, format="html")]


class Circuit(_Widget):
    """``{circuit}``: the pronoun's circuit; its content stands where no script runs, such as in Jupyter."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        record = self.record("page-circuit")
        text = circuit(PACKAGE / "pretrained", record, self.place(FOLDER))
        return [nodes.raw("", text, format="html")]


class Breaking(_Widget):
    """``{breaking}``: a sentence that translates itself, and a slider for how much the translator may look at."""

    def run(self) -> list[nodes.Node]:
        measured = self.record("how_many_words")
        bleu = {
            row["arm"].removeprefix("Bahdanau, "): row["bleu"]
            for row in measured["rows"]
        }
        text = breaking(
            self.record("page-breaking"),
            bleu,
            measured["budget"],
            self.place(FOLDER),
        )
        return [nodes.raw("", text, format="html")]


class Guess(_Widget):
    """``{guess}``: ten sentences with a pronoun; the reader guesses, and sixteen heads vote."""

    def run(self) -> list[nodes.Node]:
        text = guess(self.record("page-circuit"), self.place(FOLDER))
        return [nodes.raw("", text, format="html")]


class Learning(_Widget):
    """``{learning}``: a layer of attention that learns in the page."""

    def run(self) -> list[nodes.Node]:
        self.record("page-learning")
        return [nodes.raw("", learning_viewer()._repr_html_(), format="html")]


def published(script: str) -> str:
    """A script without its lines of comment, which an appendix shows."""
    return re.sub(r"(?m)^ *//.*\n", "", script)


def copy_files(target: Path, folder: Path, record: dict[str, Any]) -> None:
    """Put the scripts and the models that they can run into a folder."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in SCRIPTS:
        text = (PACKAGE / "viz" / name).read_text(encoding="utf-8")
        (target / name).write_text(published(text), encoding="utf-8")
    for one in [*models(folder), *museum(folder, record)]:
        (target / one["name"]).mkdir()
        for name in MODEL_FILES:
            shutil.copyfile(
                folder / one["name"] / name, target / one["name"] / name
            )
        if one["known"]:
            shutil.copyfile(
                folder / one["name"] / KNOWN, target / one["name"] / KNOWN
            )


def _copy_files(app: Sphinx, exception: Exception | None) -> None:
    """Put them beside the pages."""
    # the tests' small books have no models
    if (
        exception is None
        and app.builder.name == "html"
        and (PACKAGE / "pretrained").exists()
    ):
        path = RESULTS / "page-museum.json"
        record = json.loads(path.read_text("utf-8")) if path.exists() else {}
        copy_files(Path(app.outdir) / FOLDER, PACKAGE / "pretrained", record)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("live-translator", LiveTranslator)
    app.add_directive("museum", Museum)
    app.add_directive("circuit", Circuit)
    app.add_directive("breaking", Breaking)
    app.add_directive("guess", Guess)
    app.add_directive("learning", Learning)
    app.connect("build-finished", _copy_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
