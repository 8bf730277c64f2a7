"""A study trains every arm with every seed and keeps a row for each; a finding is a sentence and an interval.

Learning rates are tuned first, for each arm and on seeds of their own. Only then are the seeds measured that count.
"""

import importlib
import inspect
import json
import math
import operator
import os
import pkgutil
import platform
import re
import subprocess
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from experiments.statistics import Unmeasured
from transformer_lib import results
from transformer_lib.data.files import write_atomically

COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
TUNING = (50, 51)  # the seeds on which rates are chosen
# what a record says of its study
ABOUT = ("question", "chapter", "equal", "metric", "unit", "fell")
# findings that have left the studies: how often checks asked about them, how often they broke, and what broke each sentence
WITHDRAWN = json.loads(Path(__file__).with_name("withdrawn.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Finding:
    """A sentence, the effect behind it (see `statistics`), and when it holds, written before the run.

    `holds` is a condition such as `("low", ">", 0.5)`, or several of them. A finding with a `line` is one of those that
    the book stands by: the claims page prints its line, and `earlier` says what broke the sentences that it replaced.
    """

    text: str
    effect: object
    holds: tuple
    line: str = ""
    earlier: str = ""
    withdrawn: str = ""  # why it is no longer believed; it stays on record

    @property
    def criterion(self):
        """The conditions, as a list."""
        several = isinstance(self.holds[0], tuple)
        return [list(one) for one in (self.holds if several else [self.holds])]


@dataclass(frozen=True)
class Check:
    """Somebody else's attempt to break findings: other seeds, with more updates, or with something else changed.

    `asked` names the findings that had been written down before it ran; it judges all others of its arms as well.
    `arms` names those that are trained, with settings of their own in place of the study's; by default, it is all of
    them. `settings` change for all.
    """

    tried: str
    asked: tuple
    seeds: object
    arms: dict = field(default_factory=dict)
    budget: int = 0  # the study's
    settings: dict = field(default_factory=dict)
    rates: object = None  # the study's


@dataclass(frozen=True)
class Study:
    """A question, asked by `measure(seed=, budget=, **settings)`, which returns the numbers of one row.

    `arms` gives the settings of each name. An arm without a `rate` is trained with all `rates` on the tuning seeds, and
    measured with the one whose `valid` is best (the lowest, or the highest if `higher`). The arms of
    `every_rate` are measured with all of them, for a figure. A seed may stand for a round, or for a part of the data.
    """

    chapter: str
    equal: str
    arms: dict
    measure: object
    metric: str
    findings: dict
    budget: int
    smoke: int = 2  # the budget in miniature
    rates: tuple = ()
    seeds: object = range(5)
    unit: str = "updates"
    higher: bool = False
    every_rate: tuple = ()
    tuning: tuple = TUNING  # one of the two seeds is enough for a long training

    name = property(lambda self: self.measure.__module__.rpartition(".")[2])
    fell = property(lambda self: WITHDRAWN.get(self.name, {"asked": 0, "broke": 0, "sentences": {}}))
    question = property(lambda self: inspect.getmodule(self.measure).__doc__.strip().splitlines()[0])

    def changed(self, check):
        """The study as a check runs it."""
        arms = (check.arms or plain(self)).items()
        arms = {name: self.arms.get(name, {}) | check.settings | own for name, own in arms}
        rates = self.rates if check.rates is None else check.rates
        return replace(self, arms=arms, rates=rates, every_rate=())

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
    """What others tried, by name; each stands beside its study."""
    return getattr(inspect.getmodule(study.measure), "CHECKS", {})


def plain(study, *without):
    """The arms of a study as they are, except some: for its checks."""
    return {name: {} for name in study.arms if name not in without}


def provenance(command):
    """What it takes to believe a row, and to repeat it."""

    def git(*words):
        with suppress(OSError):  # there may be no git
            return subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True).stdout
        return ""

    commit = git("rev-parse", "HEAD").strip() or version("attention-step-by-step")
    changed = git("status", "--porcelain", ":/", ":!/transformer_lib/results")
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


def rounded(value):
    """A number, or a dictionary or list of numbers, to five digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else float(f"{value:.5g}")


def train(name, settings, job):
    """One row."""
    torch.set_num_threads(1)
    torch.manual_seed(job["seed"])
    start = time.perf_counter()
    rate = {} if job["rate"] is None else {"rate": job["rate"]}
    numbers = get_study(name).measure(seed=job["seed"], budget=job["budget"], **settings | rate)
    torch.set_flush_denormal(False)  # some studies switch it on
    return job | rounded(numbers) | {"seconds": round(time.perf_counter() - start, 1)}


def key_of(row):
    """What tells a row from all others."""
    return row["arm"], row["rate"], row["seed"], row["budget"], row["tuning"]


def finished(pool, calls):
    """Rows as they come. After an error no call begins any more, and it is raised when those that run have ended."""
    left, errors = {pool.submit(call) for call in calls}, []
    while left:
        done, left = wait(left, return_when=FIRST_COMPLETED)
        errors += [future.exception() for future in done if future.exception()]
        yield from (future.result() for future in done if not future.exception())
        if errors:
            left = {future for future in left if not future.cancel()}
    if errors:
        raise errors[0]


def fill(study, section, jobs, workers, save, source):
    """Add the rows that are not there yet, saving after each of them."""
    done = set(map(key_of, section["rows"]))
    jobs = [job for job in jobs if key_of(job) not in done]
    calls = [partial(train, study.name, study.arms[job["arm"]], job) for job in jobs]
    # the pool starts no process before it is used
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        rows = finished(pool, calls) if workers > 1 else (call() for call in calls)
        try:
            for row in tqdm(rows, study.name, len(jobs), unit="run", disable=not jobs):
                section["rows"].append(row | {"run": section["runs"].index(source)})
                save()
        finally:
            pool.shutdown(cancel_futures=True)


def choose(study, section):
    """For each tuned arm the best rate on the tuning seeds, and whether it lies at the edge of its grid."""
    own = section["budget"], True
    tuned, tuning = {}, [row for row in section["rows"] if (row["budget"], row["tuning"]) == own]
    for arm in study.arms:
        losses = {}
        for rate in study.rates_of(arm):
            own = [row["valid"] for row in tuning if (row["arm"], row["rate"]) == (arm, rate)]
            mean = sum(own) / len(own)
            losses[rate] = math.inf if math.isnan(mean) else -mean if study.higher else mean
        if losses:
            best = min(losses, key=losses.get)
            edge = len(losses) > 1 and best in (min(losses), max(losses))
            tuned[arm] = {"rate": best, "edge": edge}
    return tuned


def measured(section):
    """The rows of the measured seeds, of each arm only those at its own rate."""
    tuned = {arm: choice["rate"] for arm, choice in section["tuned"].items()}
    own = section["budget"], False
    rows = (row for row in section["rows"] if (row["budget"], row["tuning"]) == own)
    rows = (row for row in rows if row["seed"] in section["seeds"])
    return [row for row in rows if row["rate"] == tuned.get(row["arm"])]


def met(criterion, numbers):
    """Whether numbers meet all conditions of a criterion."""
    return all(COMPARED[sign](numbers[name], bound) for name, sign, bound in criterion)


def cannot_fail(study, finding, rows):
    """Whether a criterion is met in every world: all arms alike, one of its arms far above the others, or far below."""
    metrics = {key for row in rows for key, value in row.items() if isinstance(value, float)}
    metrics -= {"rate", "seconds"}
    columns = {key: [row[key] for row in rows if key in row] for key in metrics}
    arms = finding.effect(rows)["arms"] or list(study.arms)
    raised = [set(), *({arm} for arm in arms)]
    raised += [set(study.arms) - high for high in raised]

    def holds(high, negative):
        world = []
        for row in rows:
            moved = {}
            for key in metrics & row.keys():
                low, top = min(columns[key]), 10 * max(map(abs, columns[key])) + 1
                low = -top if negative else low / 10 if low > 0 else low
                moved[key] = top if row["arm"] in high else low
            world.append(row | moved)
        try:
            numbers = finding.effect(world)
        except (ValueError, ZeroDivisionError):  # a law that no negative number can follow, a ratio to nothing
            return True
        return math.isnan(numbers["value"]) or met(finding.criterion, numbers)

    with np.errstate(divide="ignore", invalid="ignore"):
        return all(holds(high, negative) for high in raised for negative in (False, True))


def refuse(study, section):
    """A criterion that nothing measured could have broken is no finding."""
    for name, finding in study.findings.items():
        if not finding.withdrawn and cannot_fail(study, finding, measured(section)):
            raise SystemExit(f"{study.name}/{name} holds whatever is measured, so it is no finding")


def judge(study, section, check=None):
    """Every finding as numbers, with its words and criterion, and whether it holds on these rows.

    A check judges all findings whose arms it has trained. What it judges beside those that it was asked is marked.
    """
    judged, rows = {}, measured(section)
    for name, finding in study.findings.items():
        try:
            numbers = finding.effect(rows)
        except Unmeasured:
            if check is None:
                raise
            continue
        words = {key: getattr(finding, key) for key in ("text", "line", "earlier", "withdrawn", "criterion")}
        words = {key: text for key, text in words.items() if text}
        numbers["holds"] = met(finding.criterion, numbers)
        judged[name] = numbers | (words if check is None else {"asked": name in check.asked})
    return judged


def stored(study, folder=None):
    """Where the record is, and what it holds, with what the study says of itself now."""
    path = Path(folder or Path(results.__file__).parent, f"{study.name}.json")
    record = json.loads(path.read_text(encoding="utf-8") if path.exists() else "{}")
    record = {"challenges": [], "rows": [], "runs": []} | record
    return path, record | {key: getattr(study, key) for key in ABOUT}


@contextmanager
def alone(study, folder=None):
    """Refuse a second process: each writes the whole record, and the last one would win."""
    path, _ = stored(study, folder)
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            yield
    except Timeout:
        raise SystemExit(f"another process is measuring {study.name}, and both would write {path}") from None


def run(study, seeds, budget, command, *, check=None, folder=None, workers=1, smoke=False):
    """Train what the record lacks, writing it after every row, and judge: the study, or a check of it."""
    if overlap := set(seeds) & set(TUNING):
        raise SystemExit(f"rates are tuned on the seeds {sorted(overlap)}: choose others")
    if smoke:  # the middle of each grid
        middle = {arm: (grid := study.rates_of(arm))[len(grid) // 2 :][:1] for arm in study.arms}
        study = replace(study, rates=middle)
    path, record = stored(study, folder)
    section = record
    if check:
        known = {old["tried"]: old for old in record["challenges"]}
        section = known.setdefault(check.tried, {"tried": check.tried, "rows": [], "runs": []})
        record["challenges"] = list(known.values())
    source = provenance(command)
    if source not in section["runs"]:
        section["runs"].append(source)
    # what is stopped can be read all the same
    section |= {"tuned": {}, "findings": {}} | section | {"seeds": list(seeds), "budget": budget}

    save = partial(write, record, path)

    def train_all(seeds, tuning, rates):
        jobs = [  # in turns: timings of one repetition stand side by side
            {"arm": arm, "rate": rate, "seed": seed, "budget": budget, "tuning": tuning}
            for seed in seeds
            for arm in study.arms
            for rate in rates(arm)
        ]
        fill(study, section, jobs, workers, save, source)

    def final(arm):
        rates = study.rates_of(arm) if arm in study.every_rate else ()
        return rates or [section["tuned"].get(arm, {}).get("rate")]

    train_all(study.tuning[: 1 if smoke else None], True, study.rates_of)
    section["tuned"] = choose(study, section)
    train_all(seeds, False, final)
    arms = list(study.arms)

    def place(row):
        at = arms.index(row["arm"]) if row["arm"] in arms else -1  # an arm that the study had once
        return row["budget"], not row["tuning"], at, row["rate"] or 0, row["seed"]

    section["rows"].sort(key=place)
    section["findings"] = judge(study, section, check)
    save()
    if not smoke and check is None:
        refuse(study, section)
    return section


def rejudge(study, folder=None):
    """Judge the rows of a record again, and those of all its checks."""
    path, record = stored(study, folder)
    if not record["rows"] or (study.findings and not record.get("findings")):
        raise SystemExit(f"{path} holds nothing to judge: run {study.name} first")
    refuse(study, record)
    record["findings"] = judge(study, record)
    known = {check.tried: check for check in checks_of(study).values()}
    for old in record["challenges"]:
        check = known.get(old["tried"]) or Check(
            old["tried"], tuple(study.findings), old["seeds"], budget=old["budget"]
        )
        old["findings"] = judge(study.changed(check), old, check)
    write(record, path)
    return record


def write(record, path):
    """Write JSON with a row a line, so that a diff can be read, and never half a file."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    text = re.sub(r"\{[^{}]*(\{[^{}]*\}[^{}]*)?\}|\[[^][{}]*\]", lambda match: re.sub(r"\n *", " ", match[0]), text)
    write_atomically(path, f"{text}\n".encode())
