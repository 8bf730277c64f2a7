"""Repeat what the book measured, or try to break it."""

import argparse
import os
import shlex
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from experiments import numbers
from experiments.harness import Check, alone, checks_of, get_study, names, rejudge, run
from transformer_lib.translation.translator import pick_device


def seeds(text):
    """0-4 or 0,3,7 as a list."""
    first, dash, last = text.partition("-")
    found = list(range(int(first), int(last) + 1)) if dash else [int(number) for number in text.split(",")]
    if not found or len(set(found)) < len(found):
        raise ValueError(text)
    return found


def at_least_one(text):
    """A number of updates or processes."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def report(name, section, smoke):
    """One line for each finding, and one for each rate that lies at the edge of its grid."""
    broken = "BROKEN" if len(section["seeds"]) > 2 else "too few"  # two seeds have no interval worth the name
    for key, found in section["findings"].items():
        verdict = "computed" if smoke else "holds" if found["holds"] else broken
        interval = f"{found['value']:+9.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"
        print(f"{verdict:9}{name + '/' + key:36} {interval}  {found['how']}")
    for arm, choice in section["tuned"].items():
        if choice["edge"]:
            print(f"EDGE     {choice['rate']}, the best rate of {arm}, is the first or the last")


def measure(study, check, command, args):
    """Measure a study or a check of it; in miniature with two seeds and a few updates, kept nowhere."""
    of, study = check or study, study.changed(check) if check else study
    seeds, budget = list(of.seeds), of.budget or study.budget
    if args.smoke:
        seeds, budget = [0, 1], study.smoke
    with tempfile.TemporaryDirectory() if args.smoke else nullcontext(args.folder) as folder, alone(study, folder):
        options = {"check": check, "folder": folder, "workers": args.jobs, "smoke": args.smoke}
        report(study.name, run(study, seeds, budget, command, **options), args.smoke)


def challenge(study, args):
    """Other seeds or another budget are a check of all findings."""
    if args.seeds or args.budget:
        seeds, budget = args.seeds or list(study.seeds), args.budget or study.budget
        together = seeds == [*range(seeds[0], seeds[-1] + 1)]
        named = f"{seeds[0]} to {seeds[-1]}" if together else ", ".join(map(str, seeds))
        tried = f"seeds {named}, {budget:,} {study.unit}"
        return Check(tried, tuple(study.findings), seeds, budget=budget)


def main():
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("do", choices=("list", "run", "check", "judge", "numbers"))
    parser.add_argument("names", nargs="*", help="studies, STUDY/CHECK, or files with numbers")
    parser.add_argument("--all", action="store_true", help="all studies")
    parser.add_argument("--smoke", action="store_true", help="in miniature, recording nothing")
    parser.add_argument("--seeds", type=seeds, metavar="100-104", help="other seeds, kept as a challenge")
    parser.add_argument("--budget", type=at_least_one, help="another budget, likewise")
    parser.add_argument(
        "--folder", type=Path, help="measure anew, and write the records there instead of adding to ours"
    )
    parser.add_argument("--check", action="store_true", help="only list the numbers that are stale")
    parser.add_argument("--jobs", type=at_least_one, default=1, help="processes")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps.")
    args, command = parser.parse_args(), f"python -m experiments {shlex.join(sys.argv[1:])}"
    if (args.seeds or args.budget) and args.do != "run":
        parser.error(f"--seeds and --budget are for run, not for {args.do}")
    try:
        os.environ["DEVICE"] = str(pick_device(args.device))
    except ValueError as error:
        parser.error(str(error))
    if args.smoke:
        os.environ["SMOKE"] = "1"  # before a study is imported
    if args.folder:
        args.folder.mkdir(parents=True, exist_ok=True)
    if args.do == "list":
        print(*(f"{name:24}{get_study(name).question}" for name in names()), sep="\n")
    elif args.do == "numbers":
        return numbers.main(args.names, args.check)
    elif not (args.all or args.names):
        parser.error("name a study, or --all")
    for name in names() if args.all else args.names:
        name, _, key = name.partition("/")
        study, checks = get_study(name), checks_of(get_study(name))
        if key and args.do != "check":
            parser.error(f"{args.do} takes studies, not {name}/{key}")
        if key and key not in checks:
            parser.error(f"{name}/{key} is no check")
        if args.do == "run":
            measure(study, challenge(study, args), command, args)
        elif args.do == "judge":
            with alone(study, args.folder):
                record = rejudge(study, args.folder)
            for section in (record, *record["challenges"]):
                report(name, section, False)
        elif args.do == "check":
            for one in [key] if key else checks:
                measure(study, checks[one], f"python -m experiments check {name}/{one}", args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
