"""``{results-table}`` and ``{results-records}``: long runs, read from ``results/*.json`` when the book is built."""

from __future__ import annotations

import html
import json
import re
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
UNITS = {
    "loss": "nats a token",
    "validation_loss": "nats a token",
    "gradient_norm": "norm",
    "learning_rate": "",
    "target_tokens_per_second": "tokens a second",
}
STEPS = ("update", "updates", "step", "epoch")
INTERVALS = (
    "quartiles",
    "difference",
    "interval",
    "minus_greedy",
)  # columns whose two numbers are ends
MOST_NUMBERS = 6  # in one cell
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


def wrapped(command: str, width: int = 84) -> str:
    """A command on lines that fit, each but the last with a backslash at its end."""
    lines: list[str] = []
    for part in command.split("\n"):
        lines.append("")
        for word in re.findall(r"(?:'[^']*'|\"[^\"]*\"|\S)+", part):
            if lines[-1] and len(lines[-1]) + len(word) > width - 3:
                lines[-1] += " \\"
                lines.append(f"  {word}")
            else:
                lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


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
    nested = unshown(rows)
    keys = [key for key in rows[0] if not key.endswith("_sd") and key not in nested]
    decimals = {key: _decimals([row[key] for row in rows]) for key in keys}

    def cell(row: dict[str, Any], key: str) -> str:
        if isinstance(row[key], dict):  # a score and its interval
            ends = " to ".join(number(end) for end in row[key]["interval"])
            return f"{number(row[key]['bleu'])} ({ends})"
        if isinstance(row[key], list):
            between = " to " if key.endswith(INTERVALS) else ", "
            return between.join(number(one) for one in row[key])
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


def unshown(rows: list[dict[str, Any]]) -> list[str]:
    """The columns that are more than a cell can show. The file has them."""
    found = (key for row in rows for key, item in row.items() if _is_nested(item))
    return list(dict.fromkeys(found))


def _is_nested(value: Any) -> bool:
    """Whether a value is a table of its own, or a long list."""
    long = isinstance(value, list) and (
        len(value) > MOST_NUMBERS or not all(map(_is_number, value))
    )
    return long or (isinstance(value, dict) and set(value) != {"bleu", "interval"})


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
    steps = next((key for key in STEPS if key in keys), None)
    found = []
    for key in keys:
        points = [
            (point.get(steps, i + 1), point[key])
            for i, point in enumerate(curves)
            if _is_number(point.get(key))
        ]
        if key not in (*STEPS, "pass", "seconds") and len(points) > 1:
            found.append((key, [x for x, _ in points], [y for _, y in points]))
    return found


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value == value
    )


def axis_of(curves: Any) -> str:
    """What the curves run over: the name of their horizontal axis."""
    first = curves[0] if isinstance(curves, list) and curves else {}
    key = next((key for key in STEPS if key in first), "epoch")
    return {"update": "updates", "step": "updates", "epoch": "epochs"}.get(key, key)


