"""Captions: English sentences that a grammar writes together with their German translations."""

from dataclasses import dataclass
from itertools import permutations

from transformer_lib.data.grammar import (
    BEFORE_NOUNS,
    PRONOUN,
    DeadEnd,
    Phrase,
    Slot,
    Text,
    Writer,
    build_phrase,
    choose_place,
    lengths,
    linked,
    noun_phrase,
    place_phrase,
    slot_of,
    tidy,
    time_phrase,
    weave,
    write_caption,
    write_clause,
)
from transformer_lib.data.lexicon import NOUNS, Adjective, Noun

__all__ = ["Pair", "make_captions"]


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, and which words translate each other.

    Args:
        source: the sentence, its words separated by spaces.
        target: its translation.
        alignment: (source word, target word) for words that translate each other, counted from 0.
        referents: (the word "it", the word it stands for) in the source.

    Raises:
        TypeError: a sentence is not text.
        ValueError: the alignment or the referents name a word outside the sentences.

    Example:
        >>> Pair("a small dog", "ein kleiner Hund", ((0, 0), (1, 1), (2, 2))).target
        'ein kleiner Hund'
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] = ()
    referents: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name, text in (("source", self.source), ("target", self.target)):
            if not isinstance(text, str):
                raise TypeError(f"{name} is {text!r}, not a string")
        n, m = len(self.source.split()), len(self.target.split())
        links = [("alignment", *link, m) for link in self.alignment]
        links += [("referents", *link, n) for link in self.referents]
        for name, i, j, last in links:
            if not (0 <= i < n and 0 <= j < last):
                raise ValueError(f"{name} holds {(i, j)}, but there are {n} source and {m} target words")


# Simple sentences and bare noun phrases: what people type first into a translator.

BASIC_SIZES = slot_of("1:10 2:60 3:25 4:5")
PLACE_SIZES = slot_of("3:60 4:30 5:10")
HOMES = (  # the places of living beings and of things, by the tags of their nouns
    ("person pet farm wild", "home green farm wild edge town seat perch bed"),
    ("light wear holder device food", "home soft top"),
    ("vehicle", "town edge front"),
)


def be(plural: bool) -> Text:
    """The verb in the present."""
    return linked("are", "sind") if plural else linked("is", "ist")


def simple_phrase(w: Writer, noun: Noun, case: str = "nom", number: str = "any") -> Phrase:
    """A short noun phrase, with any adjective that the noun may bear."""
    size = w.weighted(BASIC_SIZES)
    return noun_phrase(w, noun, size, case, number, only=f"{BEFORE_NOUNS} state")


def any_noun(w: Writer) -> Noun:
    """A noun that the sentence has not used yet."""
    return w.fresh(tuple(NOUNS.values()))


def quality(w: Writer, phrase: Phrase, *said: Adjective) -> Adjective:
    """An adjective to say of a phrase, unlike those it bears and those said already."""
    borne = {word.dimension for word in (*phrase.adjectives, *said)}
    borne |= {"age", "youth"} if borne & {"age", "youth"} else set()
    return w.fresh([word for word in phrase.noun.adjectives if word.dimension not in borne])


def place_of(w: Writer, noun: Noun) -> Text:
    """A place where this noun may be."""
    groups = [groups for tags, groups in HOMES if noun.tags & set(tags.split())]
    size = w.weighted(PLACE_SIZES)
    return place_phrase(w, choose_place(w, w.pick(groups), size, [noun]), size)


def is_so(w: Writer) -> Text:
    """The street is wide; today the dogs are not tired; the cat is small and very clever."""
    phrase = simple_phrase(w, any_noun(w))
    first = quality(w, phrase)
    gradual = first.dimension != "colour"
    degrees = (
        ((), 64),
        (("not", "nicht"), 18),
        (("very", "sehr"), 12 * gradual),
        (("too", "zu"), 6 * gradual),
    )
    degree = w.weighted(degrees)
    text = (linked(*degree) if degree else Text()) + linked(first.english, first.german)
    if not degree and w.below(100) < 20:
        second = quality(w, phrase, first)
        text += linked("and", "und") + linked(second.english, second.german)
    front = time_phrase(w, w.weighted(slot_of("1:50 2:20 3:30"))) if w.below(100) < 12 else Text()
    order = "front who be so | front be who so" if front.english else "who be so | who be so"
    return weave(order, front=front, who=phrase.text, be=be(phrase.plural), so=text)


def bare(w: Writer) -> Text:
    """The small dog; a dog in the garden."""
    noun = any_noun(w)
    text = simple_phrase(w, noun).text
    return text + place_of(w, noun) if w.below(100) < 25 else text


def is_there(w: Writer) -> Text:
    """The dog is in the garden."""
    noun = any_noun(w)
    phrase = simple_phrase(w, noun)
    return phrase.text + be(phrase.plural) + place_of(w, noun)


