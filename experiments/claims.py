"""The claims page: every finding in its own words, with all that speaks for and against it, written from the records."""

from pathlib import Path

from experiments.harness import get_study, measured, names
from transformer_lib import results

PAGE = Path(__file__).parents[1] / "book/appendix/claims.md"
HEAD = """# Claims

> Every finding of this book, how we measured it, and whether an independent check has tried to break it.

Most claims about attention are repeated more often than they are measured. Each finding below belongs to a small study that
you can repeat with one command. Before we ran it, we wrote down the condition under which its finding would hold. We
chose each variant's learning rate on seeds that we don't measure (unless the variant fixes the rate), and kept every
seed that we do. An independent check then tries to break the finding, with new seeds and a larger budget, or with a
change to something else that could explain it. A finding has survived when two such checks have failed to break it. If
one of them breaks it, we withdraw it and may correct it. The corrected sentence comes after the first results, so it
needs two new checks of its own. Checks that had already run don't count for it. `python -m experiments check` runs
every check again.

{summary}

Filled dots are our training runs, and rings belong to an independent check. Below each finding, you see the measured
value, its 95 % interval in brackets, and the condition: `value` is the first number, `low` and `high` are the ends of
the interval. A withdrawn finding may well have met its condition. The text below it says why we withdrew it.

```{{raw}} html
<style>
.seeds path {{ stroke: currentColor; opacity: .35 }}
.seeds .ours {{ fill: #2563eb; opacity: .6 }}
.seeds .theirs {{ fill: none; stroke: #c2410c; stroke-width: 1.5 }}
</style>
```
"""
STUDY = """
(claims-{label})=
## {question}

{{doc}}`The chapter </book/{chapter}>`. Held equal: {equal}. Budget: {budget:,} {unit}. Metric: {metric}.
There were {runs} runs, which took {minutes:.0f} minutes on one core of a processor ({hardware}, PyTorch {torch}, commit {commit:.7}).

```bash
python -m experiments run {name}
```
"""
FINDING = """
(claim-{label})=
### {mark}: {text}

**{value}** [{low}, {high}] ({how}). It holds if `{criterion}`.
{table}"""
MARKS = {
    "survived": "✓ survived",
    "once": "held in one independent check so far",
    "waiting": "awaiting an independent check",
    "broken": "✗ broke",
    "failed": "✗ did not come out",
    "withdrawn": "✗ withdrawn",
}


def show(value):
    """A number with three digits that count, and a real minus sign."""
    digits = 2 if abs(value) < 100 else 0
    return f"{value:.{3 if abs(value) < 0.1 else digits}f}".replace("-", "\N{MINUS SIGN}")


def strip(ours, theirs, low, high):
    """A dot for each seed on a line."""
    dots = [(value, "ours") for value in ours] + [(value, "theirs") for value in theirs]
    marks = "".join(
        f'<circle cx="{6 + 148 * (v - low) / ((high - low) or 1):.0f}" cy="8" r="4" class="{c}"/>' for v, c in dots
    )
    return f'<svg class="seeds" width="160" height="16" role="img" aria-label="{len(dots)} runs"><path d="M6 8H154"/>{marks}</svg>'


def verdict(found, challenges):
    """What became of a finding."""
    if found.get("withdrawn"):
        return "withdrawn"
    if not found["holds"]:
        return "failed"
    if not challenges:
        return "waiting"
    if not all(one["holds"] for one in challenges):
        return "broken"
    return "survived" if len(challenges) > 1 else "once"


def seeds_table(study, found, record, challenges):
    """Every seed of the arms that a finding compares."""

    def values(sections, arm):
        return [row[found["metric"]] for part in sections for row in measured(part) if row["arm"] == arm]

    arms = {arm: (values([record], arm), values(challenges, arm)) for arm in found["arms"]}
    every = [value for pair in arms.values() for values in pair for value in values]
    if not every:  # a number of all arms together
        return ""
    low, high = min(0, *every), max(every)
    lines = [f"| | every {study.each}, {show(low)} to {show(high)} | mean |", "|---|---|---|"]
    for arm, (ours, theirs) in arms.items():
        lines.append(f"| {arm} | {strip(ours, theirs, low, high)} | {show(sum(ours) / len(ours))} |")
    return "\n" + "\n".join(lines) + "\n"


def render(study, name, record):
    """One finding as Markdown, and what became of it."""
    found = record["findings"][name]
    tried = [c for c in record["challenges"] if name in c.get("findings", ())]
    became = verdict(found, [c["findings"][name] for c in tried])
    shown = {key: show(found[key]) for key in ("value", "low", "high")}
    shown |= {"text": study.findings[name].text, "how": found["how"].replace(" seeds", f" {study.each}s")}
    label = f"{study.name}-{name}".replace("_", "-")
    text = FINDING.format(
        label=label, mark=MARKS[became], table=seeds_table(study, found, record, tried), **(found | shown)
    )
    for challenge in tried:
        one = challenge["findings"][name]
        word = "Held" if one["holds"] else "**Broke**"
        text += f"\n- {word} ({challenge['tried']}): {show(one['value'])} [{show(one['low'])}, {show(one['high'])}]."
    text += f"\n{study.findings[name].withdrawn}\n" if found.get("withdrawn") else "\n" if tried else ""
    return became, text


def section(study, record):
    """A study with all its findings."""
    rows = [row for part in (record, *record["challenges"]) for row in part["rows"]]
    last, minutes = record["runs"][-1], sum(row["seconds"] for row in rows) / 60
    text = STUDY.format(name=study.name, label=study.name.replace("_", "-"), runs=len(rows), minutes=minutes, budget=record["budget"], torch=last["versions"]["torch"], **last,
                        **{key: getattr(study, key) for key in ("question", "chapter", "equal", "unit", "metric")})  # fmt: skip
    parts = [render(study, name, record) for name in study.findings if name in record["findings"]]
    edges = [f"{arm} ({choice['rate']})" for arm, choice in record["tuned"].items() if choice["edge"]]
    text += f"\nBest rate at the edge of what we tried: {', '.join(edges)}.\n" if edges else ""
    return [became for became, _ in parts], text + "".join(part for _, part in parts)


def page():
    """The whole page."""
    studies, recorded = [get_study(name) for name in names()], results.names()
    text, became = "", []
    for study in (study for study in studies if study.name in recorded):
        one, part = section(study, results.load(study.name))
        became, text = became + one, text + part
    waiting = [study for study in studies if study.name not in recorded]
    if waiting:
        text += "\n## Not measured in full yet\n\nThe code is there and runs in miniature in every test.\n\n"
        text += "".join(f"- {study.question} (`{study.name}`)\n" for study in waiting)
    text += "\n## Withdrawn\n\nThese sentences were printed in earlier editions of this book. After each, you can read what broke it.\n\n"
    text += "".join(f"- *{old}* {why}\n" for study in studies for old, why in study.fell.items())
    counts = ", ".join(f"{became.count(key)} {words}" for key, words in MARKS.items() if became.count(key))
    return HEAD.format(summary=f"Of {len(became)} findings: {counts}.") + text


def write():
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
