"""Scores: what they are computed from, what they come with, and what they refuse to be computed on."""

import json
import math
import shutil
import sys
from pathlib import Path

import pytest
from runs import pairs_file, run_folder

from transformer_lib.data.batching import encode_pairs
from transformer_lib.metrics import bleu, exact_match
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.translation import evaluation
from transformer_lib.translation.evaluation import bleu_interval, evaluate_run
from transformer_lib.translation.run import load_corpus, read_options
from transformer_lib.translation.translator import Translator


def test_evaluation_scores_what_the_model_writes():
    folder = run_folder()
    scores = evaluate_run(folder, "validation", device="cpu")
    pairs = load_corpus(read_options(folder)[1]).validation
    found = Translator.from_pretrained(folder, device="cpu").search([pair.source for pair in pairs])
    written, right = [best[0].text for best in found], [pair.target for pair in pairs]
    assert scores["bleu"] == round(bleu(written, right, tokenize="13a").score, 2)
    assert scores["exact_match"] == round(100 * exact_match(written, right), 2)
    assert scores["sentences"] == 6 and "tok:13a" in scores["signature"] and scores["left_out"] == 0
    assert scores["bleu_interval"][0] <= scores["bleu"] <= scores["bleu_interval"][1] and 0 <= scores["chrf"] <= 100
    log = load_tensors(folder / "best.safetensors")[1]
    assert scores["loss"] == pytest.approx(log["validation_loss"], abs=2e-4)


def test_a_changed_file_is_not_scored(tmp_path):
    folder = shutil.copytree(run_folder(), tmp_path / "copy")
    moved = Path(shutil.copy(pairs_file(), tmp_path / "moved.tsv"))
    again = evaluate_run(folder, device="cpu", data=str(moved), beam_size=1)
    assert again == evaluate_run(folder, device="cpu", beam_size=1) | {"data": "moved.tsv"}
    moved.write_text(moved.read_text(encoding="utf-8").replace("\t", "\tja "), encoding="utf-8")
    with pytest.raises(ValueError, match=r"moved\.tsv has changed since the training: its test part"):
        evaluate_run(folder, device="cpu", data=str(moved))


def test_what_can_be_scored_is_scored(monkeypatch):
    """Without sacremoses, and with a loss whose perplexity is no number."""
    translator = Translator.from_pretrained(run_folder(), device="cpu")
    pairs = load_corpus(read_options(run_folder())[1]).validation
    examples = encode_pairs(pairs, translator.source_tokenizer, translator.target_tokenizer)
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    monkeypatch.setattr(evaluation, "evaluate_loss", lambda *_: 1e4)
    scores = evaluation._scores(translator, "multi30k", pairs, examples, [pair.target for pair in pairs])
    assert scores["bleu_lowercase"] == 100 and "bleu_moses_lowercase" not in scores
    assert scores["loss"] == 1e4 < scores["perplexity"] < math.inf


def test_a_published_data_set_is_named_in_full(tmp_path, monkeypatch):
    folder, name = shutil.copytree(run_folder(), tmp_path / "copy"), "hf:Helsinki-NLP/opus100:de-en"
    corpus, config = load_corpus(read_options(folder)[1]), json.loads((folder / "config.json").read_text())
    config["options"]["data"] = name
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(evaluation, "load_corpus", lambda *_: corpus)
    assert evaluate_run(folder, device="cpu", beam_size=1)["data"] == name


def test_the_interval_is_the_spread_of_scores_on_samples():
    written = ["a b c d e"] * 10 + ["a b x d e"] * 10
    right = ["a b c d e"] * 20
    low, high = bleu_interval(written, right)
    assert low < bleu(written, right, tokenize="13a").score < high and high - low < 50
    assert bleu_interval(right, right) == [100.0, 100.0]


def test_an_unknown_part_is_named():
    with pytest.raises(ValueError, match="part='train'"):
        evaluate_run(run_folder(), "train")
