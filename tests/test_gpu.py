"""The script for the day a GPU is there, ``tools/gpu.py``, rehearsed in miniature on the CPU and on the stand-in."""

import json
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import gpu
import pytest
import torch
from stand_in import NAME, device

from transformer_lib import results

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [
    pytest.mark.xdist_group("device"),
    pytest.mark.skipif(NAME != "gpu" or torch.__version__ < "2.13", reason="the stand-in needs PyTorch 2.13"),
]
ALONE = {gpu.tests, gpu.processes, gpu.compiled}  # start processes, or compile


@pytest.mark.parametrize("place", ["cpu", "gpu"])
@pytest.mark.parametrize("part", [one for one in gpu.PARTS if one not in ALONE], ids=lambda one: one.__name__)
def test_a_part_in_miniature(part, place):
    pytest.importorskip("transformers", minversion="5")
    found = {key: value for one in gpu.rehearsed(part, place, True) for key, value in one.items()}
    assert json.loads(json.dumps(found)) == found
    assert bool(found) == (part is not gpu.waits or place == "gpu")
    if part is gpu.attention:
        rows = [row for row in found.values() if "refused" not in row]
        assert rows and all(all(row.values()) for row in rows)
    if part is gpu.waits and found:
        assert found["an update in float32"] == {} and found["beam_search"]
    if part in (gpu.training, gpu.decoding):
        assert found["left out"] == []
        turns = [table for table in found.values() if isinstance(table, dict)]
        assert turns and all(set(table) <= set(gpu.LIBRARIES) and "library" in table for table in turns)
        assert all(
            one["times as long as library"] == [1.0] * 3
            for table in turns
            for name, one in table.items()
            if name == "library"
        )


@pytest.mark.parametrize("place", ["cpu", "gpu"])
def test_the_three_models_compute_the_same(place):
    pytest.importorskip("transformers", minversion="5")
    with device() if place == "gpu" else nullcontext(), torch.no_grad():
        batch = gpu.sentences(True, place)
        logits = [model.eval()(batch.source, batch.target_input)[:, 0] for _, model in gpu.built(True, place)]
        assert len(logits) == 3
        for other in logits[1:]:
            assert (other - logits[0]).abs().max().item() < 1e-4


def test_without_hugging_face_the_rest_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for part in (gpu.training, gpu.decoding):
        found = [*gpu.rehearsed(part, "cpu", True)]
        assert found[0] == {"left out": ["Hugging Face"]} and len(found) > 1


def test_a_stop_loses_nothing(tmp_path):
    write = 'open({!r}, \'a\').write(\'{{"part": "{}", "found": {{"x": 1}}}}\\n\')'
    lines = str(tmp_path / "parts.jsonl")
    python = lambda *codes: [sys.executable, "-c", "; ".join(codes)]  # noqa: E731
    jobs = {
        "good": (python(write.format(lines, "good")), 60),
        "slow": (python(write.format(lines, "slow"), "import time; time.sleep(99)"), 1.5),
        "bad": (python("raise SystemExit(3)"), 60),
        "saves": (["bash", "-c", "trap 'echo saved >> $OUTPUT/saved; exit 143' TERM; sleep 99 & wait"], 1.5),
    }
    start = time.monotonic()
    record = gpu.follow(jobs, tmp_path, 8, "gpu")
    assert time.monotonic() - start < 60
    became = {name: part["became"] for name, part in record["parts"].items()}
    assert became == {"good": "done", "slow": "stopped after 2 s", "bad": "exit code 3", "saves": "stopped after 2 s"}
    assert record["parts"]["slow"]["x"] == record["parts"]["good"]["x"] == 1
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert json.loads((tmp_path / "gpu.json").read_text()) == record
    assert gpu.follow(jobs, tmp_path, 0, "gpu")["parts"]["good"]["became"] == "no time was left"


def command(folder, *words):
    """Run the script; the parts of its record."""
    subprocess.run([sys.executable, "tools/gpu.py", "--output", folder, *words], cwd=ROOT, check=True, timeout=600)
    (path,) = folder.glob("*.json")
    record = json.loads(path.read_text())
    assert {part["became"] for part in record["parts"].values()} == {"done"}
    assert record["versions"]["torch"] == torch.__version__ and record["commit"]
    return record["parts"]


@pytest.mark.slow
def test_the_command_and_its_record(tmp_path, monkeypatch):
    parts = command(tmp_path / "stand-in", "--device", "gpu", "--small", "--parts", "machine", "tests")
    assert "1 passed" in parts["tests"]["devices"]["result"] and "gigabytes a second of a copy" in parts["machine"]
    monkeypatch.setattr(results, "files", lambda _: tmp_path / "stand-in")
    assert results.load("gpu")["parts"] == parts
    found = command(tmp_path / "cpu", "--device", "cpu", "--small", "--parts", "processes")["processes"]["1 process"]
    assert found["alone"] == found["together"] and found["sum of ones"] == [1, 1, 1]
    assert found["a loss with DDP"] == found["a loss with FSDP2"]


@pytest.mark.slow
def test_a_list_of_commands(tmp_path):
    runs = tmp_path / "list"
    runs.write_text("# two runs\ntrue\necho model > $OUTPUT/model\n")
    assert len(command(tmp_path / "runs", "--device", "cpu", "--runs", runs)) == 2
    assert (tmp_path / "runs" / "model").read_text() == "model\n"
