"""Where CI is set, a test may be skipped only for a reason that stands here; any other skip is a failure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

# what a skip says (a pattern), and why nothing is lost by it
LISTED = {
    r"real (data|recipes) cannot be had": "their terms keep them out of the repository; set TRANSFORMER_LIB_DATA",
    r"the stand-in needs PyTorch 2\.13": "older versions are for the library; the pinned job has 2.13",
    r"PyTorch has Muon since 2\.9": "older versions are for the library; the pinned job has 2.13",
    "not a git repository": "an archive has no files to list; a clone has",
    "could not import 'triton'": "it comes with PyTorch for CUDA; tools/gpu.py runs the page's kernel where it is",
    r"needs a GPU": "no service has one; tools/gpu.py is for the day one is there",
}
if why := os.environ.get("NO_CHROMIUM"):
    LISTED["there is no Chromium"] = why
if find_spec("jupyter_book") is None:
    LISTED[r"could not import '(sphinx|yaml|nbformat|jupyter_book|myst_parser|book_\w+)'"] = "the jobs of the library"


def judged(report: Any) -> Any:
    """The report; a failure where something was skipped for a reason that isn't listed."""
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(re.search(pattern, told) for pattern in LISTED):
            told += "\nwhere CI is set, tests/skips.py lists every reason to skip"
            report.outcome, report.longrepr = "failed", told
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    return judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[Any]:
    return judged((yield))
