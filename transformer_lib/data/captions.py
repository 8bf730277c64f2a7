"""Captions: English sentences that a grammar writes together with their German translations."""

from transformer_lib.data.batching import Pair
from transformer_lib.data.grammar import SIMPLE, SLOTS, DeadEnd, Slot, Text, Writer, tidy, write_caption

__all__ = ["make_captions"]


def finish(text: Text, referents: list[tuple[int, int]]) -> Pair:
    """The finished pair: words that share a label translate each other."""
    german = tidy(text.german)
    where: dict[int, list[int]] = {}
    for j, (_, labels) in enumerate(german):
        for label in labels:
            where.setdefault(label, []).append(j)
    place, links = {}, []
    for i, (_, labels) in enumerate(text.english):
        place.update(dict.fromkeys(labels, i))
        links += [(i, j) for j in sorted({j for x in labels for j in where.get(x, ())})]
    source, target = (" ".join(word for word, _ in words) for words in (text.english, german))
    spoken_of = tuple((place[it], place[noun]) for it, noun in referents)
    return Pair(source, target, tuple(links), spoken_of)


SHORTEST, LONGEST = 3, 60
NATURAL = SLOTS["natural"]


def length_choices(min_length: int | None, max_length: int | None) -> Slot:
    """The lengths to draw from: all alike in a range, else the natural mixture."""
    if min_length is None and max_length is None:
        return NATURAL
    low = min(4, max_length or 4) if min_length is None else min_length
    high = max(20, low) if max_length is None else max_length
    if not (type(low) is type(high) is int and SHORTEST <= low <= high <= LONGEST):
        raise ValueError(f"{min_length=} and {max_length=}: captions have {SHORTEST} to {LONGEST} words")
    return tuple((length, 1) for length in range(low, high + 1))


def make_captions(
    n: int,
    seed: int,
    *,
    min_length: int | None = None,
    max_length: int | None = None,
    simple: float = 0.0,
) -> list[Pair]:
    """Write distinct English captions with German translations and gold alignments.

    The same arguments give the same captions on every machine, and a smaller ``n`` gives the first
    of them. English is in lower case; commas are words of their own. No English caption has two
    translations.

    Args:
        n: how many.
        seed: zero or more; another seed gives other captions, some of them the same.
        min_length: the smallest number of English words, 3 or more.
        max_length: the largest, at most 60. All lengths of a range are drawn alike; without a
            range, 4 to 20 words are mixed as in everyday text.
        simple: the share of simple sentences and noun phrases, such as "the street is wide", "there
            is a dog" and "the small dog", of 1 to 14 words. With a range they keep to it.

    Returns:
        Pairs with ``alignment``, and with ``referents`` where a caption holds "it".

    Raises:
        ValueError: a number out of range, or more captions than there are.

    Example:
        >>> pair = make_captions(1, seed=3)[0]
        >>> print(pair.source, "|", pair.target)
        a fox quickly jumps over the wall | ein Fuchs springt schnell über die Mauer
    """
    if not (type(n) is type(seed) is int and min(n, seed) >= 0 and 0 <= simple <= 1):
        raise ValueError(f"{n=}, {seed=}, {simple=}: expected whole numbers from 0, and a share")
    choices = length_choices(min_length, max_length)
    limits = (1, LONGEST) if choices is NATURAL else (choices[0][0], choices[-1][0])
    w, captions, repeats = Writer(seed), dict[str, Pair](), 0
    while len(captions) < n:
        pair = write_pair(w, choices, limits, simple)
        repeats = repeats + 1 if pair.source in captions else 0
        captions.setdefault(pair.source, pair)
        if repeats == 300:
            raise ValueError(
                f"{n=} is more than the {len(captions)} captions of {choices[0][0]} to {choices[-1][0]} words"
            )
    return list(captions.values())


def write_pair(w: Writer, choices: Slot, limits: tuple[int, int], simple: float) -> Pair:
    """One caption; a simple one that is too short or too long makes room for another."""
    while True:
        w.begin()
        try:
            if simple and w.random() < simple:
                text = w.attempt(w.weighted(SIMPLE))
                if limits[0] <= len(text.english) <= limits[1]:
                    return finish(text, w.referents)
                w.begin()
            return finish(write_caption(w, w.weighted(choices)), w.referents)
        except DeadEnd:
            continue
