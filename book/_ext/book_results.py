"""``{results-table}`` and ``{results-records}``: long runs, read from ``results/*.json`` when the book is built."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from book_chapters import table
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

KEYS = ("command", "commit", "date", "versions", "hardware", "seeds", "data")
RUN_KEYS = ("model", "parameters", "metrics", "curves")  # of a record of one run
STUDY_KEYS = ("title", "rows")  # of a record that compares several
NONE_YET = "No long run has been recorded yet."


def records(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Every record below ``folder`` with its name, in alphabetical order."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path.name} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise ValueError(f"{path.name} lacks an object")
        wanted = KEYS + (STUDY_KEYS if "rows" in record else RUN_KEYS)
        if missing := [key for key in wanted if key not in record]:
            raise ValueError(f"{path.name} lacks {', '.join(missing)}")
        found.append((path.stem, record))
    return found


def number(value: Any) -> str:
    """A number as the page prints it: 2,621,440 and 24.31 and 0.0005."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def plain(value: Any) -> str:
    """Whatever a record holds, as one line of text."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(plain(item) for item in value)
    if isinstance(value, (int, float)):
        return number(value)
    return str(value)


def metric(entry: Any) -> tuple[str, str | None]:
    """A metric's value and its signature, if it has one."""
    if isinstance(entry, dict):
        return number(entry.get("value")), entry.get("signature")
    return number(entry), None


def spread(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The heads and cells of a study's table; a column ``x_sd`` joins the column ``x`` as "x ± sd"."""
    keys = [key for key in rows[0] if not key.endswith("_sd")]
    decimals = {key: _decimals([row[key] for row in rows]) for key in keys}

    def cell(row: dict[str, Any], key: str) -> str:
        values, places = [row[key], row.get(f"{key}_sd")], decimals[key]
        shown = [
            number(value) if places is None else f"{value:,.{places}f}"
            for value in values
            if value is not None
        ]
        return "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}".join(shown)

    return [key.replace("_", " ") for key in keys], [
        [cell(row, key) for key in keys] for row in rows
    ]


def _decimals(column: list[Any]) -> int | None:
    """How many decimals the numbers of a column get; None for text, whole numbers, and numbers of unlike size."""
    if not all(_is_number(value) for value in column) or all(
        isinstance(value, int) for value in column
    ):
        return None
    sizes = [abs(value) for value in column if value]
    if sizes and max(sizes) >= 100 * min(sizes):
        return None
    recorded = max(len(repr(float(value)).partition(".")[2]) for value in column)
    return min(recorded, 3 if min(sizes, default=1) < 1 else 2)


def lines_of(curves: Any) -> list[tuple[str, list[float], list[float]]]:
    """The curves as (name, x, y). They come as points ({"epoch": 1, "loss": 3.2}, ...) or as named x and y."""
    if not isinstance(curves, list) or not all(
        isinstance(entry, dict) for entry in curves
    ):
        return []
    if all("y" in entry for entry in curves):
        return [
            (
                str(entry.get("name", "")),
                list(entry.get("x") or range(1, len(entry["y"]) + 1)),
                list(entry["y"]),
            )
            for entry in curves
            if len(entry["y"]) > 1
        ]
    keys = [key for key in dict.fromkeys(key for point in curves for key in point)]
    steps = next(
        (key for key in ("update", "updates", "step", "epoch") if key in keys), None
    )
    found = []
    for key in keys:
        points = [
            (point.get(steps, i + 1), point[key])
            for i, point in enumerate(curves)
            if _is_number(point.get(key))
        ]
        if (
            key not in ("update", "updates", "step", "epoch", "pass", "seconds")
            and len(points) > 1
        ):
            found.append((key, [x for x, _ in points], [y for _, y in points]))
    return found


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value == value
    )


