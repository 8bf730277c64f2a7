"""Tests for chapter "All words at once"."""

import torch
from torch import nn, tensor
from torch.nn import functional as F

from transformer_lib.plain.mask_predict import MASK, PAD, MaskPredict, hide, mask_predict, mask_predict_loss
from transformer_lib.student.checks import check, equal, holds

SOURCE = tensor([[5, 6, 7, 8, 9], [10, 11, 12, PAD, PAD]])
TARGET = tensor([[13, 14, 15, 16], [17, 18, PAD, PAD]])


def small() -> MaskPredict:
    """A small model that is sure of very little, and of which length is likely."""
    torch.manual_seed(0)
    model = MaskPredict(20, 8, 2, 16, n_layers=2, dropout=0.0).eval()
    nn.init.normal_(model.length.weight)
    with torch.no_grad():
        model.length.bias[6:] = -100.0
        model.length.bias[0] = 50.0  # no sentence is empty
    for norm in (model.encoder_norm, model.decoder_norm):
        nn.init.normal_(norm.bias)
    return model


@check(MaskPredict.embed, "Three changes")
def words_and_places() -> None:
    """Vectors of words and of positions are added, multiplied by the square root of their width, and dropped out."""
    model = small()
    model.dropout.forward = lambda y: y / 2  # stands for dropout
    both = model.embedding(SOURCE) + model.position.weight[:5]
    slips = {
        "the square root is missing": both / 2,
        "only the words are multiplied": (model.embedding(SOURCE) * 8**0.5 + model.position.weight[:5]) / 2,
    }
    equal(model.embed(SOURCE), both * 8**0.5 / 2, slips)


@check(MaskPredict.read, "Three changes")
def the_encoder_and_the_length() -> None:
    """The encoder's layers and its norm; lengths are scored from the average of the words, padding left out."""
    model, pad = small(), SOURCE == PAD
    x = model.embed(SOURCE)
    for layer in model.encoder:
        x = layer(x, src_key_padding_mask=pad)
    memory, lengths = model.read(SOURCE)
    equal(memory[~pad], model.encoder_norm(x)[~pad], {"the norm at the end is missing": x[~pad]})
    rows = [model.encoder_norm(x)[0].mean(0), model.encoder_norm(x)[1, :3].mean(0)]
    slips = {"padding is averaged, too": model.length(model.encoder_norm(x).mean(1))}
    equal(lengths, model.length(torch.stack(rows)), slips, names="scores of the lengths / got")


@check(MaskPredict.write, "Three changes")
def the_decoder_sees_both_sides() -> None:
    """The decoder's layers without a causal mask, its norm, and the table of the words."""
    model = small()
    memory = model.read(SOURCE)[0]
    pads = {"tgt_key_padding_mask": TARGET == PAD, "memory_key_padding_mask": SOURCE == PAD}

    def decoded(**more: object) -> torch.Tensor:
        x = model.embed(TARGET)
        for layer in model.decoder:
            x = layer(x, memory, **{**pads, **more})
        return model.decoder_norm(x) @ model.embedding.weight.T

    causal = torch.ones(4, 4, dtype=torch.bool).triu(1)
    slips = {
        "there is a causal mask": decoded(tgt_mask=causal)[TARGET != PAD],
        "padding of the source is read": decoded(memory_key_padding_mask=None)[TARGET != PAD],
        "padding of the target is read": decoded(tgt_key_padding_mask=None)[TARGET != PAD],
    }
    equal(model.write(memory, SOURCE, TARGET)[TARGET != PAD], decoded()[TARGET != PAD], slips)


@check(MaskPredict.forward, "Three changes")
def read_then_write() -> None:
    """The source is read, and all words of the target are scored."""
    model = small()
    equal(model(SOURCE, TARGET), model.write(model.read(SOURCE)[0], SOURCE, TARGET))


@check(hide, "Hide any number of words")
def from_one_to_all() -> None:
    """Each number of hidden words, from one to all, is as likely as the others; padding isn't counted."""
    rows = tensor([[4, 5, 6, 7, PAD, PAD]]).repeat(8000, 1)
    torch.manual_seed(0)
    counts = (hide(rows) == MASK).sum(1).bincount(minlength=5)[:5] / 8000
    told = ", ".join(f"{n}: {share:.2f}" for n, share in enumerate(counts.tolist()))
    slips = {"sometimes no word is hidden": bool(counts[0] > 0), "never are all words hidden": bool(counts[4] == 0)}
    holds(bool((counts[1:] - 0.25).abs().max() < 0.03), f"shares of the numbers of hidden words {told}", slips)


@check(hide, "Hide any number of words")
def any_place_but_padding() -> None:
    """Every place is hidden as often as the others; padding never; the other words stay as they are."""
    rows = torch.cat([tensor([[4, 5, 6, PAD, PAD]]), tensor([[4, 5, 6, 7, 8]])]).repeat(4000, 1)
    before = rows.clone()
    torch.manual_seed(0)
    hidden = hide(rows)
    equal(rows, before, names="the target that was given / afterwards")
    gone = hidden == MASK
    holds(not bool(gone[rows == PAD].any()), "padding was hidden")
    equal(hidden[~gone], rows[~gone], names="the words that aren't hidden, as they were / now")
    shares = gone[1::2].double().mean(0)
    holds(bool((shares - 0.6).abs().max() < 0.04), f"shares by place {[round(x, 2) for x in shares.tolist()]}")


