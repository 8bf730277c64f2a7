"""``{sure}``, ``{claims}``, ``{tally}`` and ``{ledger}``: how sure we are, read from the records when the book is built."""

from __future__ import annotations

import json
import math
import re
from html import escape
from pathlib import Path
from typing import Any

import yaml
from book_chapters import chapter, chapters, spoken
from book_results import judged, label, numbers, show, verdict
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RECORDS = Path("transformer_lib/results")
ENDS = {"<": 1, "<=": 1, ">": 0, ">=": 0}
WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
]
REFERENCE = {"ratio": 1.0}  # what no effect looks like: zero, but for a ratio
LONGER = {"twice": 2, "four times": 4}  # in the name of an arm that trains longer


# ---- the picture and the words of a finding ----


def bounds(criterion: list[list[Any]]) -> list[float]:
    """Between which numbers the interval (or the value) has to lie."""
    ends = [-math.inf, math.inf]
    for _, sign, bound in criterion:
        ends = [bound, bound] if sign == "==" else ends
        if sign in ENDS:
            ends[ENDS[sign]] = bound
    return ends


def demanded(criterion: list[list[Any]]) -> str:
    """A criterion in words."""
    low, high = bounds(criterion)
    what = "the value" if criterion[0][0] == "value" else "the whole interval"
    if low == high:
        return f"{what} has to be {show(low)}"
    if criterion[0][1] == ">=":
        return f"{what} has to be at least {show(low)}"
    if math.inf not in (-low, high):
        return f"{what} has to lie between {show(low)} and {show(high)}"
    return f"{what} has to lie {f'above {show(low)}' if high == math.inf else f'below {show(high)}'}"


def picture(
    found: dict[str, Any],
    criterion: list[list[Any]],
    among: list[dict[str, Any]],
    theirs: bool = False,
) -> str:
    """An estimate and its interval, with zero as a line and a shade where the criterion wants it, on the scale of all."""
    ratio, low_high = found["kind"] == "ratio", bounds(criterion)
    scale = math.log if ratio else float
    zero = scale(REFERENCE.get(found["kind"], 0.0))
    every = [scale(one[key]) for one in among for key in ("value", "low", "high")]
    ends = [scale(end) if math.isfinite(end) else end for end in low_high]
    every += [zero, *filter(math.isfinite, ends)]
    least, most = min(every), max(every)
    margin = 0.06 * (most - least)

    def x(value: float) -> str:
        at = (value - least + margin) / (most - least + 2 * margin)
        return f"{100 * min(1.0, max(0.0, at)):.1f}"

    value, low, high = (scale(found[key]) for key in ("value", "low", "high"))
    start, stop = (x(end) for end in ends)
    label = f"{numbers(found)}; {demanded(criterion)}"
    return (
        f'<svg class="effect{" theirs" * theirs}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 14" width="100" '
        f'height="14" role="img" aria-label="{escape(label)}"><rect class="wanted" x="{start}" width="'
        f'{max(0.6, float(stop) - float(start)):.1f}" y="0" height="14"/><path class="zero" d="M{x(zero)} 0V14"/>'
        f'<path class="interval" d="M{x(low)} 7H{x(high)}"/><circle cx="{x(value)}" cy="7" r="3.2"/></svg>'
    )


def repeats(found: dict[str, Any], record: dict[str, Any]) -> str:
    """What the numbers of a finding differ in: timings in their repetition, a trained model's in the part of the data."""
    if found["kind"] == "ratio":
        return "repetitions"
    return "parts" if record["unit"].startswith(("sentences", "tenth")) else "seeds"


def explained(found: dict[str, Any], record: dict[str, Any]) -> str:
    """What the number of a finding is, with the names of its arms in italics."""
    arms = sorted(map(re.escape, found["arms"]), key=len, reverse=True)
    how = found["how"].replace("seeds", repeats(found, record))
    how = re.sub("^mean", "the mean", how)
    return (
        re.sub(rf"(?<!\w)({'|'.join(arms)})(?!\w)", r"*\1*", how) if arms else how
    )


def length(found: dict[str, Any], record: dict[str, Any]) -> str:
    """How long the runs of a finding are, as the names of its arms tell, and how many there are."""
    ratio = found["kind"] == "ratio"
    repeated = f"{len(record['seeds'])} {repeats(found, record)}."
    if ratio and record["unit"] == "updates":
        return repeated  # measured before training
    names = " ".join(found["arms"])
    times = [n for word, n in LONGER.items() if f"{word} the updates" in names]
    budget = record["budget"] * max(times, default=1)
    return f"{budget:,} {record['unit']}, {repeated}"


def runs(key: str, record: dict[str, Any]) -> str:
    """The first run and all checks of a finding, each with its picture, as HTML."""
    found, checks = record["findings"][key], judged(record, key)
    among = [found, *(one for _, one in checks)]
    rows = [(found, False, "First run", length(found, record))]
    for check, one in checks:
        word = "Held" if one["holds"] else "Broke"
        tried = check["tried"][0].upper() + check["tried"][1:] + "."
        late = "" if one["asked"] else " (This check is older than the sentence.)"
        rows.append((one, True, word, tried + late))
    items = "".join(
        f"<li>{picture(one, found['criterion'], among, theirs)} <b>{numbers(one)}</b> <span><b>{word}.</b> {escape(text)}</span></li>"
        for one, theirs, word, text in rows
    )
    return f'<ul class="runs">{items}</ul>'


