"""Tests for chapter "An encoder-decoder"."""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.data.batching import Batch
from transformer_lib.models.recurrent import (
    GRU,
    RecurrentConfig,
    RecurrentEncoder,
    RecurrentSeq2Seq,
    reverse_padded,
    run_gru,
    tied_output,
)
from transformer_lib.student.checks import check, equal, holds, refuses
from transformer_lib.training.loop import evaluate_loss, train_on

SIZES = RecurrentConfig(11, 11, d_model=6, d_hidden=8, n_layers=2, dropout=0.0)
SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
SHORT = torch.tensor([[True, True, True], [True, False, False]])


@check(run_gru, "The library's GRU")
def like_pytorch() -> None:
    """Without a mask, the states equal those of PyTorch's GRU with the same weights."""
    theirs, x, h = nn.GRU(6, 8, batch_first=True), randn(2, 3, 6), randn(2, 8)
    want, last = theirs(x, h[None])
    got = run_gru(x, None, h, theirs.all_weights[0])
    equal(got, (want, last[0]))


@check(run_gru, "The library's GRU")
def a_masked_step_leaves_the_state() -> None:
    """After a sentence of one word, two steps of padding leave the state as it was, and their outputs are zeros."""
    weights, x, h = nn.GRU(6, 8).all_weights[0], randn(2, 3, 6), torch.zeros(2, 8)
    cases = ((x, SHORT), (x[:, :1], None), (x, None))
    (states, got), (_, want), (_, over) = (run_gru(words, mask, h, weights) for words, mask in cases)
    equal(got[1], want[1], {"States that run on over the padding": over[1]})
    equal(states[1, 1:], torch.zeros(2, 8))


@check(run_gru, "The library's GRU")
def backward() -> None:
    """Backwards, the result is that of the reversed sentence, and states stay at their words."""
    weights, x, h = nn.GRU(6, 8).all_weights[0], randn(2, 3, 6), torch.zeros(2, 8)
    states, last = run_gru(x.flip(1), None, h, weights)
    equal(run_gru(x, None, h, weights, backward=True), (states.flip(1), last))


@check(GRU.forward, "The library's GRU")
def layers_and_directions() -> None:
    """Two layers in two directions give what PyTorch's GRU gives, from zeros or from a given state.

    In training, dropout acts between the layers. The tests drop everything, so that they know what is left.
    """
    ours, x, h = GRU(6, 4, 2, bidirectional=True, dropout=1.0), randn(2, 3, 6), randn(4, 2, 4)
    theirs = nn.GRU(6, 4, 2, batch_first=True, bidirectional=True, dropout=1.0)
    theirs.load_state_dict(ours.state_dict())
    for training in (False, True):
        for first in (None, h):
            states = [one if one is None else one.view(2, 2, 2, 4).permute(2, 0, 1, 3).flatten(2) for one in (first,)]
            want, last = theirs.train(training)(x, first)
            wrong, _ = theirs.train(not training)(x, first)
            got = ours.train(training)(x, None, *states)
            slips = {"dropout is off in training, or on in evaluation": bool(torch.allclose(got[0], wrong, atol=1e-5))}
            equal(got, (want, last.view(2, 2, 2, 4).permute(2, 0, 1, 3).flatten(2)), slips)


@check(GRU.forward, "The library's GRU")
def zeros_at_padding() -> None:
    """At padding, all layers keep their state, and the outputs are zeros."""
    gru, x = GRU(6, 4, 2), randn(2, 3, 6)
    (outputs, last), (want, state) = gru(x, SHORT), gru(x[1:, :1])
    equal(outputs[1:], F.pad(want, (0, 0, 0, 2)))
    equal(last[1:], state)


@check(GRU.forward, "The library's GRU")
def one_row_for_all_is_refused() -> None:
    """A mask or a state with fewer rows than sentences raises a ValueError."""
    gru, x = GRU(6, 4), randn(2, 3, 6)
    refuses(ValueError, gru, x, SHORT[:1])
    refuses(ValueError, gru, x, None, randn(1, 1, 4))


