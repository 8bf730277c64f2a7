"""What all tests share: reproducible settings, the real data where it can be had, and a guard against leaks.

The library is imported in its strict mode, in which every annotated shape and type is checked. Programs that the tests
start run as users run them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a script runs pytest in the background
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]

os.environ["TRANSFORMER_LIB_STRICT"] = "1"
from skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: E402, F401

import transformer_lib  # noqa: E402, F401

del os.environ["TRANSFORMER_LIB_STRICT"]
os.environ["SMOKE"] = "1"  # studies draw little data, whichever test imports them first

try:
    import hypothesis
except ImportError:  # the tests that need it say so themselves
    pass
else:
    hypothesis.settings.register_profile("local", deadline=None, max_examples=30)
    hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)
    hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
    hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the longest tests to the service, where the variable CI is set."""
    if not os.environ.get("CI"):
        left_out = [item for item in items if item.get_closest_marker("ci")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Several tests at a time, each on one thread: faster than all of them fighting for the cores."""
    import torch

    torch.set_num_threads(1)


def torch_state() -> dict[str, object]:
    """The switches of torch that one test could leave changed for the next."""
    torch = sys.modules["torch"]
    return {
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "anomaly detection": torch.is_anomaly_enabled(),
        "default device": torch.empty(0).device,
        "tiny numbers": bool(sys.float_info.min / 2),  # zero if torch flushes denormals
    }


@pytest.fixture(autouse=True)
def torch_as_found() -> Iterator[None]:
    """Fail a test that leaves torch in another state than it found."""
    before = torch_state()
    yield
    after = torch_state()
    changed = [f"{name}: {before[name]} became {after[name]}" for name in before if before[name] != after[name]]
    if changed:
        import torch

        torch.set_default_dtype(before["default dtype"])
        torch.set_grad_enabled(before["gradients"])
        torch.use_deterministic_algorithms(before["deterministic algorithms"])
        torch.autograd.set_detect_anomaly(before["anomaly detection"])
        torch.set_default_device(before["default device"])
        torch.set_flush_denormal(not before["tiny numbers"])
        pytest.fail("the test left torch changed: " + "; ".join(changed))


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The folder with the real data sets; a test that needs it is skipped where it cannot be had."""
    named = os.environ.get("TRANSFORMER_LIB_DATA")
    if not named:
        pytest.skip("real data cannot be had: TRANSFORMER_LIB_DATA names no folder with multi30k/")
    folder = Path(named).expanduser()
    if not (folder / "multi30k").is_dir():
        pytest.skip(f"real data cannot be had: TRANSFORMER_LIB_DATA is {named}, which has no folder multi30k/")
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """A Chromium that the tests of a file share."""
    from browser import launch

    with launch() as found:
        yield found


@pytest.fixture(scope="session")
def sound_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small sound book, exported once."""
    from tiny_project import TinyProject

    project = TinyProject(tmp_path_factory.mktemp("book"))
    project.build()
    return project.root


@pytest.fixture
def visit(browser: object) -> Iterator[object]:
    """A function that opens an address in the browser; nothing may go wrong there."""
    from browser import visitor

    with visitor(browser) as found:
        yield found


@pytest.fixture(scope="module")
def root(site: Path) -> Iterator[str]:
    """The address of the site that a file of tests makes."""
    from browser import serve

    with serve(site) as address:
        yield address


@pytest.fixture
def project(sound_book: Path, tmp_path: Path) -> object:
    """A small sound book in a temporary folder, for the tests of the pipeline."""
    from tiny_project import TinyProject

    shutil.copytree(sound_book, tmp_path, dirs_exist_ok=True)
    return TinyProject(tmp_path)