def curve(
    name: str,
    xs: Sequence[float],
    ys: Sequence[float],
    width: int = 220,
    height: int = 96,
) -> str:
    """One small line chart as SVG in the page's own colours."""
    low, high, left, right = min(ys), max(ys), min(xs), max(xs)
    step = lambda x, a, b, size: (x - a) / ((b - a) or 1) * size  # noqa: E731
    points = " ".join(
        f"{8 + step(x, left, right, width - 16):.1f},{height - 8 - step(y, low, high, height - 34):.1f}"
        for x, y in zip(xs, ys, strict=True)
    )
    label = html.escape(name.replace("_", " "))
    spoken = f"{label} from {number(ys[0])} to {number(ys[-1])}"
    return (
        f'<svg class="curve" viewBox="0 0 {width} {height}" role="img" aria-label="{spoken}">'
        f'<text x="8" y="15">{label}</text><text x="{width - 8}" y="15" text-anchor="end">{number(ys[-1])}</text>'
        f'<path d="M8 {height - 7.5}H{width - 8}"/><polyline points="{points}"/></svg>'
    )


def _bullets(record: dict[str, Any]) -> nodes.field_list:
    listed = nodes.field_list(classes=["facts"])
    origin = ("date", "commit", "hardware", "seeds", "versions")
    for key in (
        *origin,
        "data",
        "model",
        "parameters",
        "decoding",
        "by_length",
        "notes",
    ):
        if record.get(key) not in (None, "", [], {}):
            listed += nodes.field(
                "",
                nodes.field_name("", key.replace("_", " ")),
                nodes.field_body("", nodes.paragraph("", plain(record[key]))),
            )
    for key, entry in record.get("metrics", {}).items():
        value, signature = metric(entry)
        line = nodes.paragraph("", value)
        if signature:
            line += [nodes.Text(" "), nodes.literal(signature, signature)]
        words = key.replace("_", " ")
        listed += nodes.field(
            "", nodes.field_name("", words), nodes.field_body("", line)
        )
    return listed


class _Records(SphinxDirective):
    def read(self) -> list[tuple[str, dict[str, Any]]]:
        folder = Path(self.env.srcdir) / "results"
        for path in folder.glob("*.json"):
            self.env.note_dependency(str(path))
        self.env.note_reread()
        try:
            return records(folder)
        except ValueError as error:
            raise self.error(str(error)) from error


class ResultsTable(_Records):
    """One row for each run: its size, and what it scored on the test part."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for name, record in self.read():
            if "rows" in record:
                continue
            scores = [
                record["metrics"].get(f"test_{name}")
                for name in ("bleu", "exact_match", "perplexity")
            ]
            anchor = nodes.reference(
                "", name, refid=nodes.make_id(f"run {name}"), internal=True
            )
            cells = [
                number(record["parameters"]),
                *("" if score is None else metric(score)[0] for score in scores),
            ]
            rows.append([[anchor], *[[nodes.Text(cell)] for cell in cells]])
        if not rows:
            return [nodes.paragraph("", NONE_YET)]
        heads = ["Run", "Parameters", "BLEU", "Exact match, %", "Perplexity"]
        return [table(heads, rows, [40, 18, 12, 15, 15], ["results"])]


class ResultsRecords(_Records):
    """Each record in full: its command, its facts, its curves."""

    def run(self) -> list[nodes.Node]:
        out: list[nodes.Node] = []
        for name, record in self.read():
            section = nodes.section(
                ids=[nodes.make_id(f"run {name}")],
                names=[nodes.fully_normalize_name(name)],
            )
            section += nodes.title("", record.get("title", name))
            section += nodes.literal_block(
                record["command"], record["command"], language="bash"
            )
            section += _bullets(record)
            if "rows" in record:
                heads, cells = spread(record["rows"])
                rows = [[[nodes.Text(text)] for text in row] for row in cells]
                section += table(
                    heads, rows, [max(4, 100 // len(heads))] * len(heads), ["study"]
                )
            drawn = "".join(curve(*line) for line in lines_of(record.get("curves")))
            if drawn:
                section += nodes.raw(
                    "", f'<div class="curves">{drawn}</div>', format="html"
                )
            out.append(section)
        return out


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("results-table", ResultsTable)
    app.add_directive("results-records", ResultsRecords)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
