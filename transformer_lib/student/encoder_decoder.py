"""Tests for chapter "An encoder-decoder"."""

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.encoder_decoder import Encoder, EncoderDecoder, find_vector, gru_step, translate, write
from transformer_lib.student.checks import check, equal, holds

SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])


@check(gru_step, "The vanishing gradient")
def like_pytorch() -> None:
    """One step gives what PyTorch's GRU cell gives with the same weights."""
    cell, x, h = nn.GRUCell(6, 8), randn(2, 6), randn(2, 8)
    W, U, b, b_h = cell.parameters()
    r_x, z_x, n_x = (x @ W.T + b).chunk(3, -1)
    r_h, z_h, n_h = (h @ U.T + b_h).chunk(3, -1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    n = torch.tanh(n_x + r * n_h)
    slips = {
        "the update gate keeps the candidate, not the old state": (1 - z) * h + z * n,
        "reset and update are exchanged": (1 - r) * torch.tanh(n_x + z * n_h) + r * h,
        "the reset gate leaves out the bias": (1 - z) * torch.tanh(n_x + b_h[16:] + r * (n_h - b_h[16:])) + z * h,
        "the candidate sees all of the old state": (1 - z) * torch.tanh(n_x + n_h) + z * h,
    }
    equal(gru_step(x, h, W, U, b, b_h), cell(x, h), slips)


@check(Encoder.forward, "The model")
def the_state_after_the_last_word() -> None:
    """One vector for each sentence, (B, H): the GRU's state after its last token, alone and beside longer ones."""
    encoder, wide = Encoder(11, 6, 8), F.pad(SOURCE, (0, 1))
    long, _ = encoder.gru(encoder.embedding(wide))
    _, short = encoder.gru(encoder.embedding(SOURCE[1:, :2]))
    slips = {
        "States that run on over the padding": long[:, -1],
        "the state before the last token": torch.stack([long[0, 2], long[1, 0]]),
    }
    equal(encoder(wide), torch.cat([long[:1, 3], short[0]]), slips)


def translator() -> EncoderDecoder:
    """A small model, with weights that are large enough to see what each of them does."""
    model = EncoderDecoder(11, 11, d_model=6, d_hidden=8).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


@check(EncoderDecoder.decode, "The model")
def what_each_step_reads() -> None:
    """Each step reads a word and the vector c; word, new state and c make the logits, (B, T, V).

    The second result is the last state, as ``nn.GRU`` returns it.
    """
    model, c, state = translator(), randn(2, 8), randn(1, 2, 8)
    words, wide = model.embedding(TARGET), c[:, None].expand(-1, 4, -1)
    states, last = model.gru(torch.cat([words, wide], -1), state)
    other, end = model.gru(torch.cat([wide, words], -1), state)
    rows = [words, states, wide], [words, wide, states], [words, other, wide]
    want, swapped, before = (model.output(model.read_out(torch.cat(row, -1)).tanh()) for row in rows)
    straight = model.output(model.read_out(torch.cat(rows[0], -1)))
    slips = {
        "state and vector are exchanged in the read-out": (swapped, last),
        "word and vector are exchanged before the GRU": (before, end),
        "the tanh is missing": (straight, last),
    }
    equal(tuple(model.decode(TARGET, c, state)), (want, last), slips)


@check(EncoderDecoder.forward, "The model")
def from_the_encoders_vector() -> None:
    """The decoder begins with the encoder's vector as its state; the result is the logits alone."""
    model = translator()
    c = model.encoder(SOURCE)
    zeros, _ = model.decode(TARGET, c, 0 * c[None])
    want, _ = model.decode(TARGET, c, c[None])
    equal(model(SOURCE, TARGET), want, {"the decoder begins with zeros": zeros})


@check(write, "The model")
def the_most_probable_word() -> None:
    """Words begin after BOS, are never PAD or BOS, and stop when each row has its EOS, or after ``max_length``."""
    model = translator()
    with torch.no_grad():
        model.output.bias[:2] += 100  # PAD and BOS
        c = model.encoder(SOURCE)
        words = write(model, c, 5)
        target = torch.cat([TARGET[:, :1], words], 1)
        logits, _ = model.decode(target, c, c[None])
    want = logits[:, :-1, 2:].argmax(-1) + 2
    equal(words, want, {"padding or BOS is written": bool((words < 2).any())})
    holds(words.shape[1] <= 5, f"expected  at most 5 words\ngot       {words.shape[1]}")
    with torch.no_grad():
        model.output.bias[2] += 200
    equal(write(model, c), tensor([[2], [2]]), {"it goes on after EOS": True})


@check(write, "The model")
def until_every_row_has_ended() -> None:
    """It doesn't stop at the first row that has its EOS."""
    model = translator()
    with torch.no_grad():
        for weight in (model.read_out.weight, model.read_out.bias):
            weight.zero_()
        model.read_out.weight[0, 6] = model.output.weight[2, 0] = 5.0  # the first number of a state decides
    c = torch.zeros(2, 8)
    c[0, 0], c[1, 0] = 40.0, -40.0
    with torch.no_grad():
        model.gru.weight_hh_l0.zero_(), model.gru.weight_ih_l0.zero_(), model.gru.bias_ih_l0.zero_()
        model.gru.bias_hh_l0.zero_(), model.gru.bias_ih_l0[8:16].fill_(100.0)
    found = write(model, c, 4)
    holds(found[0, 0] == 2, "the first row should end at once")
    equal(found.shape, torch.Size([2, 4]), {"Greedy decoding for one sentence only": torch.Size([2, 1])})


@check(translate, "The model")
def reads_and_writes() -> None:
    """A translation is what the decoder writes from the encoder's vector, up to ``max_length`` words."""
    model = translator()
    model.output.bias.data[2] -= 100
    equal(translate(model, SOURCE, 6), write(model, model.encoder(SOURCE), 6))


@check(find_vector, "Is the vector too small?")
def a_better_vector() -> None:
    """From the vector that it finds, the decoder finds the target more probable, and all numbers lie within 1.

    The weights of the model stay as they are.
    """
    torch.manual_seed(0)
    model = translator()
    before = [weight.detach().clone() for weight in model.parameters()]

    def loss(c):
        logits, _ = model.decode(TARGET[:, :-1], c, c[None])
        return F.cross_entropy(logits.mT, TARGET[:, 1:], ignore_index=0).item()

    c = find_vector(model, TARGET, steps=150)
    equal(tuple(c.shape), (2, 8))
    holds(c.abs().max() <= 1, f"a number of {c.abs().max():.2f} is more than a GRU's state can be")
    start = loss(torch.zeros(2, 8))
    holds(loss(c) < 0.8 * start, f"the loss was {start:.2f} from zeros, and is {loss(c):.2f}")
    for weight, old in zip(model.parameters(), before, strict=True):
        equal(weight.detach(), old, {"the model is trained, too": True})
    wanted, slips = {}, {}
    for bounded in (True, False):
        u = torch.zeros(2, 8, requires_grad=True)
        adam = torch.optim.Adam([u], lr=0.1)
        for _ in range(5):
            c = u.tanh() if bounded else u
            logits, _ = model.decode(TARGET[:, :-1], c, c[None])
            (u.grad,) = torch.autograd.grad(F.cross_entropy(logits.mT, TARGET[:, 1:], ignore_index=0), [u])
            adam.step()
        wanted[bounded] = u.detach().tanh()
    slips["the decoder reads the numbers before the tanh"] = wanted[False]
    equal(find_vector(model, TARGET, steps=5), wanted[True], slips, "five steps of Adam with a rate of 0.1 / found")
