"""Everyday sentences of Tatoeba, and what else a translator for visitors should have seen: names, words, captions."""

import gzip
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.files import Folder, read_table

__all__ = ["dictionary", "load_everyday", "other_names", "visitors_corpus"]

PARTS = ("train", "val", "test")
PHRASES = read_table("phrases")  # a phrase book, and the names that take the place of others


def load_everyday(part: str, directory: Folder = None) -> list[Pair]:
    """English and German sentences of Tatoeba, without duplicates, none of them in two parts.

    Args:
        part: "train" (165,866 pairs), "val" or "test" (1,000 each).
        directory: a folder that has ``everyday/train.en-de.tsv.gz`` and so on; None: ``TRANSFORMER_LIB_DATA``.

    Raises:
        FileNotFoundError: there is no such file; the message says where the sentences come from.
        ValueError: an unknown part.

    Source: tatoeba.org, by way of manythings.org/anki (2018), CC BY 2.0 FR.
    """
    if part not in PARTS:
        raise ValueError(f"part={part!r} must be one of {', '.join(PARTS)}")
    folder = Path(directory or os.environ.get("TRANSFORMER_LIB_DATA") or ".").expanduser() / "everyday"
    path = folder / f"{part}.en-de.tsv.gz"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: name its folder in TRANSFORMER_LIB_DATA, or train on deu.txt of manythings.org/anki"
        )
    rows = gzip.decompress(path.read_bytes()).decode("utf-8").removesuffix("\n").split("\n")
    return [Pair(source, target) for source, target in (row.split("\t") for row in rows)]


def words(text: str) -> list[str]:
    """The words of a text, without the punctuation around them."""
    return re.findall(r"\w+(?:['’-]\w+)*", text)


def dictionary(pairs: Iterable[Pair], at_least: int = 4, dice: float = 0.4) -> list[Pair]:
    """Words that translate each other: those that choose each other by the Dice coefficient of their sentences.

    Source: Dice (1945); Melamed (2000) for pairs that choose each other.
    """
    both, left, right = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for pair in pairs:
        # each word once
        english, german = ([*dict.fromkeys(words(x))] for x in (pair.source, pair.target))
        left.update(english)
        right.update(german)
        both.update((e, d) for e in english for d in german)
    best: tuple[dict[str, tuple[float, str]], ...] = ({}, {})
    for (e, d), n in both.items():
        score = 2 * n / (left[e] + right[d])
        if n >= at_least and score >= dice:
            best[0][e] = max(best[0].get(e, (0.0, "")), (score, d))
            best[1][d] = max(best[1].get(d, (0.0, "")), (score, e))
    return [Pair(e, d) for e, (_, d) in best[0].items() if best[1][d][1] == e]


def other_names(pair: Pair, generator: random.Random) -> Pair:
    """The pair with other people in it: the corpus knows hardly anybody but Tom and Mary, in Boston."""
    texts = [pair.source, pair.target]
    for english, german, kind in PHRASES["exchanged"]:
        new = (2 * generator.choice(PHRASES[kind]))[:2]  # most names are alike in both languages
        patterns = [re.compile(rf"\b{name}(?=s?\b)") for name in (english, german)]
        if all(map(re.Pattern.search, patterns, texts)):
            texts = [*map(re.Pattern.sub, patterns, new, texts)]
    return Pair(texts[0], texts[1])


def visitors_corpus(pairs: list[Pair], seed: int = 0) -> Iterator[Pair]:
    """What the translator of the first page learns from.

    The sentences, a third of the names exchanged; short sentences and single words three times; one in thirty in
    capitals; a phrase book twenty times; and 20,000 generated captions as people write them.
    """
    generator = random.Random(seed)
    for pair in pairs:
        yield other_names(pair, generator) if generator.random() < 0.35 else pair
        if generator.random() < 0.03:
            yield Pair(pair.source.upper(), pair.target)
        if len(pair.source.split()) <= 3:
            yield pair
            yield other_names(pair, generator)
    for entry in dictionary(pairs):
        yield from (entry, entry, Pair(f"{entry.source}.", f"{entry.target}."))
    yield from (Pair(source, target) for source, target in PHRASES["phrases"] * 20)
    for caption in make_captions(20_000, seed=seed, simple=0.3):
        source, target = (text.replace(" ,", ",") for text in (caption.source, caption.target))
        yield Pair(source[0].upper() + source[1:] + ".", target[0].upper() + target[1:] + ".")
