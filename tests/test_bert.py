"""BERT: equal to Hugging Face's in outputs and gradients, both ways; its laws; what is masked; wrong input."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD, UNK
from transformer_lib.models.attention import causal_mask, padding_mask
from transformer_lib.models.bert import Bert, BertClassifier, BertConfig, mask_tokens
from transformer_lib.models.convert import from_hf, to_hf
from transformer_lib.models.families import BERT
from transformer_lib.models.seq2seq import SpecialIds

SIZES = {"vocab_size": 23, "d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24, "max_length": 12}
TOKENS = torch.tensor([[BOS, 5, 22, 7, 9, EOS], [BOS, 9, 4, EOS, PAD, PAD], [BOS, 22, EOS, PAD, PAD, PAD]])
SEGMENTS = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]])
THERE = TOKENS != PAD


def bert(**changes: Any) -> Bert:
    """A small model in double precision, with weights large enough for every input to matter."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Bert(BertConfig(**{**SIZES, **changes})).double().eval()
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(0.3 * torch.randn_like(weights))
    return model


def hugging_face(kind: str, **changes: Any) -> nn.Module:
    """A random model of Hugging Face in evaluation mode."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 23, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
        "max_position_embeddings": 12, "num_labels": 3,
    }  # fmt: skip
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        model = getattr(transformers, kind)(transformers.BertConfig(**{**sizes, **changes})).eval()
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(0.3 * torch.randn_like(weights))
    return model


def their_logits(theirs: nn.Module, tokens: Tensor = TOKENS) -> Tensor:
    return theirs(tokens, attention_mask=(tokens != PAD).long(), token_type_ids=SEGMENTS).logits


KINDS = pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForSequenceClassification"])
TYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])


@KINDS
@TYPES
def test_outputs_and_gradients_are_those_of_hugging_face(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    theirs = hugging_face(kind).to(dtype)
    ours = from_hf(theirs)
    assert next(ours.parameters()).dtype == dtype
    found, expected = ours(TOKENS, SEGMENTS), their_logits(theirs)
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    pick = (lambda x: x[THERE]) if kind == "BertForMaskedLM" else (lambda x: x)
    for logits in (found, expected):
        pick(logits).tanh().square().sum().backward()
    gradients = {name: weights.grad for name, weights in theirs.named_parameters()}
    compared = 0
    for name, weights in ours.named_parameters():
        names = BERT.their_names(name)
        if "cls." in names[0] and kind != "BertForMaskedLM":
            continue  # a classifier guesses no words
        grads = torch.cat([gradients[n] for n in names])
        torch.testing.assert_close(weights.grad, grads, atol=10 * tolerance, rtol=10 * tolerance)
        compared += len(names)
    assert compared == len(gradients)


@KINDS
@TYPES
def test_and_back(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    ours: Bert | BertClassifier = bert().to(dtype)
    if kind != "BertForMaskedLM":
        with torch.random.fork_rng():
            ours = BertClassifier(ours, 3).to(dtype).eval()
    theirs = to_hf(ours)
    assert type(theirs).__name__ == kind
    torch.testing.assert_close(their_logits(theirs), ours(TOKENS, SEGMENTS), atol=tolerance, rtol=tolerance)


def test_the_configuration_is_read() -> None:
    theirs = hugging_face(
        "BertForMaskedLM", hidden_act="relu", layer_norm_eps=1e-3, type_vocab_size=3, hidden_dropout_prob=0.2
    )
    ours = from_hf(theirs)
    torch.testing.assert_close(ours(TOKENS, SEGMENTS), their_logits(theirs), atol=1e-5, rtol=1e-5)
    config = ours.bert.config if isinstance(ours, BertClassifier) else ours.config
    assert (config.dropout, config.n_segments, config.eps) == (0.2, 3, 1e-3)


def test_base_has_the_size_of_the_paper() -> None:
    with torch.device("meta"):
        model = BertClassifier(Bert(BertConfig()), 2)
    without_guess = [
        p for name, p in model.named_parameters() if not re.search("transform|output.bias|classifier", name)
    ]
    assert sum(p.numel() for p in without_guess) == 109_482_240  # the paper says 110 million


# ---------------------------------------------------------------- the laws


def test_every_position_sees_both_sides_and_under_a_causal_mask_only_one() -> None:
    model, tokens = bert(), TOKENS[:1]
    both = padding_mask(tokens)
    before = {None: model(tokens), "causal": model(tokens, mask=both & causal_mask(6))}
    for t in range(1, 5):
        changed = tokens.clone()
        changed[0, t] = 11
        moved = (model(changed) - before[None]).abs().amax(dim=2)[0]
        assert (moved > 1e-6).all()
        moved = (model(changed, mask=both & causal_mask(6)) - before["causal"]).abs().amax(dim=2)[0]
        assert (moved[:t] == 0).all()
        assert (moved[t:] > 1e-6).all()


# ---------------------------------------------------------------- what is masked


def test_shares_and_places_of_the_mask() -> None:
    rows = torch.randint(4, 30, (4000, 12), generator=torch.Generator().manual_seed(0))
    rows[:, 0], rows[:, 9], rows[:, 10:] = BOS, EOS, PAD
    rows[:, 4] = UNK
    words = rows > UNK
    hidden, chosen = mask_tokens(rows, 30, share=0.3, rng=torch.Generator().manual_seed(1))
    assert not chosen[~words].any()
    assert (hidden[~chosen] == rows[~chosen]).all()
    shares = [chosen[words], (hidden == 30)[chosen], (hidden == rows)[chosen]]
    swapped = (hidden != rows) & (hidden != 30)
    assert hidden[swapped].min() == UNK + 1 and hidden[swapped].max() == 29
    for found, expected in zip(shares, (0.3, 0.8, 0.1 + 0.1 / 26), strict=True):
        assert abs(found.double().mean().item() - expected) < 0.02
    again, _ = mask_tokens(rows, 30, share=0.3, rng=torch.Generator().manual_seed(1))
    assert torch.equal(hidden, again)
    assert not mask_tokens(rows, 30, share=0.0)[1].any()


# ---------------------------------------------------------------- wrong input

VARIANTS = {
    "position_embedding_type": "relative_key",
    "is_decoder": True,
    "add_cross_attention": True,
}


@pytest.mark.parametrize("option", VARIANTS)
def test_a_bert_that_computes_something_else_is_refused(option: str) -> None:
    theirs = hugging_face("BertForMaskedLM")
    setattr(theirs.config, option, VARIANTS[option])
    with pytest.raises(ValueError, match=f"{option}={VARIANTS[option]!r}"):
        from_hf(theirs)


def test_weights_that_are_missing_or_left_over_are_named() -> None:
    theirs = hugging_face("BertForMaskedLM")
    theirs.bert.encoder.layer[1].attention.self.extra = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"layer\.1\.attention\.self\.extra"):
        from_hf(theirs)
    del theirs.bert.encoder.layer[1].attention.self.extra, theirs.bert.encoder.layer[0].output
    with pytest.raises(ValueError, match=r"layer\.0\.output"):
        from_hf(theirs)


def test_an_id_outside_the_vocabulary_is_named() -> None:
    with pytest.raises(ValueError, match="23"):
        bert()(torch.tensor([[BOS, 23, EOS]]))


def test_what_else_has_a_classifier_is_no_classifier_of_sentences(tmp_path: Path) -> None:
    theirs = hugging_face("BertForTokenClassification")
    theirs.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    pooler = {"bert.pooler.dense.weight": torch.zeros(16, 16), "bert.pooler.dense.bias": torch.zeros(16)}
    torch.save(theirs.state_dict() | pooler, tmp_path / "pytorch_model.bin")
    for other, name in ((tmp_path, "TokenClassification"), (hugging_face("BertForMultipleChoice"), "MultipleChoice")):
        with pytest.raises(ValueError, match=rf"architectures=\['BertFor{name}'\] cannot be converted"):
            from_hf(other)


def test_more_tokens_than_positions_and_segments_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="13 tokens, max_length=12"):
        bert()(torch.full((1, 13), 5))
    for bad in (2, -1):
        with pytest.raises(ValueError, match=f"segments holds token id {bad}"):
            bert()(TOKENS, SEGMENTS.where(SEGMENTS == 0, bad))


def test_an_end_that_fills_up_rows_is_learned_as_a_token() -> None:
    tables = [bert(special=SpecialIds(pad=pad)).token_embedding for pad in (EOS, PAD, None)]
    assert [table.padding_idx for table in tables] == [None, PAD, None]
