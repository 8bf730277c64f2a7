"""Wrong input as users meet it: without the run-time check of annotations that the other tests have switched on."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MODULES = (
    "metrics",
    "tokenizer",
    "batching",
    "files",
    "recurrent",
    "alignment",
    "scores",
    "hard_attention",
    "latent_attention",
    "self_attention",
    "attention",
    "masks",
    "multi_head",
    "positions",
    "sublayers",
    "transformer",
    "training",
    "translation",
    "decoding",
    "scaling",
    "captions",
    "viz",
)


@pytest.mark.slow
def test_the_library_itself_refuses_wrong_input():
    files = [str(TESTS / f"test_{module}.py") for module in MODULES]
    options = ("-q", "-o", "addopts=", "-p", "no:cacheprovider", "-k", "bad and not bad_types and not bad_commands")
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run([*command, *files], cwd=TESTS.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(done.stdout.strip().splitlines()[-1].split(" passed")[0].split()[-1])
    assert passed >= 40, done.stdout[-3000:]
