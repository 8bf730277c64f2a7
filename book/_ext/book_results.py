"""Tables and charts that are made when the book is built: what was measured, and what published models chose."""

from __future__ import annotations

import inspect
import json
import math
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from transformer_lib.data.published import load_published

ORIGIN = (
    "command",
    "commit",
    "date",
    "hardware",
    "seeds",
    "data",
    "parameters",
    "notes",
)
BOOKKEEPING = ("arm", "rate", "seed", "budget", "tuning", "run", "seconds", "valid")
MOST_COLUMNS = 8


def number(value: Any) -> str:
    """A number as the page prints it: 2,621,440 and 24.31 and 0.0005."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


def show(value: float) -> str:
    """A measured number, with three digits that count and a real minus sign."""
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}".replace("-", "\N{MINUS SIGN}")
    return f"{value:.{1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3}f}".replace(
        "-", "\N{MINUS SIGN}"
    )


def numbers(found: dict[str, Any]) -> str:
    """An estimate and its interval."""
    return f"{show(found['value'])} ({show(found['low'])} to {show(found['high'])})"


def judged(
    record: dict[str, Any], name: str
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every check that has a word on a finding, with what it found."""
    return [
        (check, check["findings"][name])
        for check in record["challenges"]
        if name in check["findings"]
    ]


def verdict(record: dict[str, Any], name: str) -> str:
    """What became of a finding, in as few words as possible."""
    found = record["findings"][name]
    counted = [one for _, one in judged(record, name)]
    if found.get("withdrawn"):
        return "withdrawn"
    if not found["holds"]:
        return "did not come out"
    if not all(one["holds"] for one in counted):
        return "broke in a check"
    return (
        f"held in {len(counted)} check{'s' * (len(counted) != 1)}"
        if counted
        else "not checked yet"
    )


def label(study: str, finding: str = "") -> str:
    """The name of a study among the claims, or of one of its findings."""
    return (f"claim-{study}-{finding}" if finding else f"claims-{study}").replace(
        "_", "-"
    )


def plain(value: Any) -> str:
    """Whatever a record holds, as one line of text."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(plain(item) for item in value)
    return number(value)


def plain_name(key: str) -> str:
    """A key as a reader knows it."""
    return key.replace("_", " ").replace("bleu", "BLEU")


def rows_of(record: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The heads and cells of a record's table: means and ranges of a study's arms, or the metrics of a model."""
    if "findings" in record:
        rows = record["rows"]
        tuned = {arm: choice["rate"] for arm, choice in record["tuned"].items()}
        arms: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if (
                not row["tuning"]
                and row["budget"] == record["budget"]
                and row["rate"] == tuned.get(row["arm"])
            ):
                arms.setdefault(row["arm"], []).append(row)
        keys = [
            key
            for key, value in rows[0].items()
            if key not in BOOKKEEPING and not isinstance(value, list)
        ][: MOST_COLUMNS - 2]
        cells = []
        for arm, own in arms.items():
            values = [[row[key] for row in own if key in row] for key in keys]
            spread = [
                f"{number(fmean(v))} ({number(min(v))} to {number(max(v))})"
                if v
                else ""  # a variant that this does not apply to
                for v in values
            ]
            cells.append([arm, *[plain(tuned.get(arm, ""))] * bool(tuned), *spread])
        heads = ["Variant", *["Rate"] * bool(tuned)]
        return [*heads, *map(plain_name, keys)], cells
    return ["measure", "value"], [
        [plain_name(name), plain(entry)]
        for name, entry in record["metrics"].items()
    ]


