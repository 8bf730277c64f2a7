"""The words of the captions: nouns, verbs, adjectives, places and reasons, with their German forms."""

__all__: list[str] = []  # the inside of data.captions

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from transformer_lib.data.files import read_table

TABLES = read_table("captions")
FORMS = {name: forms.split() for name, forms in TABLES["forms"]}


def form_of(name: str, case: str, column: str) -> str:
    """One entry of the table of forms, in the column m, f, n or p."""
    return FORMS[f"{name} {case}"]["mfnp".index(column)]


def strength_of(determiner: str) -> str:
    """Which adjective endings go with an English determiner; "" stands for none."""
    return {"the": "weak", "a": "mixed"}.get(determiner, "strong")


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective; endings are added to the stem."""

    english: str
    german: str
    stem: str
    dimension: str


def read_adjective(dimension: str, entry: str) -> Adjective:
    """One entry of the table, such as "high hoch/hoh"."""
    english, german = entry.split()
    german, _, stem = german.partition("/")
    return Adjective(english, german, stem or german, dimension)


ADJECTIVES = {
    entry.split()[0]: read_adjective(dimension, entry)
    for dimension, entries in TABLES["adjectives"]
    for entry in entries.split(",")
}
COUPLES = {(one, two) for one, others in TABLES["couples"] for two in others.split()}


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun; a weak one looks like its plural in all cases but the nominative."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str
    weak: bool
    tags: frozenset[str]
    adjectives: tuple[Adjective, ...]

    def in_german(self, case: str, plural: bool) -> str:
        """The German form for a case and a number."""
        if plural:
            n = case == "dat" and self.german_plural[-1] not in "ns"
            return f"{self.german_plural}n" if n else self.german_plural
        return self.german_plural if self.weak and case != "nom" else self.german


SHARED = dict(TABLES["shared"])


def read_noun(words: str, tags: str, names: str) -> Noun:
    """One row of the table of nouns; every noun bears its own English name as a tag."""
    one, many, eins, viele, gender = words.split()
    names = " ".join(SHARED.get(name, name) for name in names.split())
    bears = {one, *tags.split()} | ({"mass"} if viele == "-" else set())
    adjectives = tuple(ADJECTIVES[name] for name in names.split())
    return Noun(one, many, eins, viele, gender[0], gender[1:] == "w", frozenset(bears), adjectives)


NOUNS = {row[0].split()[0]: read_noun(*row) for row in TABLES["nouns"]}


@cache
def nouns_tagged(wanted: str) -> tuple[Noun, ...]:
    """All nouns that bear one of the wanted tags."""
    tags = set(wanted.split())
    return tuple(noun for noun in NOUNS.values() if tags & noun.tags)


class Place(NamedTuple):
    """Somewhere to be or to go, and who may."""

    english: str
    german: str
    case: str
    noun: Noun
    who: frozenset[str]


PLACES = [
    (group, Place(english, phrase, case, NOUNS[name], frozenset(who.split())))
    for group, english, german, names, who in TABLES["places"]
    for phrase, case in [german.split()]
    for name in names.split()
]


@cache
def places_of(groups: str) -> tuple[Place, ...]:
    """All places of some groups."""
    return tuple(place for group, place in PLACES if group in groups.split())


CONTRACTIONS = dict(TABLES["contractions"])

ADVERBS = dict(TABLES["adverbs"])


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb, who can do it, to whom, and where."""

    name: str
    base: str
    third: str
    ing: str
    particle: str
    singular: str
    plural: str
    prefix: str
    kind: str
    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...]
    gifts: tuple[Noun, ...]
    places: str
    adverbs: tuple[str, ...]
    flags: frozenset[str]
    lists: dict[str, tuple[str, ...]]

    def listed(self, key: str) -> tuple[str, ...]:
        """The words of an option such as ``not=tired,sad``."""
        return self.lists.get(key, ())


def read_verb(english: str, german: str, kind: str, subjects: str, objects: str, where: str, how: str) -> Verb:
    """One row of the table of verbs."""
    (base, particle), (third, _), (ing, _) = (f"{x}_".split("_")[:2] for x in english.split())
    (singular, prefix), (plural, _) = (f"{x}_".split("_")[:2] for x in german.split())
    receivers, _, gifts = objects.partition(";")
    options = how.split()
    pairs = (option.split("=") for option in options if "=" in option)
    forms = (english.split()[0], base, third, ing, particle, singular, plural, prefix, kind)
    who, whom, what = (nouns_tagged(tags) for tags in (subjects, receivers, gifts))
    adverbs = tuple(option for option in options if option in ADVERBS)
    lists = {key: tuple(words.split(",")) for key, words in pairs}
    return Verb(*forms, who, whom, what, where.strip("-"), adverbs, frozenset(options), lists)


VERBS = tuple(read_verb(*row) for row in TABLES["verbs"])


def find_verb(word: str) -> Verb:
    """The first verb with this English name or this German form."""
    return next(verb for verb in VERBS if word in (verb.name, verb.singular))


TIMES = {size: [row for row in TABLES["times"] if len(row[0].split()) == size] for size in (1, 2, 3)}


class Reason(NamedTuple):
    """A deed done or left undone for a reason that lies in its subject or object."""

    verb: Verb
    negated: bool
    contest: bool
    english: str
    german: str
    case: str
    nouns: tuple[tuple[Noun, ...], ...]
    about: tuple[tuple[Adjective, ...], ...]


def read_reason(name: str, mood: str, english: str, german: str, *columns: str) -> Reason:
    """One row of the table of reasons."""
    *preposition, case = german.split()
    nouns = tuple(nouns_tagged(column) for column in columns[:2])
    names = [column.strip("-").split() for column in columns[2:]]
    about = tuple(tuple(ADJECTIVES[one] for one in words) for words in names)
    verb, negated, contest = find_verb(name), "not" in mood, "!" in mood
    return Reason(verb, negated, contest, english, "".join(preposition), case, nouns, about)


REASONS = tuple(read_reason(*row) for row in TABLES["reasons"])
