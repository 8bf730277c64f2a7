"""Tests for chapter "Latent attention"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.plain.latent_attention import AddPositions, IfThen, LatentAttention, OneStep, SelfAttention
from transformer_lib.student.checks import check, equal, same

MASK = tensor([[True] * 4, [True] * 2 + [False] * 2])
TOKENS = tensor([[4, 5, 6, 2], [7, 2, 0, 0]])


def visible(scores: torch.Tensor, axis: int = -1) -> torch.Tensor:
    """A softmax without padding, which stands along the last axis."""
    mask = MASK[(slice(None), *[None] * (scores.dim() - 2))]
    return scores.masked_fill(~mask, -1e9).softmax(axis)


@check(OneStep.forward, "One look isn't enough")
def one_learned_query_for_each_part() -> None:
    """The weights (B, H, S) are the softmax of the learned queries' dot products with the words; padding gets none."""
    one, words = OneStep(6, 3), randn(2, 4, 6)
    scores = torch.einsum("hd,bsd->bhs", one.query, words)
    slips = {"the mask is not used": scores.softmax(-1), "Softmax along the wrong axis": scores.softmax(1)}
    equal(one(words, MASK), visible(scores), slips)


@check(AddPositions.forward, "One look isn't enough")
def a_vector_for_each_place() -> None:
    """To each word the vector of its place is added, from the first on."""
    add, words = AddPositions(6, 9), randn(2, 4, 6)
    slips = {
        "the vectors of the last places": words + add.positions[-4:],
        "the words are lost": add.positions[:4] + 0 * words,
    }
    equal(add(words, MASK), words + add.positions[:4], slips)


@check(LatentAttention.decide, "Attention in two steps")
def which_words_decide() -> None:
    """The latent weights (B, H, S) are the softmax of the learned queries' dot products with the words."""
    latent, words = LatentAttention(6, 3, 5), randn(2, 4, 6)
    scores = torch.einsum("hd,bsd->bhs", latent.query, words)
    slips = {"the mask is not used": scores.softmax(-1), "Softmax along the wrong axis": scores.softmax(1)}
    equal(latent.decide(words, MASK), visible(scores), slips)


@check(LatentAttention.point, "Attention in two steps")
def where_each_word_points() -> None:
    """Column s of the active weights (B, H, S, S) is the softmax, over places, of word s's scores: it sums to 1."""
    latent, words = LatentAttention(6, 3, 5), randn(2, 4, 6)
    scores = torch.einsum("bsd,hkd->bhsk", words, latent.positions[:, :4])  # a row for each word
    slips = {
        "rows and columns exchanged": visible(scores),
        "the softmax is over the words, not over the places": visible(scores.mT),
        "the mask is not used": scores.softmax(-1).mT,
    }
    equal(latent.point(words, MASK), visible(scores).mT, slips)


@check(LatentAttention.forward, "Attention in two steps")
def two_steps() -> None:
    """The final weights (B, H, S) are the active ones, averaged with the latent ones; padding gets none."""
    attention, words = LatentAttention(6, 3, 5), randn(2, 4, 6)
    latent, active = attention.decide(words, MASK), attention.point(words, MASK)
    got = attention(words, MASK)
    wrong = torch.einsum("bhks,bhk->bhs", active, latent)
    equal(got, torch.einsum("bhks,bhs->bhk", active, latent), {"Active weights the wrong way round": wrong})
    equal(got[1, :, 2:], torch.zeros(3, 2))


def model(encoder: nn.Module | None = None) -> IfThen:
    """A small model."""
    return IfThen(11, (5, 3), LatentAttention(6, 2), encoder, d_model=6).eval()


@check(IfThen.forward, "One look isn't enough")
def a_classifier_for_each_part() -> None:
    """Each part's logits come from its own classifier and its own weights, divided by their length."""
    one = model()
    words, mask = one.dropout(one.embedding(TOKENS)), TOKENS != 0
    weights = one.attention(words, mask)
    read = weights / weights.norm(dim=-1, keepdim=True) @ words
    want = tuple(f(read[:, i]) for i, f in enumerate(one.classifiers))
    slips = {
        "the weights are not divided by their length": tuple(
            f((weights @ words)[:, i]) for i, f in enumerate(one.classifiers)
        ),
        "all parts read with the first one's weights": tuple(f(read[:, 0]) for f in one.classifiers),
    }
    equal(tuple(one(TOKENS)), want, slips)


@check(IfThen.forward, "One look isn't enough")
def words_go_through_the_encoder_first() -> None:
    """If there is an encoder, the words and the mask go through it, and what it returns is attended to and read.

    Dropout acts on the embedded words, before the encoder.
    """
    one = model(AddPositions(6))
    plain = IfThen(11, (5, 3), one.attention, None, d_model=6).eval()
    plain.load_state_dict(one.state_dict(), strict=False)
    mask = TOKENS != 0
    words = one.encoder(one.dropout(one.embedding(TOKENS)), mask)
    weights = one.attention(words, mask)
    read = weights / weights.norm(dim=-1, keepdim=True) @ words
    want = tuple(f(read[:, i]) for i, f in enumerate(one.classifiers))
    equal(tuple(one(TOKENS)), want, {"the encoder is not used": tuple(plain(TOKENS))})


@check(SelfAttention.forward, "Self-attention does it, too")
def words_that_meet() -> None:
    """Words with positions, plus the averages of their values, weighted by the softmax of q . k / sqrt(D)."""
    layer, words = SelfAttention(6, 9), randn(2, 4, 6)
    x = words + layer.positions[:4]
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    scores = q @ k.mT
    want = x + visible(scores / 6**0.5) @ v
    slips = {
        "the words themselves are lost": want - x,
        "the scores are not divided": x + visible(scores) @ v,
        "the mask is not used": x + (scores / 6**0.5).softmax(-1) @ v,
        "keys ask queries": x + visible(scores.mT / 6**0.5) @ v,
        "Softmax along the wrong axis": x + visible(scores / 6**0.5, 1) @ v,
        "there are no positions": same(layer(words.flip(1), MASK[:1].expand(2, 4))[0], layer(words, MASK)[0].flip(0)),
    }
    equal(layer(words, MASK), want, slips)
