"""What users have: folders that version 0.2.0 wrote are read, translate as they did, and are trained to their end."""

import atexit
import importlib
import json
import shutil
import sys
import tempfile
import zipfile
from dataclasses import MISSING, asdict, fields
from pathlib import Path

import pytest
import torch

import transformer_lib
from transformer_lib import models
from transformer_lib.models.registry import _BUILT_IN, build_model, model_entry
from transformer_lib.training.checkpoints import load_tensors, load_weights
from transformer_lib.training.run_state import completed, plain
from transformer_lib.translation.run import open_run
from transformer_lib.translation.translator import Translator

OLD = Path(tempfile.mkdtemp(prefix="version-0.2.0-"))
atexit.register(shutil.rmtree, OLD, ignore_errors=True)
zipfile.ZipFile(Path(__file__).parent / "data" / "version-0.2.0.zip").extractall(OLD)
SAID = json.loads((OLD / "said.json").read_text(encoding="utf-8"))
TRANSLATORS = sorted(path.name for path in (OLD / "translators").iterdir())


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_saved_translator_writes_what_it_wrote(name):
    translator = Translator.from_pretrained(OLD / "translators" / name, device="cpu")
    if name.endswith("-lm"):  # a language model translates nothing
        with torch.no_grad():
            logits = translator.model(torch.tensor([[1, 4, 5, 6, 7]]))[0, -1]
        assert logits.tolist() == pytest.approx(SAID[name], abs=1e-3)
        return
    for beam_size, expected in SAID[name].items():
        for text, (written, log_probability) in zip(SAID["texts"], expected, strict=True):
            (found,) = translator.search([text], beam_size=int(beam_size), max_length=9)[0]
            assert found.text == written and found.log_probability == pytest.approx(log_probability, abs=1e-3)


def test_the_weights_of_a_bert_are_read():
    weights, notes = load_tensors(OLD / "bert.safetensors")
    model = build_model("bert", notes["config"]).eval()
    load_weights(model, weights, OLD)
    with torch.no_grad():
        logits = model(torch.tensor([[4, 5, 6, 2], [7, 8, 2, 0]]))
    assert logits[0, 1].tolist() == pytest.approx(SAID["bert"], abs=1e-3)


@pytest.mark.parametrize("name", SAID["runs"])
def test_a_run_that_was_stopped_comes_to_the_same_end(name, tmp_path):
    run = open_run(shutil.copytree(OLD / "runs" / name, tmp_path / "run"), torch.device("cpu"))
    assert 0 < run.trainer.progress.step < SAID["runs"][name][0][0] and run.trainer.fit()
    lines = [(line["updates"], line["loss"], line["validation_loss"]) for line in run.trainer.progress.log]
    for line, expected in zip(lines, SAID["runs"][name], strict=True):
        assert line == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(("old", "new"), models.MOVED.items())
def test_modules_that_became_part_of_others_are_found_under_their_old_names(old, new):
    there = importlib.import_module(f"transformer_lib.models.{new}")
    assert not (Path(models.__file__).parent / f"{old}.py").exists()
    with pytest.warns(DeprecationWarning, match=f"models.{old} is now part of transformer_lib.models.{new}"):
        sys.modules.pop(f"transformer_lib.models.{old}", None)
        module = importlib.import_module(f"transformer_lib.models.{old}")
    assert {name: getattr(module, name) for name in there.__all__} == {
        name: getattr(there, name) for name in there.__all__
    }
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        importlib.import_module("transformer_lib.models.nowhere")


@pytest.mark.parametrize("name", _BUILT_IN)
def test_a_setting_that_was_added_with_a_default_makes_no_other_run(name):
    kind = model_entry(name).config_class
    required = {one.name for one in fields(kind) if one.default is MISSING}
    config = kind(**dict.fromkeys(required, 13))
    own = plain(asdict(config))
    for added in own.keys() - required:
        assert completed({key: own[key] for key in own.keys() - {added}}, own, config) == own
        if isinstance(own[added], dict):
            assert completed(own | {added: {}}, own, config) == own
    assert completed(own | {"d_model": 5}, own, config) != own


def test_every_public_name_is_still_there():
    names = set((OLD / "names.txt").read_text().split())
    assert names - {"settings"} <= set(transformer_lib.__all__)
