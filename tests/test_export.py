"""What is handed on: a small folder with a card."""

import json

import pytest
import torch
from runs import pairs_file, run_folder
from safetensors import safe_open

from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.translation import export
from transformer_lib.translation.export import export_run
from transformer_lib.translation.translator import Translator, find_pretrained


def test_a_model_is_handed_on_in_half_precision_with_a_card(tmp_path, monkeypatch):
    folder, target = run_folder("transformer"), tmp_path / "small"
    export_run(folder, target)
    names = {"config.json", "source.json", "target.json", "weights.safetensors", "README.md", "known.json"}
    assert {path.name for path in target.iterdir()} == names
    mean = load_tensors(folder / "averaged.safetensors")[0]
    for name, tensor in load_tensors(target / "weights.safetensors")[0].items():
        assert tensor.dtype == torch.float16 and torch.equal(tensor, mean[name].half())
    translator = Translator.from_pretrained(target, device="cpu")
    assert all(parameter.dtype == torch.float32 for parameter in translator.model.parameters())
    with safe_open(target / "weights.safetensors", framework="pt") as file:
        stored = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118
    assert stored == sum(parameter.numel() for parameter in translator.model.parameters())  # tied ones once
    monkeypatch.setattr(export, "learned", None)  # which would take minutes
    with pytest.raises(ValueError, match="is not empty"):
        export_run(folder, target)


def test_a_card_claims_no_languages_that_nobody_named_and_tells_no_folders(tmp_path):
    target = export_run(run_folder("transformer"), tmp_path / "small")
    card, config = (target / "README.md").read_text(), (target / "config.json").read_text()
    assert "translates the first column to the second" in card and "those of the sentences" in card
    assert "export RUN --output small\n" in card
    assert "transformer-lib train --data pairs.tsv" in card and "as people write it" in card
    assert str(pairs_file().parent) not in card + config
    assert json.loads(config)["data"]["fingerprint"]


def test_a_card_tells_the_weights_of_the_run_whoever_exported_them(tmp_path, monkeypatch):
    export_run(run_folder("transformer"), tmp_path / "once", weights="best")
    (tmp_path / "twice").mkdir()
    monkeypatch.chdir(tmp_path / "twice")
    card = (export_run(tmp_path / "once", ".") / "README.md").read_text()
    assert "# twice\n" in card and "Weights: best, " in card and "export RUN --weights best --output twice\n" in card


def test_what_is_shipped_can_be_exported_as_it_is(tmp_path):
    target = export_run("captions-en-de", tmp_path / "shipped")
    shipped = load_tensors(find_pretrained("captions-en-de") / "weights.safetensors")[0]
    for name, tensor in load_tensors(target / "weights.safetensors")[0].items():
        assert torch.equal(tensor, shipped[name])
    card = (target / "README.md").read_text()
    assert "translates en to de" in card and "no terms" in card
