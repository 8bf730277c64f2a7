"""The recurrent translator: equal to PyTorch's GRU, blind to padding; and the protocol that all translators share."""

import re
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from small import generator, ragged, small
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_lib.data.tokenizer import BOS
from transformer_lib.models.recurrent import GRU, RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.seq2seq import Memory, check_tokens, eval_mode, reorder

small_model = partial(small, RecurrentSeq2Seq, RecurrentConfig)


def reference(ours: GRU) -> nn.GRU:
    """``torch.nn.GRU`` with the weights of ours."""
    sizes = ours.input_size, ours.hidden_size, ours.num_layers
    theirs = nn.GRU(*sizes, batch_first=True, bidirectional=ours.bidirectional)
    theirs = theirs.to(next(ours.parameters()).dtype)
    theirs.load_state_dict(ours.state_dict())
    return theirs


# ---------------------------------------------------------------- equal to a reference


@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    widths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    n_layers=st.integers(1, 3),
    both=st.booleans(),
    with_state=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow
def test_gru_equals_torch_on_packed_sequences_in_values_and_gradients(
    lengths, widths, n_layers, both, with_state, seed
):
    draw = generator(seed)
    ours, directions = GRU(*widths, n_layers, bidirectional=both).double(), 1 + both
    theirs = reference(ours)
    inputs = torch.randn(len(lengths), max(lengths), widths[0], generator=draw).double()
    state, theirs_state = None, None
    if with_state:
        state = torch.randn(len(lengths), n_layers, directions * widths[1], generator=draw).double()
        theirs_state = state.unflatten(2, (directions, -1)).flatten(1, 2).transpose(0, 1).contiguous()
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ours_in, theirs_in = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()

    outputs, final = ours(ours_in, None if mask.all() else mask, state)
    packed = pack_padded_sequence(theirs_in, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    packed_out, their_final = theirs(packed, theirs_state)
    their_outputs, _ = pad_packed_sequence(packed_out, batch_first=True)
    their_final = their_final.transpose(0, 1).unflatten(1, (n_layers, directions)).flatten(2)
    torch.testing.assert_close(outputs, their_outputs, atol=1e-12, rtol=0)
    torch.testing.assert_close(final, their_final, atol=1e-12, rtol=0)

    weight_out, weight_final = torch.randn(outputs.shape, generator=draw), torch.randn(final.shape, generator=draw)
    ((outputs * weight_out).sum() + (final * weight_final).sum()).backward()
    ((their_outputs * weight_out).sum() + (their_final * weight_final).sum()).backward()
    torch.testing.assert_close(ours_in.grad, theirs_in.grad, atol=1e-10, rtol=0)
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, getattr(theirs, name).grad, atol=1e-10, rtol=0)


# ---------------------------------------------------------------- properties


def test_dropout_between_layers_only_in_training():
    torch.manual_seed(0)
    gru, inputs = GRU(3, 4, 2, dropout=0.5, bidirectional=True), torch.randn(2, 5, 3)
    assert not torch.equal(gru(inputs)[0], gru(inputs)[0])
    gru.eval()
    assert torch.equal(gru(inputs)[0], gru(inputs)[0])
    single = GRU(3, 4, 1, dropout=0.5)
    assert torch.equal(single(inputs)[0], single(inputs)[0])


# ---------------------------------------------------------------- the translator


@pytest.mark.parametrize("reverse", [False, True])
def test_logits_equal_the_equations_step_by_step(reverse):
    model = small_model(reverse_source=reverse)
    source, target = ragged([4, 2], 13), ragged([3, 3], 11, first=BOS)
    logits = model(source, target)
    cells = nn.GRUCell(6, 8).double(), nn.GRUCell(14, 8).double()
    for cell, gru in zip(cells, (model.encoder.gru, model.gru), strict=True):
        cell.load_state_dict({name.removesuffix("_l0"): value for name, value in gru.state_dict().items()})
    for b, length in enumerate((4, 2)):
        h = torch.zeros(1, 8).double()
        words = source[b, :length].flip(0) if reverse else source[b, :length]
        for token in words:
            h = cells[0](model.encoder.embedding.weight[token][None], h)
        c = s = h
        for t, token in enumerate(target[b]):
            word = model.embedding.weight[token][None]
            s = cells[1](torch.cat([word, c], 1), s)
            read = torch.tanh(model.read_out(torch.cat([word, s, c], 1)))
            expected = read @ model.embedding.weight.T + model.output.bias
            torch.testing.assert_close(logits[b, t], expected[0], atol=1e-12, rtol=0)


