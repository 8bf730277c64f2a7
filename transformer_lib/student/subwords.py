"""Tests for chapter "Subword tokenization"."""

import random

from transformer_lib.plain.subwords import (
    byte_letters,
    count_pairs,
    cut,
    cut_at_random,
    cut_word,
    join,
    learn_merges,
    text_of,
    words,
)
from transformer_lib.student.checks import check, equal, holds

COUNTS = {"hund": 5, "hunde": 4, "rund": 3, "runde": 3, "hundert": 2}
MERGES = [("n", "d"), ("u", "nd"), ("h", "und"), ("r", "und"), ("hund", "e"), ("rund", "e"), ("r", "t")]
RANK = {pair: place for place, pair in enumerate(MERGES)}
TEXTS = ("low lower", "Übermüdet, 😀  zwei Leerzeichen", "don't!", " a\nb ", "x", "")


@check(count_pairs, "In between: byte-pair encoding")
def pairs_count_with_their_words() -> None:
    """A pair counts as often as its word occurs, and twice if the word has it twice; words add up."""
    found = count_pairs({"hund": ["h", "und"], "hundhund": ["h", "und", "h", "und"]}, {"hund": 5, "hundhund": 2})
    equal(
        dict(found), {("h", "und"): 9, ("und", "h"): 2}, {"each word counts once": {("h", "und"): 3, ("und", "h"): 1}}
    )


@check(join, "In between: byte-pair encoding")
def every_occurrence() -> None:
    """Every occurrence of the pair is joined, from left to right, and the other pieces stay."""
    equal(join(list("anana"), ("a", "n")), ["an", "an", "a"], {"only the first": ["an", "a", "n", "a"]})
    equal(join(list("aaa"), ("a", "a")), ["aa", "a"], {"from right to left": ["a", "aa"]})
    equal(join(["ab", "c"], ("a", "bc")), ["ab", "c"], {"another pair of the same letters": ["abc"]})


@check(learn_merges, "In between: byte-pair encoding")
def the_merges_of_the_page() -> None:
    """The page's words give its first seven merges; of equally frequent pairs, the one with the older pieces wins."""
    slips = {"pairs that occur once are joined, too": [*MERGES, ("hunde", "rt")]}
    equal(learn_merges({**COUNTS, "hundert": 1}, 20), [*MERGES[:-1]], slips)
    equal(learn_merges(COUNTS, 7), MERGES)


@check(learn_merges, "In between: byte-pair encoding")
def ties() -> None:
    """Of equally frequent pairs, the one whose first piece is older wins, then the second; letters by the alphabet."""
    equal(learn_merges({"ba": 2, "bc": 2, "ca": 2}, 2), [("b", "a"), ("b", "c")])
    equal(learn_merges({"xyz": 3, "ab": 3}, 2)[0], ("a", "b"))
    equal(learn_merges({"cdab": 4, "dabc": 2}, 3), [("a", "b"), ("d", "ab"), ("c", "dab")])


@check(learn_merges, "In between: byte-pair encoding")
def no_more_than_asked_for() -> None:
    """There are at most n_merges merges, and none of pairs that occur once."""
    equal(learn_merges(COUNTS, 3), MERGES[:3])
    equal(learn_merges({"ab": 1, "cd": 1}, 5), [])
    equal(learn_merges({"a": 9}, 5), [])


@check(cut_word, "In between: byte-pair encoding")
def in_the_order_of_learning() -> None:
    """Of all pairs in the word, the one that was learned first is joined first."""
    equal(cut_word("runder", RANK), ["runde", "r"])
    equal(cut_word("hundert", RANK), ["hunde", "rt"])
    equal(cut_word("unter", RANK), list("unter"))
    rank = {("b", "c"): 0, ("a", "b"): 1, ("ab", "c"): 2}
    equal(cut_word("abc", rank), ["a", "bc"], {"from left to right, not in the order of learning": ["abc"]})


@check(byte_letters, "Bytes: any text can be written")
def a_letter_for_each_byte() -> None:
    """Each of the 256 bytes has its own visible letter: itself, if it is one, or the next from code 256 on."""
    found = byte_letters()
    equal((sorted(found), len({*found.values()})), ([*range(256)], 256))
    equal([found[b] for b in (65, 32, 0, 195, 173)], ["A", "Ġ", "Ā", "Ã", "Ń"])


@check(words, "Bytes: any text can be written")
def with_the_space_before() -> None:
    """Letters, digits and signs are words of their own, each with the space before it; the text begins with a space."""
    want = ["Ġdon", "'t", "Ġpay", "Ġ20", "âĤ¬"]
    equal(words("don't pay 20€"), want, {"no space in front": ["don", *want[1:]]})
    equal(words("a  b_c "), ["Ġa", "Ġ", "Ġb", "_", "c", "Ġ"])
    equal(words(""), [])


@check(cut, "Bytes: any text can be written")
def words_one_by_one() -> None:
    """The words are cut one after the other, and no piece crosses the border between two of them."""
    merges = [("Ġ", "a"), ("a", "b"), ("b", "Ġ"), ("Ġa", "b")]
    equal(cut("ab ab", merges), ["Ġab", "Ġab"])
    equal(cut("b a", [("b", "Ġ")]), ["Ġ", "b", "Ġ", "a"], {"a piece across the border": ["Ġ", "bĠ", "a"]})


@check(text_of, "Bytes: any text can be written")
def every_text_comes_back() -> None:
    """Pieces give their text back exactly, umlauts, emoji and spaces included, and half a character becomes �."""
    for text in TEXTS:
        equal(text_of(cut(text, MERGES)), text)
    equal(text_of(cut("ä", [])[:-1]), "�")


@check(cut_at_random, "Typing errors and BPE-dropout")
def without_skipping_as_before() -> None:
    """With a probability of 0, a word is cut as ever, and with 1, into its letters."""
    for word in (*COUNTS, "runder", "unter"):
        equal(cut_at_random(word, RANK, 0.0, random.Random(0)), cut_word(word, RANK))
        equal(cut_at_random(word, RANK, 1.0, random.Random(0)), list(word))
    slips = {"from left to right, not in the order of learning": ["ab", "c"]}
    equal(cut_at_random("abc", {("b", "c"): 0, ("a", "b"): 1}, 0.0, random.Random(0)), ["a", "bc"], slips)


@check(cut_at_random, "Typing errors and BPE-dropout")
def each_merge_by_itself() -> None:
    """Each possible merge is skipped by a draw of its own from ``rng``, anew in every step."""
    rng = random.Random(0)
    found = [cut_at_random("und", RANK, 0.5, rng) for _ in range(4000)]
    rng = random.Random(0)
    again = [cut_at_random("und", RANK, 0.5, rng) for _ in range(50)]
    equal(again, found[:50], {"`rng` is not used": True}, "drawn with a generator / with the same one again")
    whole, two = (sum(len(one) == n for one in found) / 4000 for n in (1, 2))
    # n+d is joined in the first step with 1/2, and u+nd after it with 1/2
    holds(abs(whole - 0.25) < 0.03 and abs(two - 0.25) < 0.03, f"one piece in {whole:.2f}, two in {two:.2f}")
    other = cut_at_random("ndnd", {("n", "d"): 0}, 0.5, random.Random(4))
    equal("".join(other), "ndnd")