def curve(
    name: str,
    xs: Sequence[float],
    ys: Sequence[float],
    axis: str = "epochs",
    width: int = 260,
    height: int = 150,
) -> str:
    """One small line chart as SVG in the page's own colours, with axes: lowest and highest value, first and last step."""
    low, high, left, right = min(ys), max(ys), min(xs), max(xs)
    x0, x1, y0, y1 = 58, width - 12, height - 34, 30
    place = lambda x, a, b, c, d: c + (x - a) / ((b - a) or 1) * (d - c)  # noqa: E731
    points = " ".join(
        f"{place(x, left, right, x0, x1):.1f},{place(y, low, high, y0, y1):.1f}"
        for x, y in zip(xs, ys, strict=True)
    )
    unit = UNITS.get(name, "")
    title = html.escape(name.replace("_", " "))
    if unit and unit not in title:
        title += f", {unit}"
    spoken = f"{title} from {number(ys[0])} to {number(ys[-1])}, over {axis}"
    ends = [(left, "start", x0), (right, "end", x1)]
    return (
        f'<svg class="curve" viewBox="0 0 {width} {height}" role="img" aria-label="{spoken}">'
        f'<text x="8" y="15">{title}</text>'
        f'<text x="{x0 - 5}" y="{y0}" text-anchor="end">{number(low)}</text>'
        + (
            f'<text x="{x0 - 5}" y="{y1 + 5}" text-anchor="end">{number(high)}</text>'
            if high > low
            else ""
        )
        + "".join(
            f'<text x="{x}" y="{y0 + 16}" text-anchor="{side}">{number(end)}</text>'
            for end, side, x in ends
        )
        + f'<text x="{(x0 + x1) / 2}" y="{y0 + 30}" text-anchor="middle">{html.escape(axis)}</text>'
        f'<path d="M{x0} {y1}V{y0 + 0.5}H{x1}"/><polyline points="{points}"/></svg>'
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


def _direction(record: dict[str, Any]) -> str:
    """From which language into which, such as "de to en"."""
    options = record.get("options", {})
    return f"{options.get('source', 'en')} to {options.get('target', 'de')}"


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

    def rows(self, beginning: str) -> list[dict[str, Any]]:
        """The rows of the record named by the first argument whose ``measured`` begins so; at least one."""
        name = self.arguments[0]
        every = dict(self.read())[name]["rows"]
        found = [row for row in every if row["measured"].startswith(beginning)]
        if not found:
            raise self.error(f"nothing in {name} begins with {beginning!r}")
        return found


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
            signature = metric(scores[0])[1] or ""
            cells = [
                number(record["parameters"]),
                _direction(record),
                str(record.get("decoding", {}).get("beam_size", 1)),
                *("" if score is None else metric(score)[0] for score in scores),
                ", ".join(
                    part.partition(":")[2]
                    for part in signature.split("|")
                    if part.startswith(("case", "tok"))
                ),
            ]
            rows.append([[anchor], *[[nodes.Text(cell)] for cell in cells]])
        if not rows:
            return [nodes.paragraph("", NONE_YET)]
        heads = ["Run", "Parameters", "From and to", "Beam"]
        heads += [
            "BLEU",
            "Exact match, %",
            "Perplexity a token",
            "Case, tokenisation",
        ]
        return [table(heads, rows, [26, 13, 9, 7, 8, 12, 12, 13], ["results"])]


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
            command = wrapped(record["command"])
            section += nodes.literal_block(command, command, language="bash")
            section += _bullets(record)
            if "rows" in record:
                heads, cells = spread(record["rows"])
                rows = [[[nodes.Text(text)] for text in row] for row in cells]
                section += table(
                    heads, rows, [max(4, 100 // len(heads))] * len(heads), ["study"]
                )
                if left := unshown(record["rows"]):
                    words = ", ".join(key.replace("_", " ") for key in left)
                    line = (
                        f"Too long for this table, and only in the file: {words}."
                    )
                    section += nodes.paragraph("", line)
            for part, groups in record.get("by_length", {}).items():
                heads = [f"BLEU, {part} part, words of the source"]
                heads += [group["words"] for group in groups]
                line = [[nodes.Text("all sentences of this length")]]
                line += [[nodes.Text(number(group["bleu"]))] for group in groups]
                widths = [40, *[60 // len(groups)] * len(groups)]
                section += table(heads, [line], widths, ["study"])
            curves = record.get("curves")
            lines, axis = lines_of(curves), axis_of(curves)
            drawn = "".join(curve(*line, axis=axis) for line in lines)
            if drawn:
                section += nodes.raw(
                    "", f'<div class="curves">{drawn}</div>', format="html"
                )
            out.append(section)
        return out


def bars(rows: Sequence[dict[str, Any]], width: int = 360) -> str:
    """Ratios as bars beside a line at one, each with its quartiles and its number, as SVG in the page's own colours."""
    step, left, right = 40, 6, width - 40
    most = max(
        1.2, *(max([row["times_as_fast"], *row["quartiles"]]) for row in rows)
    )
    x = lambda ratio: left + ratio / most * (right - left)  # noqa: E731
    drawn = []
    for i, row in enumerate(rows):
        y, ratio = 18 + i * step, row["times_as_fast"]
        drawn.append(
            f'<text x="{left}" y="{y}">{html.escape(row["peer"])}</text>'
            f'<rect x="{left}" y="{y + 5}" width="{x(ratio) - left:.1f}" height="10"/>'
            f'<text x="{x(ratio) + 5:.1f}" y="{y + 14}" class="value">{ratio:.2f}</text>'
        )
    height = 10 + len(rows) * step
    spoken = "; ".join(
        f"{row['peer']}: {row['times_as_fast']:.2f} times" for row in rows
    )
    return (
        f'<svg class="curve bars" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(spoken)}">'
        + "".join(drawn)
        + f'<path d="M{x(1):.1f} 4V{height - 4}"/></svg>'
    )


class ResultsRatios(_Records):
    """``{results-ratios} NAME`` with the beginning of ``measured`` as content: its rows as bars and as a table."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        rows = self.rows(" ".join(self.content))
        groups = dict.fromkeys(row["measured"] for row in rows)
        out: list[nodes.Node] = []
        for group in groups:
            members = [row for row in rows if row["measured"] == group]
            if members[0]["unit"] == "BLEU":
                continue  # a score is no speed: the table says it
            kind = (
                "times less than"
                if members[0]["unit"] == "MB"
                else "times as fast as"
            )
            title = f"{group[0].upper()}{group[1:]}: {kind}"
            figure = f'<figure class="ratios"><figcaption>{html.escape(title)}</figcaption>{bars(members)}</figure>'
            out.append(nodes.raw("", figure, format="html"))
        heads = [
            "Measured",
            "Beside",
            "Unit",
            "Ours",
            "Theirs",
            "Quartiles of the ratio",
        ]
        keys, cells = ("measured", "peer", "unit"), []
        for row in rows:
            ends = " to ".join(f"{end:.2f}" for end in row["quartiles"])
            speeds = [f"{row[side]:,.1f}" for side in ("ours", "theirs")]
            cells.append([*(row[key] for key in keys), *speeds, ends])
        lines = [[[nodes.Text(text)] for text in row] for row in cells]
        return [*out, table(heads, lines, [24, 22, 14, 12, 12, 16], ["study"])]


class ResultsGrid(_Records):
    """``{results-grid} NAME`` with the beginning of ``measured`` as content: a line for each length, a column for each peer."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        wanted = f"{' '.join(self.content)}, "
        rows = self.rows(wanted)
        peers = list(dict.fromkeys(row["peer"] for row in rows))
        lines: dict[str, list[str]] = {}
        for row in rows:
            length = row["measured"].removeprefix(wanted).removeprefix("length ")
            cells = lines.setdefault(length, [length, f"{row['ours']:,.1f}"])
            cells.append(f"{row['times_as_fast']:.2f}")
        cells = [[[nodes.Text(text)] for text in line] for line in lines.values()]
        heads = ["Length", f"Ours, {rows[0]['unit']}", *peers]
        widths = [12, 18, *[70 // len(peers)] * len(peers)]
        return [table(heads, cells, widths, ["study"])]


class ResultsGoals(_Records):
    """``{results-goals} NAME ...``: what was asked for, what came out, of the ``goals`` of those records."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        found = dict(self.read())
        rows = [
            goal
            for name in self.arguments[0].split()
            for goal in found[name]["goals"]
        ]
        heads = ["Measured", "Beside", "Goal", "Found", "Reached"]
        lines = [
            [
                [nodes.Text(row["measured"])],
                [nodes.Text(row["beside"])],
                [nodes.Text(f"{row['goal']:.2f}")],
                [nodes.Text(f"{row['found']:.2f}")],
                [nodes.Text(row["reached"])],
            ]
            for row in rows
        ]
        return [table(heads, lines, [34, 30, 12, 12, 12], ["study"])]


class ResultsProfile(_Records):
    """``{results-profile} NAME``: the table of a record's ``profile``, a line for each kind of operation."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (works,) = (
            record["profile"]
            for name, record in self.read()
            if name == self.arguments[0]
        )
        heads = [
            "Percent of the operators' time",
            *(work["work"] for work in works),
        ]
        lines = [
            [
                [nodes.Text(kind)],
                *([nodes.Text(str(work["percent"][kind]))] for work in works),
            ]
            for kind in works[0]["percent"]
        ]
        return [
            table(heads, lines, [40, *[60 // len(works)] * len(works)], ["study"])
        ]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("results-profile", ResultsProfile)
    app.add_directive("results-ratios", ResultsRatios)
    app.add_directive("results-grid", ResultsGrid)
    app.add_directive("results-goals", ResultsGoals)
    app.add_directive("results-table", ResultsTable)
    app.add_directive("results-records", ResultsRecords)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
