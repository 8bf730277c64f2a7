"""Everyday sentences, and what else a translator for visitors should have seen: names, words, patterns, captions."""

import gzip
import hashlib
import math
import os
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from transformer_lib.data.batching import Pair
from transformer_lib.data.captions import make_captions
from transformer_lib.data.files import Folder, read_table

__all__ = ["dictionary", "fill_patterns", "load_everyday", "other_names", "visitors_corpus"]

PARTS = ("train", "aside", "more", "stories", "val", "test")
PHRASES = read_table("phrases")  # a phrase book, and the names that take the place of others


def load_everyday(part: str, directory: Folder = None) -> list[Pair]:
    """English and German sentences, mostly of Tatoeba, without duplicates.

    No sentence of "val", "test" or "aside" is in another part. Nobody trains on the pairs of "aside" or looks at them,
    so that a finished translator can be tried on sentences by which nothing was ever chosen.

    Args:
        part: "train" (164,866 pairs); "aside" (1,000 of the same, see ``kept_aside``); "more" (short sentences of a
            later year); "stories" (picture stories for children); "val" or "test" (1,000 each).
        directory: a folder that has ``everyday/train.en-de.tsv.gz`` and so on; None: ``TRANSFORMER_LIB_DATA``.

    Raises:
        FileNotFoundError: there is no such file; the message says where the sentences come from.
        ValueError: an unknown part, or a file that is damaged.

    Source: tatoeba.org, by way of manythings.org/anki (2018 and 2020), CC BY 2.0 FR; the African and the Global
        Storybooks, CC BY 4.0.
    """
    if part not in PARTS:
        raise ValueError(f"part={part!r} must be one of {', '.join(PARTS)}")
    if part in ("val", "test"):
        return read_part(part, directory)
    train = read_part("train", directory)
    aside = kept_aside(train)
    if part == "aside":
        return [pair for pair in train if pair in aside]
    known = {plain(text) for pair in aside for text in (pair.source, pair.target)}
    pairs = train if part == "train" else read_part(part, directory)
    return [pair for pair in pairs if not {plain(pair.source), plain(pair.target)} & known]


def read_part(name: str, directory: Folder) -> list[Pair]:
    """The pairs of a file."""
    folder = Path(directory or os.environ.get("TRANSFORMER_LIB_DATA") or ".").expanduser() / "everyday"
    path = folder / f"{name}.en-de.tsv.gz"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: name the folder above everyday in TRANSFORMER_LIB_DATA, or train on deu.txt of "
            "manythings.org/anki"
        )
    try:
        rows = gzip.decompress(path.read_bytes()).decode("utf-8").removesuffix("\n").split("\n")
        return [Pair(source, target) for source, target in (row.split("\t") for row in rows)]
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is not English and German with a tab in between, packed by gzip: {error}") from error


def words(text: str) -> list[str]:
    """The words of a text, without the punctuation around them."""
    return re.findall(r"\w+(?:['’-]\w+)*", text)


def plain(text: str) -> str:
    """A sentence without case and punctuation."""
    return " ".join(words(text.lower()))


def kept_aside(train: list[Pair], n: int = 1000) -> set[Pair]:
    """The n pairs with the lowest hashes of those whose sentences stand in no other pair, in neither language."""
    count = Counter(side for pair in train for side in (f"en {plain(pair.source)}", f"de {plain(pair.target)}"))
    alone = [pair for pair in train if count[f"en {plain(pair.source)}"] == count[f"de {plain(pair.target)}"] == 1]
    return set(sorted(alone, key=lambda pair: hashlib.sha256(f"aside {pair.source}".encode()).digest())[:n])


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


def invented_name(generator: random.Random) -> str:
    """A name that nobody has: a translator should copy it."""
    return "".join(generator.choice(PHRASES["syllables"])[0] for _ in range(generator.choice((2, 2, 3)))).capitalize()


def other_names(pair: Pair, generator: random.Random) -> Pair:
    """The pair with other people in it: the corpus knows hardly anybody but Tom and Mary, in Boston."""
    texts = [pair.source, pair.target]
    for english, german, kind in PHRASES["exchanged"]:
        new = (2 * generator.choice(PHRASES[kind]))[:2]  # most names are alike in both languages
        if kind != "cities" and generator.random() < 0.25:
            new = 2 * [invented_name(generator)]
        patterns = [re.compile(rf"\b{name}(?=s?\b)") for name in (english, german)]
        if all(map(re.Pattern.search, patterns, texts)):
            texts = [*map(re.Pattern.sub, patterns, new, texts)]
            texts[1] = re.sub(rf"\b({new[1]}(?<=[sxzß]))s\b", r"\1'", texts[1])  # Hans' Hund
    return Pair(texts[0], texts[1])