def remarks(name: str, key: str, record: dict[str, Any]) -> str:
    """What there is to know about the runs of a finding, as Markdown."""
    found = record["findings"][key]
    edges = [
        arm for arm in found["arms"] if record["tuned"].get(arm, {}).get("edge")
    ]
    lines = [
        f"The dot is {explained(found, record)}; the line is its 95 % interval. Metric: {record['metric']}. Shade: "
        f"{demanded(found['criterion'])}.",
        f"The same for all: {record['equal']}.",
        f"The best learning rate lay at the edge of those that we tried: {', '.join(edges)}."
        if edges
        else "",
        f"What didn't hold: {found['earlier']}" if found.get("earlier") else "",
        f"Withdrawn: {found['withdrawn']}" if found.get("withdrawn") else "",
        f"To repeat it: `python -m experiments run {name} --folder again`, and `check` in place of `run` for the checks.",
    ]
    return "\n\n".join(line for line in lines if line)


# ---- in the page ----


class Fold(nodes.General, nodes.Element):
    """What opens with a click on the screen, and stands open in an ePub."""


class OnScreen(nodes.General, nodes.Element):
    """HTML that only a screen can use."""


def _open(self: Any, node: Fold) -> None:
    kind = "div" if self.builder.name == "epub" else "details"
    inner = "p" if kind == "div" else "summary"
    self.body.append(
        self.starttag(node, kind) + f"<{inner}>{node['summary']}</{inner}>\n"
    )


def _close(self: Any, node: Fold) -> None:
    self.body.append("</div>\n" if self.builder.name == "epub" else "</details>\n")


def _screen(self: Any, node: OnScreen) -> None:
    if self.builder.name != "epub":
        self.body.append(node["html"])
    raise nodes.SkipNode


class Evidence(SphinxDirective):
    """What the directives share."""

    def record(self, name: str) -> dict[str, Any]:
        path = Path(self.env.srcdir) / RECORDS / f"{name}.json"
        self.env.note_dependency(str(path))
        return json.loads(path.read_text(encoding="utf-8"))

    def records(self) -> dict[str, dict[str, Any]]:
        """The records of all studies, in the order of the chapters."""
        self.env.note_reread()
        paths = (Path(self.env.srcdir) / RECORDS).glob("*.json")
        found = {
            path.stem: record
            for path in sorted(paths)
            if "findings" in (record := self.record(path.stem))
        }
        fell = Path(self.env.srcdir) / "experiments" / "withdrawn.json"
        self.env.note_dependency(str(fell))
        text = fell.read_text(encoding="utf-8") if fell.is_file() else "{}"
        for name, entry in json.loads(text).items():
            if name not in found:  # nothing is left of this study but what fell
                left = {"chapter": entry["chapter"], "fell": entry}
                found[name] = left | {"findings": {}, "challenges": []}
        order = [page.docname for page in chapters()]
        return dict(
            sorted(
                found.items(),
                key=lambda pair: order.index(f"book/{pair[1]['chapter']}"),
            )
        )

    def markdown(self, text: str) -> list[nodes.Node]:
        place = nodes.container()
        self.state.nested_parse(
            StringList(text.splitlines()), self.content_offset, place
        )
        return place.children

    def fold(
        self,
        name: str,
        key: str,
        record: dict[str, Any],
        summary: str,
        after: str,
        **options: Any,
    ) -> Fold:
        found = record["findings"][key]
        mini = picture(found, found["criterion"], [found])
        node = Fold(summary=f"{summary}{mini}", **options)
        node += self.markdown(found["text"])
        node += nodes.raw("", runs(key, record), format="html")
        node += self.markdown(f"{remarks(name, key, record)} {after}")
        return node


