"""Wrong input as users meet it: without the run-time check of annotations that the other tests have switched on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bad_calls import cases

CASES = cases()


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[str, str]]:
    """What each call came to, all tried in one process."""
    command = [sys.executable, str(Path(__file__).with_name("bad_calls.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.xdist_group("bad calls")
@pytest.mark.parametrize("call", CASES)
def test_a_bad_call_is_refused_and_told_why(call: str, outcomes: dict) -> None:
    kind, message = outcomes[call]
    assert kind in ("ValueError", "ValidationError", "TypeError"), f"{kind}: {message}"
    assert re.search(CASES[call], message), f"{message!r} does not name {CASES[call]}"
