"""The Transformer in one file that readers copy: the library's logits, translations and initial weights."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from tests.pages import ROOT
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.models.transformer import Transformer, TransformerConfig

PATH = ROOT / "book/_static/ninety_lines.py"
SIZES = {"d_model": 32, "n_heads": 4, "d_ff": 64, "dropout": 0.0}
SOURCE = torch.tensor([[4, 9, 7, 5, 2], [8, 6, 2, 0, 0]])


@pytest.fixture(scope="module")
def ninety():
    spec = importlib.util.spec_from_file_location("ninety_lines", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def both(ninety):
    torch.manual_seed(0)
    config = TransformerConfig(20, 24, n_encoder_layers=2, n_decoder_layers=2, tie_embeddings="target", **SIZES)
    return ninety.Transformer(20, 24, n_layers=2, **SIZES).double().eval(), Transformer(config).double().eval()


def test_it_has_ninety_lines():
    lines = PATH.read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) and not line.startswith("#") for line in lines) == 90


def test_with_the_same_weights_it_gives_the_logits_and_translations_of_the_library(ninety, both):
    mine, ours = both
    mine.load_state_dict(ours.state_dict())
    target = torch.tensor([[1, 11, 12, 13], [1, 14, 15, 0]])
    torch.testing.assert_close(
        mine(SOURCE, target)[:, :3], ours(SOURCE, target)[:, :3], check_dtype=False, atol=1e-6, rtol=0
    )
    expected = greedy_decode(ours, SOURCE, max_length=6)
    for row, tokens in zip(
        ninety.translate(mine, SOURCE, max_length=7)[:, 1:].tolist(), expected.tolist(), strict=True
    ):
        length = tokens.index(2) + 1 if 2 in tokens else 6
        assert row[:length] == tokens[:length]


def test_its_initial_weights_are_as_large_as_those_of_the_library(both):
    mine, ours = (model.state_dict() for model in both)
    assert {name: value.shape for name, value in mine.items()} == {name: value.shape for name, value in ours.items()}
    for name, value in ours.items():
        torch.testing.assert_close(mine[name].std(), value.std(), rtol=0.1, atol=1e-9)


def test_it_learns_to_copy(ninety):
    torch.manual_seed(0)
    model = ninety.Transformer(12, 12, d_model=32, d_ff=64, n_layers=1)
    rows = torch.randint(4, 12, (60, 32, 5))
    ends = [torch.full((60, 32, 1), token) for token in (1, 2)]
    batches = list(zip(torch.cat([rows, ends[1]], -1), torch.cat([ends[0], rows, ends[1]], -1), strict=True))
    ninety.train(model, batches * 5, rate=1e-2)
    copied = ninety.translate(model, batches[0][0], max_length=7)
    assert (copied[:, 1:6] == batches[0][0][:, :5]).double().mean() > 0.9
