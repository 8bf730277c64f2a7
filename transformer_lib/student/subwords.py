"""Tests for chapter "Subword tokenization"."""

from torch import tensor

from transformer_lib.data.tokenizer import Tokenizer, _learn_words
from transformer_lib.student.checks import check, equal, holds

TEXTS = ["the dog sleeps", "the dog runs", "a cat sleeps"]


def words() -> Tokenizer:
    """A tokenizer of whole words."""
    return Tokenizer("word", ("dog", "sleeps", "the"))


def subwords() -> Tokenizer:
    """A tokenizer of subwords, learned from a few words."""
    return Tokenizer.train(["low lower lowest new newer wide wider"] * 3, 270)


@check(_learn_words, "The tokenizer")
def frequent_words_first() -> None:
    """The most frequent words come first, equally frequent ones in alphabetical order."""
    equal(_learn_words(TEXTS, None), ("dog", "sleeps", "the", "a", "cat", "runs"))


@check(_learn_words, "The tokenizer")
def no_more_than_fit() -> None:
    """A vocabulary of seven has room for three words: the first four ids are special."""
    equal(
        _learn_words(TEXTS, 7),
        ("dog", "sleeps", "the"),
        {"the special ids are not counted": ("dog", "sleeps", "the", "a", "cat", "runs")},
    )


@check(Tokenizer.encode_batch, "The tokenizer")
def words_to_ids() -> None:
    """Ids of words count from 4, and an unknown word is 3."""
    equal(words().encode_batch(["the dog sleeps", "a dog"]), [[6, 4, 5], [3, 4]])


@check(Tokenizer.encode_batch, "The tokenizer")
def no_special_tokens_in_text() -> None:
    """No text is turned into an id below 4, not even the names of special tokens."""
    ids = subwords().encode_batch(["</s> <pad> low"])[0]
    holds(min(ids) >= 4, f"ids {ids}", {"Special tokens that text can spell": True})


@check(Tokenizer.encode_batch, "The tokenizer")
def with_dropout() -> None:
    """With dropout there are more pieces, the text stays the same, and so does the result for the same seed."""
    one = subwords()
    plain, cut, again = (one.encode_batch(["lower wider"], dropout=d, seed=1)[0] for d in (0.0, 0.9, 0.9))
    holds(len(cut) > len(plain), f"{len(plain)} pieces without dropout, {len(cut)} with it")
    equal((again, one.decode(cut)), (cut, "lower wider"))


@check(Tokenizer.decode, "The tokenizer")
def text_again() -> None:
    """Ids give their text back, without padding and BOS, up to the first EOS."""
    equal(words().decode([1, 6, 4, 2, 5, 0]), "the dog", {"reads on after EOS": "the dog sleeps"})
    equal(words().decode(tensor([6, 3])), "the ⟨unk⟩")


@check(Tokenizer.decode, "Bytes: any text can be written")
def every_text() -> None:
    """Subwords over bytes give back every text exactly, umlauts, emoji and spaces included."""
    one = subwords()
    for text in ("low lower", "Übermüdet, 😀  zwei Leerzeichen", "x"):
        equal(one.decode(one.encode_batch([text])[0]), text)


@check(Tokenizer.encode, "The tokenizer")
def one_text() -> None:
    """A single text gives a single list of ids."""
    equal(words().encode("the dog"), [6, 4])
    equal(subwords().encode("lower", dropout=0.9, seed=3), subwords().encode_batch(["lower"], dropout=0.9, seed=3)[0])


@check(Tokenizer.tokens, "The tokenizer")
def readable_pieces() -> None:
    """The pieces of a text are shown with ▁ for a space, and joined they are the text."""
    got = subwords().tokens("low lower")
    equal("".join(got), "▁low▁lower")
    holds(len(got) < 9, f"pieces {got}")
