"""Tests for chapter "BERT"."""

import torch
from torch import tensor
from torch.nn import functional as F

from transformer_lib.models.bert import Bert, BertClassifier, BertConfig, mask_tokens
from transformer_lib.student.checks import check, equal, holds, refuses

SIZES = BertConfig(20, d_model=8, n_heads=2, n_layers=2, d_ff=16, dropout=0.0, attention_dropout=0.0)
TOKENS = tensor([[1, 5, 6, 7, 2], [1, 8, 2, 0, 0]])


def bert() -> Bert:
    """A small model."""
    return Bert(SIZES).eval()


@check(Bert.encode, "The model")
def three_tables() -> None:
    """Vectors of tokens, segments and positions are added, normalised, dropped out, and encoded; padding is masked."""
    model = bert()
    mask, segments = (TOKENS != 0)[:, None, None], tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    x = model.token_embedding(TOKENS) + model.segment_embedding(segments) + model.positions.weight[:5]
    y = model.dropout(model.norm(x))
    slips = {
        "the norm of the embeddings is missing": model.encoder(x, mask),
        "the padding is not masked": model.encoder(y),
        "True means the opposite": model.encoder(y, ~mask),
    }
    equal(model.encode(TOKENS, segments), model.encoder(y, mask), slips)


@check(Bert.encode, "The model")
def another_mask() -> None:
    """A given mask stands in for that of the padding, and a token outside the vocabulary raises a ValueError."""
    model, other = bert(), TOKENS.clone()
    other[:, 1] = 9
    mask = torch.arange(5)[None, None, None] != 1
    one, two = (model.encode(tokens, mask=mask)[:, 2:] for tokens in (TOKENS, other))
    equal(two, one, names="a masked token / the same, changed")
    refuses(ValueError, model.encode, TOKENS + 18)


@check(Bert.encode, "The model")
def both_sides() -> None:
    """A vector depends on the words on both its sides: there is no causal mask."""
    model, other = bert(), TOKENS.clone()
    other[0, 3] = 9
    apart = (model.encode(other) - model.encode(TOKENS))[0, 1].abs().max()
    holds(apart > 1e-6, f"the vector of word 1 moved by {float(apart.detach()):.1e} when word 3 changed")


@check(Bert.encode, "The model")
def padding_changes_nothing() -> None:
    """A sentence gives the same vectors alone as beside a longer one."""
    model = bert()
    equal(model.encode(TOKENS)[1:, :3], model.encode(TOKENS[1:, :3]))


@check(Bert.logits, "The model")
def a_transform_then_the_table() -> None:
    """Vectors are transformed, activated and normalised before they meet the table of words."""
    model, x = bert(), torch.randn(2, 5, 8)
    inside = model.transform(x)
    slips = {
        "the activation is missing": model.output(model.transform_norm(inside)),
        "the norm comes before the activation": model.output(F.gelu(model.transform_norm(inside))),
    }
    equal(model.logits(x), model.output(model.transform_norm(F.gelu(inside))), slips)


@check(Bert.forward, "The model")
def logits_everywhere() -> None:
    """There are logits of every word at every position."""
    model = bert()
    equal(model(TOKENS), model.logits(model.encode(TOKENS)))


ROWS = torch.randint(4, 19, (400, 50), generator=torch.Generator().manual_seed(0))


def hide(tokens: torch.Tensor, share: float = 0.15) -> tuple[torch.Tensor, torch.Tensor]:
    """Hide words with a fixed seed."""
    return mask_tokens(tokens, 19, share=share, rng=torch.Generator().manual_seed(1))


@check(mask_tokens, "Hide the word instead")
def a_share_of_the_words() -> None:
    """About 15 % of the words are chosen, and words that are not chosen stay."""
    hidden, chosen = hide(ROWS)
    share = float(chosen.float().mean())
    holds(0.14 < share < 0.16, f"share {share:.3f}")
    equal(hidden[~chosen], ROWS[~chosen])


@check(mask_tokens, "Hide the word instead")
def eighty_ten_ten() -> None:
    """Of the chosen words, 80 % become the mask token, 10 % another word, and 10 % stay."""
    hidden, chosen = hide(ROWS, 0.5)
    masked, kept = float((hidden[chosen] == 19).float().mean()), float((hidden[chosen] == ROWS[chosen]).float().mean())
    numbers = f"masked {masked:.3f}, the same {kept:.3f}, another {1 - masked - kept:.3f}"
    slips = {"the words that stay are not there": kept < 0.02, "all chosen words are masked": masked > 0.99}
    holds(abs(masked - 0.8) < 0.02 and abs(kept - 0.107) < 0.02, numbers, slips)


@check(mask_tokens, "Hide the word instead")
def special_tokens_stay() -> None:
    """Padding, BOS, EOS and UNK are never chosen, and never put in the place of a word."""
    rows = TOKENS.repeat(300, 1)
    hidden, chosen = hide(rows, 0.9)
    equal(hidden[rows < 4], rows[rows < 4])
    holds(not chosen[rows < 4].any() and (hidden[chosen] >= 4).all(), "a special token was chosen, or drawn")
    hidden, chosen = mask_tokens(ROWS, 3, words=range(8, 16), share=0.9, rng=torch.Generator().manual_seed(1))
    special, drawn = (ROWS < 8) | (ROWS >= 16), hidden[chosen & (hidden != 3)]
    holds(not chosen[special].any(), "a token outside of `words` was chosen")
    equal([int(drawn.min()), int(drawn.max())], [8, 15], names="first and last of the words / drawn")


@check(BertClassifier.forward, "A few hundred labels")
def by_its_first_position() -> None:
    """The first vector goes through the pooler, tanh and a dropout, and then to the classes."""
    model = BertClassifier(bert(), 3).eval()
    x = model.bert.encode(TOKENS)
    want, mean = (model.classifier(model.dropout(model.pooler(y).tanh())) for y in (x[:, 0], x.mean(1)))
    slips = {"tanh is missing": model.classifier(model.pooler(x[:, 0]))}
    equal(model(TOKENS), want, slips | {"the mean of all positions": mean})
