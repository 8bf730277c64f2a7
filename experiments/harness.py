"""A study trains every arm with every seed and keeps a row for each; a finding is a sentence and an interval.

Learning rates are tuned first, for each arm and on seeds of their own. Only then are the seeds measured that count.
"""

import importlib
import inspect
import json
import math
import os
import pkgutil
import platform
import re
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_lib import results
from transformer_lib.data.files import write_atomically

TUNING = (50, 51)  # the seeds on which rates are chosen
ABOUT = ("question", "chapter", "equal", "metric", "unit", "fell")  # what a record says of its study
# sentences of earlier editions that broke, and what broke them
WITHDRAWN = json.loads(Path(__file__).with_name("withdrawn.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Finding:
    """A sentence, the effect behind it (see `statistics`), and when it holds: `low > 0.5`, written before the run."""

    text: str
    effect: object
    holds: str
    withdrawn: str = ""  # why it is no longer believed; it stays on record


@dataclass(frozen=True)
class Check:
    """Somebody else's attempt to break findings: other seeds, with more updates, or with something else changed.

    `arms` names those that are trained, with settings of their own in place of the study's; `settings` change for all.
    """

    tried: str
    findings: tuple
    seeds: object
    arms: dict
    budget: int = 0  # the study's
    settings: dict = field(default_factory=dict)
    rates: object = None  # the study's


@dataclass(frozen=True)
class Study:
    """A question, asked by `measure(seed=, budget=, **settings)`, which returns the numbers of one row.

    `arms` gives the settings of each name. An arm without a `rate` is trained with all `rates` on the tuning seeds, and
    measured with the one whose `valid` is best (the lowest, or the highest if `higher`). The arms of
    `every_rate` are measured with all of them, for a figure. `each` names what a seed stands for.
    """

    chapter: str
    equal: str
    arms: dict
    measure: object
    metric: str
    findings: dict
    budget: int
    smoke: int
    rates: tuple = ()
    seeds: object = range(5)
    each: str = "seed"
    unit: str = "updates"
    higher: bool = False
    every_rate: tuple = ()

    name = property(lambda self: self.measure.__module__.rpartition(".")[2])
    fell = property(lambda self: WITHDRAWN.get(self.name, {}))
    question = property(lambda self: inspect.getmodule(self.measure).__doc__.strip().splitlines()[0])

    def changed(self, check):
        """The study as a check runs it."""
        arms = {name: self.arms.get(name, {}) | check.settings | own for name, own in check.arms.items()}
        findings = {name: self.findings[name] for name in check.findings}
        rates = self.rates if check.rates is None else check.rates
        return replace(self, arms=arms, findings=findings, rates=rates, every_rate=())

    def rates_of(self, arm):
        """The rates between which an arm may choose: one tuple for all, or one for each."""
        rates = self.rates.get(arm, ()) if isinstance(self.rates, dict) else self.rates
        return () if "rate" in self.arms[arm] else tuple(rates)


def names():
    """Every file in `experiments/studies` is a study."""
    folder = importlib.import_module("experiments.studies").__path__
    return [module.name for module in pkgutil.iter_modules(folder)]


def get_study(name):
    """A study by name."""
    if name not in names():
        raise SystemExit(f"no study is called {name!r}; there are {', '.join(names())}")
    return importlib.import_module(f"experiments.studies.{name}").STUDY


def checks_of(study):
    """What others tried, by name."""
    return importlib.import_module("experiments.checks").CHECKS.get(study.name, {})


def provenance(command):
    """What it takes to believe a row, and to repeat it."""
    git = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True)
    commit = git(["git", "rev-parse", "HEAD"]).stdout.strip() or version("attention-step-by-step")
    changed = git(["git", "status", "--porcelain", ":/", ":!/transformer_lib/results"]).stdout.strip()
    cpu = Path("/proc/cpuinfo")
    model = re.search("model name.*: (.*)", cpu.read_text()) if cpu.exists() else None
    place = os.environ.get("DEVICE", "cpu")  # where models were trained
    return ({} if place == "cpu" else {"device": place}) | {
        "command": command,
        "commit": commit + (" with changes" if changed else ""),
        "date": str(date.today()),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "hardware": model[1] if model else platform.machine(),
    }


def train(name, settings, job):
    """One row."""
    torch.set_num_threads(1)
    torch.manual_seed(job["seed"])
    start = time.perf_counter()
    numbers = get_study(name).measure(seed=job["seed"], budget=job["budget"], **settings)
    torch.set_flush_denormal(False)  # some studies switch it on
    rounded = {key: float(f"{value:.5g}") for key, value in numbers.items()}
    return job | rounded | {"seconds": round(time.perf_counter() - start, 1)}


def key_of(row):
    """What tells a row from all others."""
    return row["arm"], row["rate"], row["seed"], row["budget"], row["tuning"]


def fill(study, section, jobs, workers, save):
    """Add the rows that are not there yet, saving after each of them."""
    done = set(map(key_of, section["rows"]))
    jobs = [job for job in jobs if key_of(job) not in done]
    calls = []
    for job in jobs:
        rate = {} if job["rate"] is None else {"rate": job["rate"]}
        calls.append(partial(train, study.name, study.arms[job["arm"]] | rate, job))
    # the pool starts no process before it is used
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        if workers > 1:
            rows = (future.result() for future in as_completed(map(pool.submit, calls)))
        else:
            rows = (call() for call in calls)
        for row in tqdm(rows, study.name, len(jobs), unit="run", disable=not jobs):
            section["rows"].append(row | {"run": len(section["runs"]) - 1})
            save()


def choose(study, rows):
    """For each tuned arm the best rate on the tuning seeds, and whether it lies at the edge of its grid."""
    tuned, rows = {}, [row for row in rows if row["tuning"]]
    for arm in study.arms:
        losses = {}
        for rate in study.rates_of(arm):
            values = [row["valid"] for row in rows if (row["arm"], row["rate"]) == (arm, rate)]
            mean = sum(values) / len(values)
            losses[rate] = -mean if study.higher else mean
            losses[rate] = math.inf if math.isnan(mean) else losses[rate]
        if losses:
            best = min(losses, key=losses.get)
            edge = len(losses) > 1 and best in (min(losses), max(losses))
            tuned[arm] = {"rate": best, "edge": edge}
    return tuned


def measured(section):
    """The rows of the measured seeds, of each arm only those at its own rate."""
    tuned = {arm: choice["rate"] for arm, choice in section["tuned"].items()}
    rows = (row for row in section["rows"] if not row["tuning"] and row["budget"] == section["budget"])
    return [row for row in rows if row["seed"] in section["seeds"] and row["rate"] == tuned.get(row["arm"])]


def judge(study, section):
    """Every finding as numbers, with its words and criterion, and whether it holds on these rows."""
    judged = {}
    for name, finding in study.findings.items():
        numbers = finding.effect(measured(section))
        holds = bool(eval(finding.holds, {"__builtins__": {"abs": abs}}, numbers))
        judged[name] = {"text": finding.text, "criterion": finding.holds, **numbers, "holds": holds}
        judged[name] |= {"withdrawn": finding.withdrawn} if finding.withdrawn else {}
    return judged


def run(study, seeds, budget, command, *, tried=None, folder=None, workers=1, smoke=False):
    """Train what the record lacks, writing it after every row, and judge. `tried`: a referee's words for their rows."""
    if overlap := set(seeds) & set(TUNING):
        raise SystemExit(f"rates are tuned on the seeds {sorted(overlap)}: choose others")
    if smoke:  # the middle of each grid
        grids = {arm: study.rates_of(arm) for arm in study.arms}
        middle = {arm: grid[len(grid) // 2 :][:1] for arm, grid in grids.items()}
        study = replace(study, rates=middle)
    path = Path(folder or Path(results.__file__).parent, f"{study.name}.json")
    record = {"challenges": [], "rows": [], "runs": []}
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
    record |= {key: getattr(study, key) for key in ABOUT}
    section = record
    if tried:
        known = {old["tried"]: old for old in record["challenges"]}
        section = known.setdefault(tried, {"tried": tried, "rows": [], "runs": []})
        record["challenges"] = list(known.values())
    source = provenance(command)
    if source not in section["runs"]:
        section["runs"].append(source)
    section |= {"seeds": list(seeds), "budget": budget}

    save = partial(write, record, path)

    def jobs(seeds, tuning, rates):
        return [  # in turns: timings of one repetition stand side by side
            {"arm": arm, "rate": rate, "seed": seed, "budget": budget, "tuning": tuning}
            for seed in seeds
            for arm in study.arms
            for rate in rates(arm)
        ]

    def final(arm):
        rates = study.rates_of(arm) if arm in study.every_rate else ()
        return rates or [section["tuned"].get(arm, {}).get("rate")]

    fill(study, section, jobs(TUNING[: 1 if smoke else None], True, study.rates_of), workers, save)
    section["tuned"] = choose(study, section["rows"])
    fill(study, section, jobs(seeds, False, final), workers, save)
    arms = {arm: place for place, arm in enumerate(study.arms)}

    def place(row):
        at = arms.get(row["arm"], -1)  # an arm that the study had once
        return row["budget"], not row["tuning"], at, row["rate"] or 0, row["seed"]

    section["rows"].sort(key=place)
    section["findings"] = judge(study, section)
    save()
    return section


def rejudge(study):
    """Judge the rows of a record again, and those of its challenges for the findings that they were made to judge."""
    path = Path(results.__file__).with_name(f"{study.name}.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    record |= {key: getattr(study, key) for key in ABOUT}
    record["findings"] = judge(study, record)
    for old in record["challenges"]:
        findings = {name: study.findings[name] for name in old["findings"] if name in study.findings}
        old["findings"] = judge(replace(study, findings=findings), old)
    write(record, path)


def write(record, path):
    """Write JSON with a row a line, so that a diff can be read, and never half a file."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    text = re.sub(r"\{[^{}]*(\{[^{}]*\}[^{}]*)?\}|\[[^][{}]*\]", lambda match: re.sub(r"\n *", " ", match[0]), text)
    write_atomically(path, f"{text}\n".encode())
