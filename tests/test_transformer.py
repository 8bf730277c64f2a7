"""The Transformer: equal to PyTorch's and to Marian; its sizes, masks, norms, dropout, precisions; what is refused."""

import copy
import subprocess
import sys

import pytest
import torch
from marian import marian_pair
from small import ragged
from torch import nn

from transformer_lib.data.tokenizer import BOS, PAD
from transformer_lib.models.attention import causal_mask
from transformer_lib.models.convert import from_torch, to_torch
from transformer_lib.models.layers import LayerNorm
from transformer_lib.models.transformer import EncoderLayer, Transformer, TransformerConfig

SIZES = {
    "source_vocab_size": 13,
    "target_vocab_size": 13,
    "d_model": 8,
    "n_heads": 2,
    "n_encoder_layers": 2,
    "n_decoder_layers": 3,
    "d_ff": 16,
    "dropout": 0.0,
    "max_length": 24,
}


def small_model(seed: int = 0, **changes) -> Transformer:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Transformer(TransformerConfig(**{**SIZES, **changes})).double()
        for parameter in model.parameters():  # away from zero and one, so that nothing is equal by accident
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model


SOURCE, TARGET = ragged([5, 3, 7], 13), ragged([6, 6, 6], 13, seed=9, first=BOS)


# ---------------------------------------------------------------- equal to references


def outputs_of(theirs: nn.Transformer, model: Transformer, source, target) -> torch.Tensor:
    scale = model.config.d_model**0.5
    read = model.source_positions(model.source_embedding(source) * scale)
    written = model.target_positions(model.target_embedding(target) * scale)
    padding = source == PAD
    later = ~causal_mask(target.shape[1], device=target.device)[0, 0]
    return theirs(read, written, tgt_mask=later, src_key_padding_mask=padding, memory_key_padding_mask=padding)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm_first", "final_norm", "activation", "dtype", "tolerance"),
    [
        (False, False, "relu", torch.float64, 1e-12),
        (True, True, "gelu", torch.float64, 1e-12),
        (True, False, "relu", torch.float32, 1e-5),
        (False, True, "gelu", torch.float32, 1e-5),
    ],
)
def test_equal_to_nn_transformer_in_values_and_gradients(norm_first, final_norm, activation, dtype, tolerance):
    model = small_model(norm_first=norm_first, final_norm=final_norm, activation=activation).to(dtype)
    theirs = to_torch(model)
    outputs, logits = outputs_of(theirs, model, SOURCE, TARGET), model(SOURCE, TARGET)
    torch.testing.assert_close(outputs @ model.output.weight.T, logits, atol=tolerance, rtol=tolerance)

    direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)).to(logits)
    (logits * direction).sum().backward()
    ours = copy.deepcopy(theirs)
    (outputs @ model.output.weight.detach().T * direction).sum().backward()
    with torch.no_grad():  # our gradients under their names: put them in as weights and read them out
        holder = copy.deepcopy(model)
        for parameter, original in zip(holder.parameters(), model.parameters(), strict=True):
            parameter.copy_(original.grad if original.grad is not None else torch.zeros_like(original))
        ours = to_torch(holder)
    for (name, gradient), parameter in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(gradient.data, parameter.grad, atol=20 * tolerance, rtol=20 * tolerance, msg=name)


def test_from_plain_nn_transformer():
    theirs = nn.Transformer(8, 2, 2, 3, 16, dropout=0.0, batch_first=True).double().eval()
    model = from_torch(theirs, source_vocab_size=13, target_vocab_size=13)
    expected = outputs_of(theirs, model, SOURCE, TARGET) @ model.output.weight.T
    torch.testing.assert_close(model(SOURCE, TARGET), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.slow
def test_equal_to_marian():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, theirs = marian_pair(50, 16, 4, (2, 3), 32, max_length=40, init_std=0.3)
    with torch.no_grad():
        expected = theirs(
            input_ids=SOURCE, attention_mask=(SOURCE != PAD).long(), decoder_input_ids=TARGET, use_cache=False
        ).logits
        ours = model(SOURCE, TARGET)
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    assert expected.std() > 0.5


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, 63.1),
        ({"d_model": 1024, "n_heads": 16, "d_ff": 4096}, 214.2),
        ({"d_key": 16, "d_value": 64}, 56.0),
        ({"n_encoder_layers": 2, "n_decoder_layers": 2}, 33.7),
        ({"tie_embeddings": "none"}, 63.1 + 2 * 37_000 * 512 / 1e6),
        ({"tie_embeddings": "target"}, 63.1 + 37_000 * 512 / 1e6),
    ],
)
def test_numbers_of_parameters(changes, millions):
    with torch.device("meta"):
        model = Transformer(TransformerConfig.base(**changes))
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


def test_the_tiny_preset_has_the_published_number_of_parameters():
    with torch.device("meta"):
        model = Transformer(TransformerConfig.tiny())
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(2.6e6, rel=0.01)


def test_the_presets_are_the_papers():
    base, big = TransformerConfig.base(), TransformerConfig.big()
    assert (base.d_model, base.n_heads, base.d_ff, base.n_encoder_layers, base.dropout) == (512, 8, 2048, 6, 0.1)
    assert (big.d_model, big.n_heads, big.d_ff, big.n_decoder_layers, big.dropout) == (1024, 16, 4096, 6, 0.3)
    assert TransformerConfig.big(dropout=0.1).dropout == 0.1