@check(mask_predict_loss, "Hide any number of words")
def of_the_hidden_words_and_the_length() -> None:
    """The cross-entropy of the hidden words, smoothed, and a tenth of that of the lengths, not smoothed."""
    model, hidden = small(), tensor([[MASK, 14, MASK, 16], [17, MASK, PAD, PAD]])
    asked, sizes = hidden == MASK, tensor([4, 2])
    logits, lengths = model(SOURCE, hidden), model.read(SOURCE)[1]

    def words(which: torch.Tensor, smoothing: float = 0.1) -> torch.Tensor:
        return F.cross_entropy(logits[which], TARGET[which], label_smoothing=smoothing)

    extra = F.cross_entropy(lengths, sizes) / 10
    slips = {
        "all words are counted": words(TARGET != PAD) + extra,
        "the smoothing is missing": words(asked, 0.0) + extra,
        "the length is missing": words(asked),
        "the length counts as much as the words": words(asked) + 10 * extra,
        "the hidden words are shown": F.cross_entropy(model(SOURCE, TARGET)[asked], TARGET[asked], label_smoothing=0.1)
        + extra,
    }
    equal(mask_predict_loss(model, SOURCE, TARGET, hidden), words(asked) + extra, slips)


class Spy(nn.Module):
    """Scores from a table, by place and by what is hidden; it remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.randn(64, 8, 20)
        self.table[:, 6] *= 1.5  # sure of a seventh word
        self.table[:, 7] /= 10  # not of an eighth
        self.seen: list[torch.Tensor] = []

    def read(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Lengths 8, 6 and 7 are likely, and 0 is likelier, which no sentence can have."""
        lengths = torch.full((len(source), 64), -9.0)
        lengths[:, 0], lengths[:, 8], lengths[:, 6], lengths[:, 7] = 9.0, 4.0, 3.0, 2.0
        return torch.zeros(len(source), source.shape[1], 4), lengths

    def write(self, memory: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Other scores for each number of words that stand there already."""
        self.seen.append(target.clone())
        stand = ((target != MASK) & (target != PAD)).sum(1)
        scores = self.table[stand][:, : target.shape[1]].clone()
        scores[..., :4] += 9.0  # ids that are no words are likely
        return scores


def rounds(spy: Spy, steps: int, length: int) -> tuple[list[int], float, list[list[bool]]]:
    """The words of one sentence, their mean log-probability, and what was hidden in each pass."""
    words, sure, asked = [MASK] * length, [0.0] * length, []
    for step in range(steps):
        asked.append([word == MASK for word in words])
        stand = length - sum(asked[-1])
        log_p = spy.table[stand, :, 4:].log_softmax(-1)
        for i in range(length):
            if words[i] == MASK:
                words[i], sure[i] = int(log_p[i].argmax()) + 4, float(log_p[i].max())
        if step + 1 < steps:
            for i in sorted(range(length), key=sure.__getitem__)[: length * (steps - 1 - step) // steps]:
                words[i] = MASK
    return words, sum(sure) / length, asked


@check(mask_predict, "Write, doubt, write again")
def fewer_are_hidden_each_time() -> None:
    """All words are hidden first; after pass t, T (N - t) / N of them, rounded down; after the last none."""
    spy = Spy()
    found = mask_predict(spy, SOURCE[:1], 4, n_lengths=1)
    counts = [int((seen == MASK).sum()) for seen in spy.seen]
    slips = {"the same number each time": counts[1:] == [counts[1]] * 3, "t counts from 0": counts == [8, 8, 6, 4]}
    holds(counts == [8, 6, 4, 2], f"hidden in the four passes: {counts}, expected [8, 6, 4, 2]", slips)
    holds(not bool((found == MASK).any()), "a word is still hidden at the end")


@check(mask_predict, "Write, doubt, write again")
def the_least_certain_are_written_again() -> None:
    """The least certain words are hidden again; the others keep their words and their old log-probabilities."""
    spy = Spy()
    found = mask_predict(spy, SOURCE[:1], 4, n_lengths=1)
    words, _, asked = rounds(spy, 4, 8)
    for seen, expected in zip(spy.seen, asked, strict=True):
        equal((seen == MASK)[0], tensor(expected), names="what should be hidden in a pass / is hidden")
    equal(found[0, :8], tensor(words))


@check(mask_predict, "Write, doubt, write again")
def the_best_of_several_lengths() -> None:
    """Of the likely lengths, the one with the highest average log-probability wins; length 0 is never tried."""
    spy = Spy()
    found = mask_predict(spy, SOURCE, 3, n_lengths=3)
    tried = {n: rounds(spy, 3, n)[:2] for n in (8, 6, 7)}
    best = max(tried, key=lambda n: tried[n][1])
    length = (found != PAD).sum(1).tolist()
    summed = max(tried, key=lambda n: tried[n][1] * n)
    slips = {
        "the sum decides, not the average": best != summed and length == [summed] * 2,
        "the likeliest length is taken": best != 8 and length == [8, 8],
    }
    holds(length == [best, best], f"lengths {length}, expected {[best, best]}", slips)
    for row in found:
        equal(row[:best], tensor(tried[best][0]))


@check(mask_predict, "Write, doubt, write again")
def each_sentence_for_itself() -> None:
    """A sentence gets the same translation alone as beside others, and no row holds a special id."""
    model = small()
    together = mask_predict(model, SOURCE, 3, n_lengths=3)
    for row, source in zip(together, SOURCE, strict=True):
        alone = mask_predict(model, source[source != PAD][None], 3, n_lengths=3)[0]
        equal(row[row != PAD], alone[alone != PAD])
    words = together[together != PAD]
    holds(bool((words > MASK).all()), f"ids {sorted(set(words.tolist()))} hold some that are no words")