@check(reverse_padded, "Reading backwards")
def reversed_within_its_length() -> None:
    """Each row is reversed within its own length, and the padding stays at the end."""
    want = tensor([[2, 6, 5, 4], [2, 7, 0, 0]])
    equal(reverse_padded(SOURCE, SOURCE != 0), want, {"the padding is reversed, too": SOURCE.flip(1)})


@check(RecurrentEncoder.forward, "Encoder and decoder")
def padding_changes_nothing() -> None:
    """A sentence gives the same states alone as beside a longer one; dropout acts on the embedded words."""
    encoder = RecurrentEncoder(SIZES)
    both, alone = encoder(SOURCE), encoder(SOURCE[1:, :2])
    slips = {"States that run on over the padding": encoder.gru(encoder.embedding(SOURCE))[1][1:]}
    equal(both.final[1:], alone.final, slips, "alone / beside a longer one")
    equal(both.outputs, encoder.gru(encoder.dropout(encoder.embedding(SOURCE)), SOURCE != 0)[0])
    equal(both.mask, SOURCE != 0)


@check(RecurrentEncoder.forward, "Encoder and decoder")
def from_the_last_word() -> None:
    """With ``reverse_source``, the encoder reads each sentence from its end, and the padding stays behind."""
    encoder = RecurrentEncoder(replace(SIZES, reverse_source=True))
    want = encoder.gru(encoder.dropout(encoder.embedding(reverse_padded(SOURCE, SOURCE != 0))), SOURCE != 0)
    equal((encoder(SOURCE).outputs, encoder(SOURCE).final), want)


@check(RecurrentEncoder.forward, "Encoder and decoder")
def unknown_tokens_are_refused() -> None:
    """A token outside the vocabulary raises a ValueError that speaks of the source."""
    refuses(ValueError, RecurrentEncoder(SIZES), SOURCE + 9)


@check(tied_output, "Encoder and decoder")
def shared_weights() -> None:
    """The output layer shares the table of the embedding, and its bias starts at zero."""
    table = nn.Embedding(11, 6)
    layer = tied_output(table)
    holds(layer.weight is table.weight, "layer.weight is another tensor than table.weight")
    equal(layer.bias.detach(), torch.zeros(11))


def translator() -> RecurrentSeq2Seq:
    """A small model."""
    return RecurrentSeq2Seq(SIZES).eval()


@check(RecurrentSeq2Seq.encode, "Encoder and decoder")
def encoding() -> None:
    """The memory is what the encoder makes of the source."""
    model = translator()
    equal(model.encode(SOURCE).outputs, model.encoder(SOURCE).outputs)


@check(RecurrentSeq2Seq.first_state, "Encoder and decoder")
def memory_goes_along() -> None:
    """The first state holds the encoder's last states, that of the top layer as the vector c, too, and the memory."""
    model = translator()
    memory = model.encode(SOURCE)
    equal((model.first_state(memory).hidden, model.first_state(memory).c), (memory.final, memory.final[:, -1]))
    holds(model.first_state(memory).memory is memory, "the state has another memory")


@check(RecurrentSeq2Seq.read, "Encoder and decoder")
def what_each_step_reads() -> None:
    """Each step reads a word and the source's vector; word, state and vector make the hidden state.

    Dropout acts on the embedded words and on the hidden states.
    """
    model = translator()
    memory = model.encode(SOURCE)
    words, c = model.dropout(model.embedding(TARGET)), memory.final[:, -1:].expand(-1, 4, -1)
    states, last = model.gru(torch.cat([words, c], -1), state=memory.final)
    x, state = model.read(TARGET, model.first_state(memory))
    want = model.dropout(model.read_out(torch.cat([words, states, c], -1)).tanh())
    equal((x, state.hidden, state.c), (want, last, memory.final[:, -1]))


@check(RecurrentSeq2Seq.read, "Encoder and decoder")
def step_by_step() -> None:
    """Token by token, the decoder gives the same logits as for the whole sentence at once."""
    model, logits = translator(), []
    state, want = model.start(SOURCE), model(SOURCE, TARGET)
    for token in TARGET.unbind(1):
        one, state = model.step(token, state)
        logits.append(one)
    equal(torch.stack(logits, 1), want, names="the whole sentence / token by token")