def there_is(w: Writer) -> Text:
    """There is a small dog (in the garden): German says "es gibt", with the accusative."""
    noun = any_noun(w)
    phrase = simple_phrase(w, noun, "acc", "new")
    verb = linked("are" if phrase.plural else "is", "gibt")
    text = linked("there", "es") + verb + phrase.text
    return text + place_of(w, noun) if w.below(100) < 35 else text


def this_is(w: Writer) -> Text:
    """This is a dog; these are two dogs."""
    phrase = simple_phrase(w, any_noun(w))
    return linked("these" if phrase.plural else "this", "das") + be(phrase.plural) + phrase.text


def it_is(w: Writer) -> Text:
    """The dog is small but it is brave: the pronoun has the gender of its noun."""
    noun = w.fresh([noun for noun in NOUNS.values() if "person" not in noun.tags])
    phrase = simple_phrase(w, noun, number="one")
    one = quality(w, phrase)
    two = quality(w, phrase, one)
    it = linked("it", PRONOUN[noun.gender])
    w.referents.append((it.english[0][1][0], phrase.label))
    first = phrase.text + be(False) + linked(one.english, one.german)
    return first + link_clauses(w) + it + be(False) + linked(two.english, two.german)


def link_clauses(w: Writer) -> Text:
    """The word "and" or "but"; English may leave out the comma, German only before "und"."""
    word, german = w.weighted(((("and", "und"), 60), (("but", "aber"), 40)))
    if w.below(2):
        return linked(",", ",") + linked(word, german)
    return Text((), ((",", ()),) if word == "but" else ()) + linked(word, german)


def contrast(w: Writer) -> Text:
    """The small dog is tired and the big dog is not."""
    noun, other = any_noun(w), any_noun(w)
    if w.below(2):  # one noun, told apart by an adjective
        pairs, kinds = permutations(noun.adjectives, 2), ("size", "age", "colour")
        alike = [(a, b) for a, b in pairs if a.dimension == b.dimension and a.dimension in kinds]
        one, two = w.pick(alike)
        plural = "mass" not in noun.tags and w.below(4) == 0
        pair = [build_phrase(noun, "the", plural, (a,), "nom") for a in (one, two)]
    else:
        pair = [simple_phrase(w, each, number="the") for each in (noun, other)]
    shared = set(pair[1].noun.adjectives)
    said = quality(w, pair[0])
    if said not in shared or said.dimension in {word.dimension for word in pair[1].adjectives}:
        raise DeadEnd
    first = pair[0].text + be(pair[0].plural) + linked(said.english, said.german)
    second = pair[1].text
    if w.below(100) < 30:
        own = quality(w, pair[1])
        second += be(pair[1].plural) + linked(own.english, own.german)
    else:
        verb = ("are", "sind es") if pair[1].plural else ("is", "ist es")
        second += linked(*verb) + linked("not", "nicht")
    return first + link_clauses(w) + second


def short(w: Writer) -> Text:
    """The dog sleeps."""
    return write_clause(w, w.weighted(slot_of("3:60 4:40")), True, False, True)


SIMPLE = (
    (is_so, 34), (bare, 16), (is_there, 10), (there_is, 9), (this_is, 6), (it_is, 6), (contrast, 12), (short, 7),
)  # fmt: skip


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
NATURAL = lengths(4, "4 7 9 10 11 11 10 9 8 6 5 4 3 2 2 1 1")  # 4 to 20 words


def length_choices(min_length: int | None, max_length: int | None) -> Slot:
    """The lengths to draw from: all alike in a range, else the natural mixture."""
    if min_length is None and max_length is None:
        return NATURAL
    low = min(4, max_length or 4) if min_length is None else min_length
    high = max(20, low) if max_length is None else max_length
    if not (type(low) is type(high) is int and SHORTEST <= low <= high <= LONGEST):
        raise ValueError(
            f"min_length={min_length} and max_length={max_length}: captions have {SHORTEST} to "
            f"{LONGEST} words, and the smallest number comes first"
        )
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
            is a dog" and "the small dog", of 1 to 20 words. With a range they keep to it.

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
        raise ValueError(f"{n=}, {seed=}, {simple=}: expected whole numbers, 0 or more, and a share from 0 to 1")
    choices = length_choices(min_length, max_length)
    limits = (1, LONGEST) if choices is NATURAL else (choices[0][0], choices[-1][0])
    w, captions, repeats = Writer(seed), dict[str, Pair](), 0
    while len(captions) < n:
        pair = write_pair(w, choices, limits, simple)
        repeats = repeats + 1 if pair.source in captions else 0
        captions.setdefault(pair.source, pair)
        if repeats == 300:
            raise ValueError(
                f"n={n} is more than there is: only {len(captions)} captions of {choices[0][0]} to "
                f"{choices[-1][0]} words could be written; ask for fewer, or allow longer ones with "
                "max_length"
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
