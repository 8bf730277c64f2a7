"""Run the steps of a workflow's job here, as far as a machine without the service can.

    python tools/rehearse_workflows.py [WORKFLOW [JOB]]     without a job: show what would run

Steps that use an action are named and left out; the values of the matrix are those of its first row.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def steps(job: dict) -> list[tuple[bool, str]]:
    """What a job does: (whether it can run here, command or action)."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    values = dict((matrix.pop("include", None) or [{}])[0])
    values |= {name: choices[0] for name, choices in matrix.items()}
    found = []
    for step in job["steps"]:
        command = re.sub(r"\$\{\{ *matrix\.(\w+) *\}\}", lambda name: str(values[name[1]]), step.get("run", ""))
        found.append(("run" in step and "${{" not in command, command or step["uses"]))
    return found


def main(names: list[str]) -> int:
    for path in sorted((ROOT / ".github" / "workflows").glob(f"{(names or ['*'])[0]}.yml")):
        for job, content in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            if names[1:] and job != names[1]:
                continue
            for runs, command in steps(content):
                print(f"{path.stem}/{job}: {command if runs else f'(left out) {command}'}", flush=True)
                if runs and names[1:] and subprocess.run(["bash", "-e", "-c", command], cwd=ROOT).returncode:
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