# ---------------------------------------------------------------- the protocol


def test_every_part_comes_back_in_the_mode_it_had():
    model = small_model().train()
    model.encoder.eval()  # frozen by its owner
    with eval_mode(model):
        assert not any(part.training for part in model.modules()) and not torch.is_grad_enabled()
    assert not any(part.training for part in model.encoder.modules()) and model.gru.training and model.training
    with pytest.raises(KeyError), eval_mode(model):
        raise KeyError
    assert model.training and not model.encoder.training and torch.is_grad_enabled()


@dataclass(frozen=True)
class Nested:
    """A state of many parts."""

    memory: Memory
    parts: list
    count: int = 3


def test_reorder_reaches_every_part_and_shares_the_memory():
    memory = Memory(torch.arange(4.0).view(2, 2, 1), torch.ones(2, 2).bool(), final=torch.tensor([[[5.0]], [[6.0]]]))
    rows = torch.arange(4)
    state = Nested(memory, [rows, {"a": (rows + 10, None, torch.tensor(7))}])
    moved = reorder(state, torch.tensor([3, 0, 0]))
    assert moved.memory is memory and moved.count == 3
    assert moved.parts[0].tolist() == [3, 0, 0] and moved.parts[1]["a"][0].tolist() == [13, 10, 10]
    assert moved.parts[1]["a"][1:] == (None, torch.tensor(7))
    less = reorder(state, torch.tensor([2, 3]), torch.tensor([1]))
    assert less.parts[0].tolist() == [2, 3] and less.memory.outputs.flatten().tolist() == [2, 3]
    assert less.memory.final.item() == 6 and state.memory.final.shape == (2, 1, 1)
    with pytest.raises(TypeError, match="a set cannot be reordered"):
        reorder([{1}], rows)


class Pair(NamedTuple):
    """A state with names, one of which may be left out."""

    hidden: Tensor
    cell: Tensor | None = None


def test_reorder_keeps_the_names_of_a_tuple():
    moved = reorder(Pair(torch.arange(3), torch.arange(3, 6)), torch.tensor([2, 0]))
    assert type(moved) is Pair and moved.hidden.tolist() == [2, 0] and moved.cell.tolist() == [5, 3]


SOURCE, TARGET = ragged([3, 2], 13), ragged([4, 3], 11, first=BOS)
SILENT = {  # PyTorch would compute something, or say something unhelpful
    "source token": (lambda: small_model()(SOURCE + 10, TARGET), "source holds token id 1[0-9]"),
    "one too large": (lambda: check_tokens(torch.tensor([[8, 9]]), 9, "words"), "words holds token id 9"),
    "negative token": (lambda: small_model()(SOURCE - 5, TARGET), "source holds token id -"),
    "target token": (lambda: small_model()(SOURCE, TARGET + 9), "target holds token id"),
    "empty source": (lambda: small_model()(torch.zeros_like(SOURCE), TARGET), "source begins with padding"),
    "padded on the left": (lambda: check_tokens(torch.tensor([[0, 5]]), 9, "words"), "words begins with padding"),
    "a gap": (lambda: check_tokens(torch.tensor([[5, 0, 5]]), 9, "words"), "padding before a token"),
    "rows without tokens": (lambda: small_model()(SOURCE[:, :0], TARGET), "source has rows without tokens"),
    "unequal rows": (lambda: small_model()(SOURCE, TARGET[:1]), "2 sources and 1 targets"),
    "one state for all": (lambda: GRU(3, 4)(torch.zeros(2, 5, 3), None, torch.zeros(1, 1, 4)), "a row for each"),
    "one layer too few": (
        lambda: GRU(3, 4, 2)(torch.zeros(2, 5, 3), state=torch.zeros(2, 1, 4)),
        r"expected .*\(2, 2, 4\)",
    ),
    "one mask for all": (lambda: GRU(3, 4)(torch.zeros(2, 5, 3), torch.ones(1, 5).bool()), "a row for each"),
    "width of 0": (lambda: RecurrentConfig(5, 5, d_model=0), "d_model"),
    "dropout": (lambda: RecurrentConfig(5, 5, dropout=1.0), "dropout"),
    "a field of no kind": (lambda: RecurrentConfig(5, 5, heads=2), "heads"),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_would_be_silently_wrong_is_refused(case):
    call, message = SILENT[case]
    with pytest.raises((ValueError, TypeCheckError)) as caught:
        call()
    # where annotations are enforced, a wrong shape is caught before our own check
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))