def table(heads: list[str], rows: list[list[str]]) -> nodes.table:
    """A table of texts."""
    columns = [nodes.colspec(colwidth=max(4, 100 // len(heads))) for _ in heads]
    head, *body = (
        nodes.row("", *(nodes.entry("", nodes.paragraph("", text)) for text in row))
        for row in (heads, *rows)
    )
    group = nodes.tgroup("", *columns, cols=len(heads))
    group += [nodes.thead("", head), nodes.tbody("", *body)]
    return nodes.table("", group, classes=["study"])


def body(record: dict[str, Any]) -> list[nodes.Node]:
    """Command, origin and numbers of a record."""
    about = record | record["runs"][-1] if "runs" in record else record
    command = about["command"]
    facts = nodes.field_list(classes=["facts"])
    for key in ORIGIN[1:]:
        if about.get(key) not in (None, "", [], {}):
            text = nodes.paragraph("", plain(about[key]))
            facts += nodes.field(
                "", nodes.field_name("", key), nodes.field_body("", text)
            )
    block = nodes.literal_block(command, command, language="bash")
    findings = nodes.bullet_list()
    for name, found in record.get("findings", {}).items():
        words = f" {numbers(found)}, {verdict(record, name)}."
        line = nodes.paragraph(
            "", "", nodes.emphasis("", found["text"]), nodes.Text(words)
        )
        findings += nodes.list_item("", line)
    return [block, facts, *[findings] * bool(findings), table(*rows_of(record))]


class _Records(SphinxDirective):
    def folder(self) -> Path:
        folder = Path(self.env.srcdir) / "transformer_lib" / "results"
        for path in folder.glob("*.json"):
            self.env.note_dependency(str(path))
        self.env.note_reread()
        return folder


class ResultsIndex(_Records):
    """Every record, collapsed to its title."""

    def leads_here(self, study: str, record: dict[str, Any]) -> None:
        """Links to what the claims page leaves out lead here."""
        findings, std = record.get("findings", {}), self.env.domains["std"]
        names = [
            label(study, key)
            for key, one in findings.items()
            if not one.get("line")
        ]
        names += [label(study)] * (len(names) == len(findings) > 0)
        for one in names:
            std.note_hyperlink_target(one, self.env.docname, f"run-{study}", study)

    def run(self) -> list[nodes.Node]:
        out: list[nodes.Node] = []
        for path in sorted(self.folder().glob("*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            title = escape(
                record.get("question") or record.get("title") or path.stem
            )
            summary = f'<details id="run-{path.stem}"><summary><code>{path.stem}</code> {title}</summary>'
            self.leads_here(path.stem, record)
            out += [
                nodes.raw("", summary, format="html"),
                *body(record),
                nodes.raw("", "</details>", format="html"),
            ]
        return out


LEFT, RIGHT = 0.1, 2.5  # the ends of the axis of ratios
MARKS = (1 / 8, 1 / 4, 1 / 2, 1, 2)


def along(value: float) -> str:
    """Where a ratio lies on the logarithmic axis."""
    return f"{100 * math.log(value / LEFT, RIGHT / LEFT):.1f}%"


def compared(record: dict[str, Any], ours: str, theirs: str) -> tuple[float, ...]:
    """Geometric mean, least and greatest of the ratios, theirs to ours, round by round."""
    seconds = {
        (row["arm"], row["seed"]): row["milliseconds"] for row in record["rows"]
    }
    found = [
        seconds[theirs, seed] / seconds[ours, seed] for seed in record["seeds"]
    ]
    return math.exp(fmean(map(math.log, found))), min(found), max(found)


class Ratios(_Records):
    """``{ratios}``: how long others take, as multiples of our time. Its content names groups, records and variants."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        folder, parts = self.folder(), []
        for group, given in yaml.safe_load("\n".join(self.content)).items():
            record = json.loads(
                (folder / f"{given['record']}.json").read_text(encoding="utf-8")
            )
            rows = []
            for name, (ours, theirs) in given["rows"].items():
                mean, low, high = compared(record, ours, theirs)
                rows.append(
                    f'<li><span>{escape(name)}</span> <span class="track" aria-hidden="true"><i style="left: {along(low)}; '
                    f'right: calc(100% - {along(high)})"></i><b style="left: {along(mean)}"></b></span> '
                    f"<span>{show(mean)}</span></li>"
                )
            parts.append(f"<p>{escape(group)}</p><ul>{''.join(rows)}</ul>")
        marks = "".join(
            f'<span style="left: {along(mark)}">{"1/" * (mark < 1)}{max(mark, 1 / mark):g}</span>'
            for mark in MARKS
        )
        text = f'<figure class="ratios" style="--one: {along(1)}">{"".join(parts)}<div class="marks" aria-hidden="true">{marks}</div></figure>'
        return [nodes.raw("", text, format="html")]


SORT = """<script>
document.querySelectorAll(".published td:nth-child(7)").forEach((cell) => {
  const size = parseFloat(cell.textContent.replace(/,/g, ""));
  if (!size) return;
  const at = `${(100 * Math.log(size / 5)) / Math.log(1000)}% 2.2rem`;
  cell.style.background = `radial-gradient(circle at ${at}, var(--book-orange) 4px, transparent 4.6px)`;
});
document.querySelectorAll(".published th").forEach((head) => {
  const name = head.textContent.trim(), button = document.createElement("button");
  button.textContent = name;
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const table = head.closest("table"), column = head.cellIndex, body = table.tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    const value = (row) => row.cells[column].textContent.trim();
    const size = (row) => parseFloat(value(row).replace(/,/g, ""));
    const by = (a, b) => (isNaN(size(a)) || isNaN(size(b)) ? value(a).localeCompare(value(b)) : size(a) - size(b));
    const unknown = (row) => value(row) === "\u2013" || value(row) === "";
    const rows = [...body.rows].sort((a, b) => unknown(a) - unknown(b) || (up ? by(a, b) : by(b, a)));
    body.append(...rows);
    table.querySelectorAll("th").forEach((one) => one.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  });
});
</script>"""


def published_lines() -> list[str]:
    """What published models chose, as the lines of a table in Markdown."""
    heads = "model", "year", "attention", "positions", "also", "feed-forward"
    heads += "KB a token", "rests on", "source"
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, row in load_published().items():
        kept = sum(layers * numbers for layers, numbers in row.get("cache", []))
        size = f"{2 * kept / 1000:,.1f}" if kept else "\N{EN DASH}"
        parts = (row[key] for key in ("attention", "positions", "extras"))
        cells = name, str(row["year"]), *parts, row["feed_forward"], size
        cells += (row["rests"],)
        lines.append(f"| {' | '.join(cells)} | {{cite}}`{row['source']}` |")
    return lines


class PublishedModels(SphinxDirective):
    """``{published-models}``: what published models chose, a table that can be sorted."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(inspect.getfile(load_published))
        out = nodes.container(classes=["published"])
        lines = StringList(published_lines(), "published")
        self.state.nested_parse(lines, 0, out)
        return [out, nodes.raw("", SORT, format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives."""
    app.add_directive("results-index", ResultsIndex)
    app.add_directive("ratios", Ratios)
    app.add_directive("published-models", PublishedModels)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
