"""The script for the day a GPU is there, ``tools/gpu.py``, rehearsed in miniature on the CPU and on the stand-in."""

import json
import re
import sys
from contextlib import nullcontext
from importlib.metadata import requires
from pathlib import Path

import gpu
import pytest
import torch
from packaging.requirements import Requirement
from stand_in import NAME, device

from transformer_lib import results

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [
    pytest.mark.xdist_group("device"),
    pytest.mark.skipif(NAME != "gpu" or torch.__version__ < "2.13", reason="the stand-in needs PyTorch 2.13"),
]
ALONE = {gpu.tests, gpu.processes, gpu.page_kernel}  # start processes, or need one in which nothing is imported yet


@pytest.mark.parametrize("place", ["cpu", "gpu"])
@pytest.mark.parametrize("part", [one for one in gpu.PARTS if one not in ALONE], ids=lambda one: one.__name__)
def test_a_part_in_miniature(part, place):
    pytest.importorskip("transformers", minversion="5")
    found = {key: value for one in gpu.findings(part, place, True) for key, value in one.items()}
    assert json.loads(json.dumps(found)) == found
    assert bool(found) == (part is not gpu.waits or place == "gpu")
    if part is gpu.masks:
        rows = [row for row in found.values() if "refused" not in row]
        assert rows and all(all(row.values()) for row in rows)
    if part is gpu.waits and found:
        assert found["an update, float32"] == {} and found["beam_search"]
    if part in (gpu.training, gpu.decoding):
        turns = [set(table) for table in found.values() if isinstance(table, dict)]
        assert turns and all({"library", "Hugging Face"} <= table for table in turns)


@pytest.mark.parametrize("place", ["cpu", "gpu"])
def test_the_three_models_compute_the_same(place):
    pytest.importorskip("transformers", minversion="5")
    with device() if place == "gpu" else nullcontext(), torch.no_grad():
        batch = gpu.collate(gpu.examples(True)).to(place)
        logits = [model.eval()(batch.source, batch.target_input)[:, 0] for model in gpu.peers(place, True).values()]
        assert len(logits) == 3
        for other in logits[1:]:
            assert (other - logits[0]).abs().max().item() < 1e-4


def test_without_hugging_face_the_rest_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    (found, *_), *others = ([*gpu.findings(part, "cpu", True)] for part in (gpu.training, gpu.decoding))
    assert set(found["an update"]) == {"library", "nn.Transformer"} and len(others) == 1


def test_a_stop_loses_nothing(tmp_path, monkeypatch):
    write = f'open({str(tmp_path / "parts.jsonl")!r}, \'a\').write(\'{{"part": "%s", "found": {{"x": 1}}}}\\n\')'
    jobs = {
        "good": ([sys.executable, "-c", write % "good"], 60),
        "slow": ([sys.executable, "-c", write % "slow" + "; import time; time.sleep(99)"], 4),
        "bad": (["bash", "-c", "exit 3"], 60),
        "saves": (["bash", "-c", "trap 'echo saved >> $OUTPUT/saved; exit' TERM; sleep 99 & wait"], 2),
    }
    monkeypatch.setenv("OUTPUT", str(tmp_path))
    record = gpu.follow(jobs, tmp_path, 8, "gpu")
    assert {name: part["code"] for name, part in record["parts"].items()} == {
        "good": 0,
        "slow": 124,
        "bad": 3,
        "saves": 124,
    }
    assert record["parts"]["slow"]["x"] == record["parts"]["good"]["x"] == 1
    assert set((tmp_path / "saved").read_text().split()) == {"saved"}  # a signal may come twice
    assert json.loads((tmp_path / "gpu.json").read_text()) == record
    assert gpu.follow(jobs, tmp_path, 0, "gpu")["parts"]["good"]["code"] == 124


def test_the_wheels_are_all_that_is_needed_beside_pytorch():
    names = set(re.search('W="(.*?)"', gpu.__doc__, re.S)[1].split())
    todo, needed = (
        [Requirement("attention-step-by-step[hf,strict]"), *map(Requirement, ("pytest", "hypothesis"))],
        set(),
    )
    while todo:
        one = todo.pop()
        there = {"python_version": "3.12", "python_full_version": "3.12.3", "sys_platform": "linux"}
        for other in map(Requirement, requires(one.name) or ()):
            marked = [other.marker is None or other.marker.evaluate(there | {"extra": e}) for e in ("", *one.extras)]
            if any(marked) and other.name not in needed | {"torch", "numpy"}:
                needed.add(other.name)
                todo.append(other)
    assert {name.lower().replace("_", "-") for name in needed} <= names
    pinned = (ROOT / "requirements.txt").read_text()
    assert all(re.search(f"^{name}==", pinned, re.M) for name in names)


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the script; the parts of its record."""

    def run(*words):
        for name in ("OUTPUT", "PYTHONPATH", "TEST_DEVICE"):
            monkeypatch.setenv(name, "")
        monkeypatch.setattr(sys, "argv", ["gpu.py", "--output", str(tmp_path / "out"), *map(str, words)])
        gpu.main()
        (path,) = (tmp_path / "out").glob("*.json")
        record = json.loads(path.read_text())
        assert {part["code"] for part in record["parts"].values()} == {0}
        assert record["versions"]["torch"] == torch.__version__ and record["commit"]
        return record["parts"]

    return run


@pytest.mark.slow
def test_the_command_and_its_record(command, tmp_path, monkeypatch):
    parts = command("--device", "gpu", "--small", "--parts", "tests")
    assert "1 passed" in parts["tests"]["devices"] and parts["tests"]["failed, devices"] == []
    monkeypatch.setattr(results, "files", lambda _: tmp_path / "out")
    assert results.load("gpu")["parts"] == parts


def test_the_kernel_of_the_page_in_the_interpreter(command):
    pytest.importorskip("triton")
    found = command("--device", "cpu", "--small", "--parts", "page_kernel")["page_kernel"]
    differences = {name: value for name, value in found.items() if name.startswith("largest difference")}
    assert len(differences) == 4
    assert all(value < (1e-5 if "float32" in name else 1e-3) for name, value in differences.items())
    assert "the page's kernel" in found["a forward pass"]


def test_without_triton_the_kernel_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "flash_kernel", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    reasons = [found["left out"] for place in ("cpu", "gpu") for found in gpu.page_kernel(place, True)]
    assert len(reasons) == 2 and "triton" in reasons[0]


@pytest.mark.slow
def test_a_group_of_one_process(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (found,) = (one["1, copies"] for one in gpu.processes("cpu", True))
    assert found["alone"] == found["together"] and found["sum of ones"] == [1, 1, 1]
    assert found["a loss with DDP"] == found["a loss with FSDP2"]


def test_a_list_of_commands(command, tmp_path):
    (tmp_path / "list").write_text("# two runs\ntrue\necho model > $OUTPUT/model\n")
    assert len(command("--runs", tmp_path / "list")) == 2
    assert (tmp_path / "out" / "model").read_text() == "model\n"