# ---------------------------------------------------------------- patterns

SLOT = re.compile(r"\{(?:([^\s{}]+) )?([a-zA-Z]+)(\d?)(?:\.(\w+))?\}")  # {den dog}, {dog}, {dog2}, {who.dat}
Rows = list[dict[str, str]]


@cache
def pattern_tables() -> tuple[dict[str, Rows], list[list[str]]]:
    """The tables of ``patterns.txt``, each row by its columns, and the patterns."""
    tables = {}
    raw = read_table("patterns")
    patterns = raw.pop("patterns")
    for heading, rows in raw.items():
        name, _, more = heading.partition(":")
        columns = ("m", "f", "n") if name == "agreement" else ("de", *more.split())
        tables[name] = [dict(zip(("en", *columns), [*row, row[0]], strict=False)) for row in rows]
    return tables, patterns


def fill_patterns(seed: int = 0, most: int = 40) -> Iterator[Pair]:
    """Sentences that the patterns of ``patterns.txt`` make, with the words of its tables in their slots.

    Args:
        most: lines of a pattern that says nothing else.
    """
    tables, patterns = pattern_tables()
    agreement = {row["en"]: row for row in tables["agreement"]}
    for english, german, *number in patterns:
        generator = random.Random(f"{seed} {english}")  # its own, so that another pattern changes nothing
        slots = dict.fromkeys(match[2] + match[3] for match in SLOT.finditer(english + german))
        sizes = [len(tables[slot.rstrip("123")]) for slot in slots]
        total = math.prod(sizes)
        for index in generator.sample(range(total), min(total, int(number[0]) if number else most)):
            chosen = {}
            for slot, size in zip(slots, sizes, strict=True):
                index, i = divmod(index, size)
                chosen[slot] = tables[slot.rstrip("123")][i]
            if len({id(row) for row in chosen.values()}) == len(chosen):  # {dog} and {dog2} are two dogs
                yield filled(english, german, chosen, agreement)


def filled(english: str, german: str, chosen: dict[str, dict[str, str]], agreement: dict[str, dict[str, str]]) -> Pair:
    """A pattern with rows in its slots."""

    def write(text: str, column: str) -> str:
        def word(match: re.Match[str]) -> str:
            row = chosen[match[2] + match[3]]
            return agreement[match[1]][row["g"]] if match[1] else row[match[4] or column]

        text = re.sub(r" +(?=[ .,!?]|$)", "", SLOT.sub(word, text))  # where a slot is empty
        if english[-1] not in '.!?"':
            return text
        return re.sub(r"(?:^|[.!?] )\w", lambda match: match[0].upper(), text)

    source = re.sub(r"\b([Aa])(?= (?:[aeio]|um|ug))", r"\1n", write(english, "en"))
    return Pair(source, write(german, "de"))


def casual(text: str) -> str:
    """A sentence as it is typed in a hurry: without a capital and a full stop."""
    return text[0].lower() + text[1:].rstrip(".!?")


def visitors_corpus(pairs: list[Pair], seed: int = 0, from_german: bool = False) -> Iterator[Pair]:
    """What the translator of the first page learns from.

    The sentences, a third of the names exchanged; short sentences and single words three times; one in thirty in
    capitals; a phrase book twelve times; what the patterns make, a fifth of it without capital and full stop; and
    20,000 generated captions as people write them.

    Args:
        from_german: the German side is the one that is read, and so the one in capitals or without a full stop.
    """

    def typed(pair: Pair, change: Callable[[str], str]) -> Pair:
        english, german = pair.source, pair.target
        return Pair(english, change(german)) if from_german else Pair(change(english), german)

    generator = random.Random(seed)
    for pair in pairs:
        yield other_names(pair, generator) if generator.random() < 0.35 else pair
        if generator.random() < 0.03:
            yield typed(pair, str.upper)
        if len(pair.source.split()) <= 3:
            yield pair
            yield other_names(pair, generator)
    for entry in dictionary(pairs):
        yield from (entry, entry, Pair(f"{entry.source}.", f"{entry.target}."))
    yield from (Pair(source, target) for source, target in PHRASES["phrases"] * 12)
    for pair in fill_patterns(seed):
        yield typed(pair, casual) if generator.random() < 0.2 else pair
    for caption in make_captions(20_000, seed=seed, simple=0.3):
        source, target = (text.replace(" ,", ",") for text in (caption.source, caption.target))
        yield Pair(source[0].upper() + source[1:] + ".", target[0].upper() + target[1:] + ".")