@check(train_on, "Training")
def training_helps() -> None:
    """Twenty updates on one batch lower its loss, and the mean loss per token is returned."""
    model, batch = translator(), Batch(SOURCE, TARGET)
    optimizer, before = torch.optim.Adam(model.parameters(), 0.02), model.loss(batch).mean.item()
    equal(train_on(model, [batch], optimizer), before)
    after = train_on(model, [batch] * 20, optimizer)
    holds(after < before - 0.1, f"before {before:.3f}, in the mean of the next 20 updates {after:.3f}")


@check(train_on, "Training")
def two_clipped_updates() -> None:
    """Each update follows the gradient of its own batch, clipped to the given length, in training mode."""
    model, batch, clip = translator(), Batch(SOURCE, TARGET), 0.1
    want, ends = deepcopy(model), {}
    for slip in ("the gradient is not clipped", "gradients of two batches add up", ""):
        other = want if not slip else deepcopy(model)
        for _ in range(2):
            if "add up" not in slip:
                other.zero_grad()
            other.loss(batch).mean.backward()
            if "clipped" not in slip:
                nn.utils.clip_grad_norm_(other.parameters(), clip)
            with torch.no_grad():
                for one in other.parameters():
                    one -= one.grad
        ends[slip] = other.output.weight.detach()
    train_on(model, [batch] * 2, torch.optim.SGD(model.parameters(), 1.0), clip=clip)
    equal(model.output.weight.detach(), ends.pop(""), ends)
    holds(model.training, "the model is in evaluation mode")


@check(train_on, "Training")
def the_mean_of_all_tokens() -> None:
    """A gradient that is short enough stays as it is: that of the mean over tokens, which is also what is returned."""
    model, batches = translator(), [Batch(SOURCE, TARGET), Batch(SOURCE[1:, :2], TARGET[1:, :2])]
    losses = [model.loss(one) for one in batches]
    want = sum(one.sum.item() for one in losses) / sum(int(one.n_tokens) for one in losses)
    means = [one.mean.item() for one in losses]
    slips = {"A mean of means": sum(means) / 2, "the loss of the last batch": means[-1]}
    equal(train_on(model, batches, torch.optim.SGD(model.parameters(), 0.0), clip=1e6), want, slips)
    weight = model.output.weight.detach().clone()
    (gradient,) = torch.autograd.grad(model.loss(batches[0]).mean, [model.output.weight])
    train_on(model, batches[:1], torch.optim.SGD(model.parameters(), 1.0), clip=1e6)
    equal(weight - model.output.weight.detach(), gradient, {"the sum over tokens": gradient * int(losses[0].n_tokens)})


@check(train_on, "Training")
def anothers_optimizer_is_refused() -> None:
    """An optimizer that trains no parameter of the model raises a ValueError."""
    refuses(ValueError, train_on, translator(), [Batch(SOURCE, TARGET)], torch.optim.Adam(translator().parameters()))


@check(evaluate_loss, "Training")
def a_mean_over_tokens() -> None:
    """The loss is a mean over tokens, so a longer batch counts more; dropout is off, and no gradient is left.

    Afterwards, the model is in the same mode as before.
    """
    model = RecurrentSeq2Seq(replace(SIZES, dropout=0.5)).eval()
    batches = [Batch(SOURCE, TARGET), Batch(SOURCE[1:, :2], TARGET[1:, :2])]
    losses = [
        F.cross_entropy(model(b.source, b.target_input).mT, b.target_output, ignore_index=0).item() for b in batches
    ]
    got = evaluate_loss(model.train(), batches)
    equal(got, (losses[0] * 5 + losses[1]) / 6, {"A mean of means": sum(losses) / 2})
    holds(model.training, "the model was in training mode before, and is not any more")
    evaluate_loss(model.eval(), batches)
    holds(not model.training, "the model was in evaluation mode before, and is not any more")
