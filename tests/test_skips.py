"""Where CI is set, a skip that isn't listed fails the run: of a test, a mark, a fixture, a file, in every process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "a test": "import pytest\ndef test_it():\n    pytest.skip({reason!r})",
    "a mark": "import pytest\n@pytest.mark.skipif(True, reason={reason!r})\ndef test_it(): pass",
    "a fixture": "import pytest\n@pytest.fixture\ndef it(): pytest.skip({reason!r})\ndef test_it(it): pass",
    "a file": "import pytest\npytest.skip({reason!r}, allow_module_level=True)",
}


def run(folder: Path, ci: str, *options: str, **more: str) -> str:
    """What pytest prints last, of the tests in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "skips", "-p", "no:cacheprovider", "--rootdir=."]
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "NO_CHROMIUM")}
    environment |= {"CI": ci, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}
    done = subprocess.run(
        [*command, "--continue-on-collection-errors", *options, "."],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return f"{done.returncode} {done.stdout}"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "workers"])
def test_a_skip_fails_where_ci_is_set_unless_its_reason_is_listed(options: tuple[str, ...], tmp_path: Path) -> None:
    for reason in ("no Node", "it needs a GPU"):  # which is listed
        for i, text in enumerate(FILES.values()):
            name = f"test_{reason[-3:]}{i}.py"
            (tmp_path / name).write_text(text.format(reason=reason), encoding="utf-8")
    told = run(tmp_path, "true", *options)
    bad = re.findall(r"^(?:FAILED|ERROR) test_(...)", told, re.M)
    assert told[0] != "0" and bad == ["ode"] * len(FILES) and "lists every reason to skip" in told, told


@pytest.mark.slow
def test_where_ci_is_not_set_every_skip_is_allowed(tmp_path: Path) -> None:
    for i, text in enumerate(FILES.values()):
        (tmp_path / f"test_{i}.py").write_text(text.format(reason="no Node"), encoding="utf-8")
    told = run(tmp_path, "")
    assert not re.search(r"^(?:FAILED|ERROR) ", told, re.M) and "lists every reason" not in told


@pytest.mark.slow
def test_a_missing_browser_is_a_reason_only_where_it_could_not_be_installed(tmp_path: Path) -> None:
    reason = "there is no Chromium: python -m playwright install chromium"
    (tmp_path / "test_it.py").write_text(FILES["a test"].format(reason=reason), encoding="utf-8")
    assert run(tmp_path, "true")[0] == "1" and run(tmp_path, "true", NO_CHROMIUM="offline")[0] == "0"