# ---------------------------------------------------------------- properties


def test_weights_sum_to_one_and_obey_the_masks():
    model = small_model()
    maps = model.attention(SOURCE, TARGET)
    for group, count in ((maps.encoder, 2), (maps.decoder, 3), (maps.cross, 3)):
        assert len(group) == count
        for weights in group:
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    padding = (SOURCE == PAD)[:, None, None, :]
    assert all((weights * padding).abs().max() == 0 for weights in [*maps.encoder, *maps.cross])
    assert all(weights.triu(1).abs().max() == 0 for weights in maps.decoder)
    torch.testing.assert_close(model.align(SOURCE, TARGET), maps.cross[-1].mean(dim=1))


@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_falls_on_the_sublayer_and_not_on_the_sum(norm_first):
    layer = EncoderLayer(TransformerConfig(**{**SIZES, "dropout": 0.5, "norm_first": norm_first}))
    layer.norm1 = layer.norm2 = nn.Identity()
    layer.self_attn.forward, layer.feed_forward.forward = lambda x, mask: torch.ones_like(x), torch.ones_like
    assert set(layer(torch.ones(1, 200, 8)).unique().tolist()) == {1.0, 3.0, 5.0}


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_final_norm_stands_where_it_is_needed(norm_first):
    model = small_model(norm_first=norm_first)
    assert isinstance(model.encoder.norm, LayerNorm if norm_first else nn.Identity)
    assert isinstance(model.decoder.norm, LayerNorm if norm_first else nn.Identity)


def test_tied_tables_are_one():
    tables = {kind: small_model(tie_embeddings=kind) for kind in ("all", "target", "none")}
    assert tables["all"].source_embedding is tables["all"].target_embedding
    assert tables["target"].source_embedding is not tables["target"].target_embedding
    for kind in ("all", "target"):
        assert tables[kind].output.weight is tables[kind].target_embedding.weight
    assert tables["none"].output.weight is not tables["none"].target_embedding.weight
    restored = small_model(seed=5)
    restored.load_state_dict(tables["all"].state_dict())
    assert torch.equal(restored(SOURCE, TARGET), tables["all"](SOURCE, TARGET))


def test_dropout_only_in_training():
    model = small_model(dropout=0.5).eval()
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    memory = model.encode(SOURCE)
    model.train()
    model.encoder.eval(), model.decoder.eval()  # embeddings are dropped, too
    assert not torch.equal(model.encode(SOURCE).outputs, model.encode(SOURCE).outputs)
    assert not torch.equal(model.decode(TARGET, memory), model.decode(TARGET, memory))


# ---------------------------------------------------------------- devices, precisions, compilation


def test_autocast():
    model = small_model().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(SOURCE, TARGET)
        first, _ = model.step(TARGET[:, 0], model.start(SOURCE))
    expected = model(SOURCE, TARGET)
    torch.testing.assert_close(logits.float(), expected, atol=0.2, rtol=0.2)
    torch.testing.assert_close(first.float(), expected[:, 0], atol=0.2, rtol=0.2)


COMPILE = """
import torch
from transformer_lib import Transformer, TransformerConfig
torch.manual_seed(0)
source, target = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), torch.tensor([[1, 5, 6], [1, 8, 9]])
for norm_first, dynamic, backend in ((False, False, "aot_eager"), (True, True, "eager")):
    torch.compiler.reset()
    model = Transformer(TransformerConfig(13, 13, 8, 2, 1, 1, 16, norm_first=norm_first, dropout=0.0)).double()
    model(source, target)
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)
    for length in (3, 2) if dynamic else (3,):
        shorter = target[:, :length]
        torch.testing.assert_close(compiled(source, shorter), model(source, shorter), atol=1e-10, rtol=1e-10)
"""


@pytest.mark.slow
def test_it_compiles_as_one_graph():
    done = subprocess.run(  # in a process without the run-time check of annotations, which no compiler can follow
        [sys.executable, "-c", COMPILE], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


# ---------------------------------------------------------------- bad input


BAD = {
    "odd width": (lambda: small_model(d_model=9, n_heads=3), "d_model=9 is odd"),
    "heads": (lambda: small_model(d_model=10, n_heads=4), "d_model=10 is not divisible by n_heads=4"),
    "two vocabularies": (lambda: TransformerConfig(source_vocab_size=5), r"one vocabulary, not \(5, 37000\)"),
    "long source": (lambda: small_model()(ragged([25], 13), TARGET[:1]), "max_length=24"),
    "long target": (lambda: small_model()(SOURCE[:1], ragged([25], 13, first=BOS)), "max_length=24"),
    "token": (lambda: small_model()(SOURCE + 9, TARGET), "token id"),
    "negative token": (lambda: small_model()(SOURCE, TARGET - 9), "token id -"),
    "empty sentence": (lambda: small_model()(torch.zeros(3, 4, dtype=torch.long), TARGET), "begins with padding"),
    "no position left": (lambda: step_beyond_its_positions(), "max_length=7"),
}


def step_beyond_its_positions():
    model = small_model(max_length=7)
    state = model.start(SOURCE)
    for _ in range(8):
        _, state = model.step(TARGET[:, 0], state)


@pytest.mark.parametrize("case", BAD)
def test_what_would_be_silently_wrong_is_refused_by_name(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