class Sure(Evidence):
    """``{sure} STUDY/FINDING``: the box *How sure are we?*, one line high until it is opened."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name, _, key = self.arguments[0].partition("/")
        try:
            record = self.record(name)
            words = verdict(record, key)
        except (FileNotFoundError, KeyError):
            raise self.error(
                f"no record has the finding {self.arguments[0]!r}"
            ) from None
        if record["findings"][key].get("line"):
            page = f"{{ref}}`claims page <{label(name, key)}>`"
        else:
            page = "{doc}`claims page </book/appendix/claims>`"
        after = f"All findings are on the {page}."
        summary = f'<span class="ask">How sure are we?</span><span class="verdict">{words}</span>'
        return [self.fold(name, key, record, summary, after, classes=["sure"])]


class Claims(Evidence):
    """``{claims}``: what we are sure of, one line each, by part. With names of findings: a short list that leads to them."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        records = self.records()
        if self.arguments:
            return [self.short(records, self.arguments[0].split())]
        contents = yaml.safe_load(
            (Path(self.env.srcdir) / "_toc.yml").read_text(encoding="utf-8")
        )
        sections, std = [], self.env.domains["std"]
        for part in contents["parts"]:
            files = [entry["file"] for entry in part["chapters"]]
            own = {
                name: record
                for name, record in records.items()
                if f"book/{record['chapter']}" in files
            }
            kept = [
                (name, key)
                for name, record in own.items()
                for key, one in record["findings"].items()
                if one.get("line")
            ]
            if not kept:
                continue
            title, number = part["caption"], len(sections) + 1
            ident = nodes.make_id(title)
            section = nodes.section(
                "",
                nodes.title(title, title),
                ids=[ident],
                names=[ident],
                classes=["part", f"part-{number}"],
            )
            for name, key in kept:
                page, where = (
                    chapter(own[name]["chapter"].rpartition("/")[2]),
                    label(name, key),
                )
                summary = f'<span class="no">{page.number}</span><span class="line">{escape(own[name]["findings"][key]["line"])}</span>'
                after = (
                    f"It belongs to {{chapter}}`{page.docname.rpartition('/')[2]}`."
                )
                section += self.fold(
                    name,
                    key,
                    own[name],
                    summary,
                    after,
                    classes=["claim"],
                    ids=[where],
                )
                for one in (
                    where,
                    label(name),
                ):  # the study's name leads to its first
                    if one not in std.anonlabels:
                        std.note_hyperlink_target(
                            one, self.env.docname, where, spoken(page)
                        )
            sections.append(section)
        return [
            OnScreen(html=self.filter([part[0].astext() for part in sections])),
            *sections,
        ]

    def filter(self, titles: list[str]) -> str:
        """One choice among the parts, without a script."""
        choices = "".join(
            f'<label><input type="radio" name="part" id="only-{k}"{" checked" * (k == 0)}> {escape(title)}</label>'
            for k, title in enumerate(["The whole book", *titles])
        )
        hidden = ", ".join(
            f".bd-article:has(#only-{k}:checked) section.part:not(.part-{k})"
            for k in range(1, len(titles) + 1)
        )
        return f'<fieldset class="parts"><legend>Show</legend>{choices}</fieldset><style>{hidden} {{ display: none }}</style>\n'

    def short(
        self, records: dict[str, dict[str, Any]], names: list[str]
    ) -> nodes.Node:
        rows = []
        for name, key in (one.split("/") for one in names):
            found = records[name]["findings"][key]
            rows.append(
                f'<li><a href="#{label(name, key)}">{escape(found["line"])}</a>{picture(found, found["criterion"], [found])}</li>'
            )
        return nodes.raw(
            "", f'<ol class="claims">{"".join(rows)}</ol>', format="html"
        )


class Tally(Evidence):
    """``{tally}``: its text, with how often checks asked about a finding and how often they broke it."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        records = self.records().values()
        answers = [
            one
            for record in records
            for check in record["challenges"]
            for one in check["findings"].values()
        ]
        asked = [one["holds"] for one in answers if one["asked"]]
        counts = {
            "asked": len(asked) + sum(record["fell"]["asked"] for record in records)
        }
        counts["broke"] = asked.count(False) + sum(
            record["fell"]["broke"] for record in records
        )
        counts["kept"] = sum(
            "line" in one
            for record in records
            for one in record["findings"].values()
        )
        counts["fell"] = sum(map(len, map(fallen, records)))
        every = round(counts["asked"] / max(1, counts["broke"]))
        counts["one_in"] = WORDS[every] if every < len(WORDS) else every
        counts["Kept"] = counts["kept"]
        return self.markdown("\n".join(self.content).format(**counts))


def fallen(record: dict[str, Any]) -> dict[str, str]:
    """The sentences of a study that we withdrew, or that did not come out, and why."""
    now = {
        one["text"]: one["withdrawn"]
        for one in record["findings"].values()
        if one.get("withdrawn")
    }
    failed = {
        one["text"]: f"It did not come out: {numbers(one)}."
        for one in record["findings"].values()
        if not one["holds"]
    }
    return failed | record["fell"]["sentences"] | now


class Ledger(Evidence):
    """``{ledger}``: every sentence that fell, folded."""

    def run(self) -> list[nodes.Node]:
        entries = [
            (record["chapter"].rpartition("/")[2], fallen(record))
            for record in self.records().values()
        ]
        count = sum(len(sentences) for _, sentences in entries)
        node = Fold(
            summary=f'<span class="ask">All {count} sentences that fell, and what broke each</span>',
            classes=["sure", "ledger"],
        )
        for page, sentences in entries:
            lines = [f"- *{old}* {why}" for old, why in sentences.items()]
            if lines:
                node += self.markdown(f"{{Chapter}}`{page}`\n\n" + "\n".join(lines))
        return [node]


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives."""
    app.add_node(Fold, html=(_open, _close))
    app.add_node(OnScreen, html=(_screen, None))
    for name, directive in {
        "sure": Sure,
        "claims": Claims,
        "tally": Tally,
        "ledger": Ledger,
    }.items():
        app.add_directive(name, directive)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
