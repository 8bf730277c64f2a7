"""The grammar of the captions: English and German grow together, word by word."""

__all__: list[str] = []  # the inside of data.captions

import random
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count, permutations
from typing import Any, NamedTuple

import transformer_lib.data.lexicon as lexicon
from transformer_lib.data.lexicon import TABLES, Adjective, Noun, Place, Reason, Verb, form_of

Words = tuple[tuple[str, tuple[int, ...]], ...]  # words, each with its labels
LABELS = count()


def labelled(text: str, *labels: int) -> Words:
    """Words that all carry the same labels."""
    return tuple((word, labels) for word in text.split())


@dataclass(slots=True)
class Text:
    """The same in two languages."""

    english: Words = ()
    german: Words = ()

    def __add__(self, other: "Text") -> "Text":
        return Text(self.english + other.english, self.german + other.german)


def linked(english: str, german: str) -> Text:
    """Words that translate each other, under a label of their own."""
    label = next(LABELS)
    return Text(labelled(english, label), labelled(german, label))


def weave(order: str, **parts: Text) -> Text:
    """Parts in the order of each language, such as "be very word | very word be"; some may be missing."""
    parts[","] = Text((), ((",", ()),))
    english, german = (side.split() for side in order.split("|"))
    return Text(
        tuple(word for name in english if name in parts for word in parts[name].english),
        tuple(word for name in german if name in parts for word in parts[name].german),
    )


class DeadEnd(Exception):
    """No word fits here: the writer takes another way."""


class Writer:
    """What it takes to write one caption after another: randomness, and the words used."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random
        self.begin()

    def begin(self) -> None:
        """Forget the last caption, but not where the dice were."""
        self.used: set[Any] = set()
        self.referents: list[tuple[int, int]] = []

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return int(self.random() * n)

    def pick(self, options: Any) -> Any:
        """One of the options, all equally likely."""
        if not options:
            raise DeadEnd
        return options[self.below(len(options))]

    def weighted(self, options: Any) -> Any:
        """One of the options, given as (option, whole-number weight)."""
        sums = list(accumulate(weight for _, weight in options))
        if not sums or not sums[-1]:
            raise DeadEnd
        return options[bisect(sums, self.below(sums[-1]))][0]

    def fresh(self, options: Any) -> Any:
        """An option that this caption has not used, and that counts as used now."""
        option = self.pick([one for one in options if one not in self.used])
        self.used.add(option)
        return option

    def attempt(self, build: Callable[..., Any], *arguments: Any) -> Any:
        """What ``build(self, *arguments)`` gives, tried again after a dead end."""
        used, n_referents = set(self.used), len(self.referents)
        for _ in range(60):
            try:
                return build(self, *arguments)
            except DeadEnd:
                self.used = set(used)
                del self.referents[n_referents:]
        raise DeadEnd


@dataclass
class Phrase:
    """A noun phrase in both languages."""

    noun: Noun
    plural: bool
    label: int
    adjectives: tuple[Adjective, ...]
    text: Text

    def is_a(self, tags: str) -> bool:
        """Whether the noun bears one of these tags."""
        return not self.noun.tags.isdisjoint(tags.split())


# the dimensions of adjectives that stand before nouns
BEFORE_NOUNS = "size age youth colour mood kind"


@cache
def adjective_choices(
    noun: Noun, n: int, clash: tuple[str, ...] = (), only: str = BEFORE_NOUNS
) -> tuple[tuple[Adjective, ...], ...]:
    """Every way to put n adjectives before a noun: none in ``clash``, and all of the
    dimensions in ``only``."""
    wanted = [word for word in noun.adjectives if word.dimension in only.split()]
    able = [word for word in wanted if word.english not in clash]
    if n < 2:
        return tuple((word,) for word in able) if n else ((),)
    couples = ((a, b) for a in able for b in able)
    return tuple((a, b) for a, b in couples if (a.dimension, b.dimension) in lexicon.COUPLES)


@cache
def capacity(noun: Noun, clash: tuple[str, ...] = (), only: str = BEFORE_NOUNS) -> int:
    """How many adjectives a noun can take: 0, 1 or 2."""
    return max(n for n in (0, 1, 2) if adjective_choices(noun, n, clash, only))


@cache
def determiners_for(mass: bool, number: str, size: int, limit: int, rich: bool) -> tuple[Any, ...]:
    """The determiners with which a phrase can have this size, with their weights."""
    able = []
    for word, counted, weight, numbers in TABLES["mass determiners" if mass else "determiners"]:
        determiner = word.strip("-")
        n = size - 1 - bool(determiner)  # words besides the determiner and the noun
        if number in numbers.split() and (0 <= n <= limit or (rich and 3 <= n <= 10)):
            able.append(((determiner, counted == "plural"), int(weight)))
    return tuple(able)


class Head(NamedTuple):
    """What a noun phrase is part of: the verb, and its "subject" or "object"."""

    verb: "Verb"
    role: str


def build_phrase(noun: Noun, determiner: str, plural: bool, adjectives: tuple[Adjective, ...], case: str) -> Phrase:
    """A noun with its determiner and adjectives, inflected."""
    column, text = "p" if plural else noun.gender, Text()
    if determiner:
        an = determiner == "a" and (adjectives or (noun,))[0].english[0] in "aeiou"
        text += linked("an" if an else determiner, form_of(determiner, case, column))
    for one in adjectives:
        ending = form_of(lexicon.strength_of(determiner), case, column)
        text += linked(one.english, one.stem + ending)
    english = noun.english_plural if plural else noun.english
    word = linked(english, noun.in_german(case, plural))
    return Phrase(noun, plural, word.english[0][1][0], adjectives, text + word)


def noun_phrase(
    w: Writer,
    noun: Noun,
    size: int,
    case: str,
    number: str = "any",
    *,
    clash: tuple[str, ...] = (),
    only: str = BEFORE_NOUNS,
    head: Head | None = None,
) -> Phrase:
    """A noun phrase of this many English words; with a head it may be a rich one."""
    limit = capacity(noun, clash, only)
    rich = head is not None
    options = determiners_for("mass" in noun.tags, number, size, limit, rich)
    determiner, plural = w.weighted(options)
    extras, modifier = size - 1 - (determiner != ""), 0
    if extras > limit:
        sizes = (extras - n for n in range(limit + 1))
        modifier = w.pick([rest for rest in sizes if 3 <= rest <= 8])
    ways = adjective_choices(noun, extras - modifier, clash, only)
    unused = [way for way in ways if w.used.isdisjoint(way)]
    adjectives = w.pick(unused or ways)
    w.used.update(adjectives)
    phrase = build_phrase(noun, determiner, plural, adjectives, case)
    if head and modifier:
        w.attempt(modify, phrase, modifier, head)
    return phrase


def after_preposition(english: str, german: str, phrase: Phrase) -> Text:
    """A preposition and a phrase; the German one may melt into one word with "the"."""
    preposition = linked(english, german)
    ((first, labels), *rest), before = phrase.text.german, preposition.german
    melted = lexicon.CONTRACTIONS.get(f"{german} {first}")
    if melted and phrase.text.english[0][0] == "the":
        whole = (*labelled(melted, *before[0][1], *labels), *rest)
        return Text(preposition.english + phrase.text.english, whole)
    return preposition + phrase.text


def place_phrase(w: Writer, place: Place, size: int) -> Text:
    """A place of this many English words, in both languages."""
    size -= len(place.english.split())
    phrase = noun_phrase(w, place.noun, size, place.case, "the")
    return after_preposition(place.english, place.german, phrase)


ORDERS = {
    "main": "subject verb rest | subject finite manner rest prefix",
    "front": "front subject verb rest | front finite subject manner rest prefix",
    "final": "subject verb rest | subject manner rest joined",
}
Parts = dict[str, Text]


def deed_parts(verb: Verb, plural: bool, progressive: bool, manner: Text, negated: bool = False) -> Parts:
    """A verb's parts under one label: "is slowly picking up" | "hebt", "auf"."""
    label = next(LABELS)
    helper, main = "", verb.base if plural else verb.third
    if progressive:
        helper, main = "are" if plural else "is", verb.ing
    elif negated:
        helper, main = "does", verb.base
    inner = labelled(helper, label) + manner.english
    english = inner + labelled(f"{main} {verb.particle}", label)
    finite = verb.plural if plural else verb.singular
    return {
        "verb": Text(english),
        "manner": manner,
        "finite": Text((), labelled(finite, label)),
        "prefix": Text((), labelled(verb.prefix, label)),
        "joined": Text((), labelled(verb.prefix + finite, label)),
        "via": Text((), labelled("".join(verb.listed("via")), label)),
    }


def choose_noun(w: Writer, options: tuple[Noun, ...], size: int, clash: tuple[str, ...] = ()) -> Noun:
    """A noun not yet used that can fill a phrase of this size."""
    limit = size - 2 if 2 < size <= 4 else 0
    return w.fresh([noun for noun in options if capacity(noun, clash) >= limit])


def object_phrase(w: Writer, verb: Verb, noun: Noun, size: int, plural: bool, rich: bool) -> Phrase:
    """The object of a verb, in the case and the number the verb asks for."""
    number = "one" if "one" in verb.flags else "few"
    if "same" in verb.flags and "one" not in verb.flags:
        number = "more" if plural else "one"
    case = "dat" if verb.kind == "dat" else "acc"
    clash = verb.listed("dull")
    head = Head(verb, "object") if rich else None
    return noun_phrase(w, noun, size, case, number, clash=clash, head=head)


def be(plural: bool) -> Text:
    """The verb in the present."""
    return linked("are", "sind") if plural else linked("is", "ist")


def relative_clause(phrase: Phrase, case: str, order: str, **parts: Text) -> None:
    """Append a relative clause to a phrase: its parts in the order of each language."""
    column = "p" if phrase.plural else phrase.noun.gender
    who = "who" if case == "nom" else "whom"
    pronoun = linked(who if phrase.is_a("person") else "that", form_of("that", case, column))
    english, german = order.split("|")
    order = f"phrase pronoun {english} | phrase , via pronoun {german} ,"
    phrase.text = weave(order, phrase=phrase.text, pronoun=pronoun, **parts)


def that_is(w: Writer, phrase: Phrase, size: int, head: Head) -> None:
    """The dog that is (very) tired."""
    taken = {word.dimension for word in phrase.adjectives}
    taken |= {"age"} if size == 4 or "youth" in taken else set()
    taken |= {"state", "youth"} | ({"colour"} if size == 4 else set())
    clash = head.verb.listed("not" if head.role == "subject" else "dull")
    able = [a for a in phrase.noun.adjectives if a.dimension not in taken]
    word = w.fresh([a for a in able if a.english not in clash])
    very = linked("very", "sehr") if size == 4 else Text()
    parts = {"be": be(phrase.plural), "very": very, "word": linked(word.english, word.german)}
    relative_clause(phrase, "nom", "be very word | very word be", **parts)


def who_wears(w: Writer, phrase: Phrase, size: int, head: Head) -> None:
    """The man who is wearing a red hat."""
    if head.verb.base in ("wear", "put", "swim", "sleep", "wake", "get"):
        raise DeadEnd
    wear = lexicon.find_verb("wear")
    progressive = size == 7 or (size > 4 and w.below(2) == 1)
    rest = size - 2 - progressive
    noun = choose_noun(w, wear.objects, rest)
    thing = object_phrase(w, wear, noun, rest, phrase.plural, False)
    deed = deed_parts(wear, phrase.plural, progressive, Text())
    relative_clause(phrase, "nom", ORDERS["final"], rest=thing.text, **deed)


def who_lives(w: Writer, phrase: Phrase, size: int, head: Head) -> None:
    """The man who lives in the city, the fox that lives in the forest."""
    person = phrase.is_a("person")
    homes = ("lives live in", "wohnt wohnen in"), ("comes come from", "kommt kommen aus")
    pair = w.pick(homes) if person else ("lives live in", "lebt leben in")
    (one, many, english), (eins, viele, german) = (side.split() for side in pair)
    place = choose_noun(w, lexicon.nouns_tagged("village city" if person else "forest"), size - 3)
    inner = noun_phrase(w, place, size - 3, "dat", "one")
    verb = linked(many, viele) if phrase.plural else linked(one, eins)
    where = after_preposition(english, german, inner)
    relative_clause(phrase, "nom", "verb where | where verb", verb=verb, where=where)


def that_belongs(w: Writer, phrase: Phrase, size: int, head: Head) -> None:
    """The ball that belongs to the boy: in German the owner is in the dative."""
    noun = choose_noun(w, lexicon.nouns_tagged("person"), size - 3)
    owner = noun_phrase(w, noun, size - 3, "dat", "few").text
    verb = linked("belong to", "gehören") if phrase.plural else linked("belongs to", "gehört")
    relative_clause(phrase, "nom", "verb owner | owner verb", verb=verb, owner=owner)


def whom_they(w: Writer, phrase: Phrase, size: int, head: Head) -> None:
    """The dog that the boy loves: the noun is the object of its relative clause."""
    options = [
        (verb, progressive, rest)
        for verb in lexicon.VERBS
        if "rel" in verb.flags and phrase.noun in verb.objects and verb.name not in w.used
        for progressive in ((False,) if "calm" in verb.flags else (False, True))
        if 2 <= (rest := size - 2 - progressive - bool(verb.particle)) <= 4
    ]
    verb, progressive, rest = w.pick(options)
    w.used.add(verb.name)
    people = tuple(noun for noun in verb.subjects if "person" in noun.tags)
    subject = noun_phrase(w, choose_noun(w, people, rest), rest, "nom", "few")
    deed = deed_parts(verb, subject.plural, progressive, Text())
    case = "dat" if verb.kind == "dat" else "acc"
    relative_clause(phrase, case, ORDERS["final"], subject=subject.text, **deed)


def who_does(w: Writer, phrase: Phrase, size: int, head: Head) -> None:
    """The man who is laughing: something that can be done at the same time."""
    verb = lexicon.find_verb(w.pick(head.verb.listed("also" if head.role == "subject" else "scene")))
    clash = {word.english for word in phrase.adjectives} & set(verb.listed("not"))
    if phrase.noun not in verb.subjects or clash or verb.name in w.used:
        raise DeadEnd
    w.used.add(verb.name)
    manner = Text()
    if size == 4:
        name = w.pick([adverb for adverb in verb.adverbs if adverb != "often"])
        manner = linked(name, lexicon.ADVERBS[name])
    relative_clause(phrase, "nom", ORDERS["final"], **deed_parts(verb, phrase.plural, True, manner))


def with_thing(w: Writer, phrase: Phrase, size: int, head: Head) -> None:
    """The woman with the red hat, the rabbit with long ears: "mit" takes the dative."""
    if phrase.is_a("person"):
        if head.role == "subject" and "free" not in head.verb.flags:
            raise DeadEnd
        noun = choose_noun(w, lexicon.nouns_tagged("hat bag basket umbrella suitcase"), size - 1)
        number = "more" if phrase.plural else "one"
    else:
        noun = w.fresh(lexicon.nouns_tagged("tail ear"))
        number = "a" if noun.english == "tail" and not phrase.plural else "bare"
    inner = noun_phrase(w, noun, size - 1, "dat", number)
    if not (inner.adjectives or phrase.is_a("person")):
        raise DeadEnd
    phrase.text += after_preposition("with", "mit", inner)


MODIFIERS = (  # each with its least and its greatest size, and the nouns it suits
    (that_is, 3, 4, "person pet farm wild light holder device vehicle house tree"),
    (who_wears, 4, 7, "person"),
    (who_lives, 5, 6, "person wild"),
    (that_belongs, 5, 6, "pet farm light holder device vehicle"),
    (whom_they, 4, 8, "person pet farm wild light house boat car"),
    (who_does, 3, 4, "person pet farm wild"),
    (with_thing, 3, 4, "person dog cat rabbit mouse horse cow goat donkey hare fox wolf"),
)


def modify(w: Writer, phrase: Phrase, size: int, head: Head) -> None:
    """Append a modifier of this many English words to a phrase."""
    able = [build for build, least, most, tags in MODIFIERS if least <= size <= most and phrase.is_a(tags)]
    w.pick(able)(w, phrase, size, head)


Slot = tuple[tuple[int, int], ...]


def slot_of(entries: str) -> Slot:
    """A slot: "2:60 3:40" means two words in 60 of 100 cases, three in 40."""
    pairs = (entry.split(":") for entry in entries.split())
    return tuple((int(size), int(weight)) for size, weight in pairs)


SLOTS = {name: slot_of(entries) for name, entries in TABLES["slots"]}


def slots_of(names: str) -> tuple[Slot, ...]:
    """The slots of these parts."""
    return tuple(SLOTS[name] for name in names.split())


@cache
def count_ways(slots: tuple[Slot, ...], total: int) -> int:
    """How many ways there are to fill the slots, each counted by its weight."""
    return sum(weight for _, weight in shares(slots, total)) if slots else int(total == 0)


@cache
def shares(slots: tuple[Slot, ...], total: int) -> Slot:
    """The sizes the first slot may have, weighted by the ways to fill the others."""
    sizes = [(size, weight) for size, weight in slots[0] if size <= total]
    return tuple((size, weight * count_ways(slots[1:], total - size)) for size, weight in sizes)


def fill(w: Writer, slots: tuple[Slot, ...], total: int) -> list[int]:
    """Sizes for the slots that add up to the total."""
    sizes = []
    for i in range(len(slots)):
        sizes.append(w.weighted(shares(slots[i:], total)))
        total -= sizes[-1]
    return sizes


class Shape(NamedTuple):
    """What a clause consists of: the front is a time, a place or nothing."""

    front: str
    kind: str
    slots: tuple[Slot, ...]


@cache
def shapes_of(size: int, first: bool, final: bool) -> tuple[tuple[Shape, int], ...]:
    """The shapes that a clause of this size can have, weighted; only the first begins with a time."""
    shapes = []
    for which, front, kind, weight, names in TABLES["shapes"]:
        if (which == "final") == final and (first or front != "time"):
            shape = Shape(front.strip("-"), kind, slots_of(names))
            shapes.append((shape, int(weight) * count_ways(shape.slots, size)))
    return tuple(shapes)


class Sizes(NamedTuple):
    """The number of English words of each part of a clause."""

    front: int
    subject: int
    verb: int
    adverb: int
    receiver: int
    object: int
    place: int


def suits(verb: Verb, progressive: bool, shape: Shape, sizes: Sizes, alone: bool) -> bool:
    """Whether a verb goes with a shape and the sizes of its parts."""
    kind = "do" if verb.kind in ("acc", "dat") else verb.kind
    if shape.kind != kind or sizes.verb != 1 + progressive + bool(verb.particle):
        return False
    has, place = verb.flags.isdisjoint, sizes.place or shape.front == "place"
    late = shape.front == "time" and sizes.front > 1
    clumsy = (
        progressive and (late or not has({"simple", "calm"})),
        not has({"calm"}) and (shape.front or not alone),
        place and not verb.places,
        sizes.object == 1 and (verb.kind == "dat" or not has({"one", "same"})),
        sizes.object > 4 and (verb.prefix or sizes.place or not has({"make"})),
    )
    return not any(clumsy)


@cache
def deeds_for(shape: Shape, sizes: Sizes, alone: bool) -> tuple[tuple[Verb, bool, tuple[str, ...]], ...]:
    """All verbs that suit, simple or progressive, with the adverbs they may take."""
    deeds = []
    for verb in lexicon.VERBS:
        for progressive in (False, True):
            habit = alone and not progressive and not shape.front
            adverbs = tuple(a for a in verb.adverbs if a != "often" or habit)
            if suits(verb, progressive, shape, sizes, alone) and (adverbs or not sizes.adverb):
                deeds.append((verb, progressive, adverbs))
    return tuple(deeds)


def choose_place(w: Writer, groups: str, size: int, nouns: list[Noun]) -> Place:
    """A place of this size where all the living may be."""
    living = {"person", "pet", "farm", "wild"}
    who = [noun.tags for noun in nouns if noun.tags & living]
    options = [
        place
        for place in lexicon.places_of(groups)
        if place.noun not in w.used
        and all(tags & place.who for tags in who)
        and 0 <= size - len(place.english.split()) - 2 <= capacity(place.noun)
    ]
    place = w.pick(options)
    w.used.add(place.noun)
    return place


def time_phrase(w: Writer, size: int) -> Text:
    """A time of one, two or three English words; "am" translates "in the"."""
    (*within, day), (*am, tag) = (words.split() for words in w.pick(lexicon.TIMES[size]))
    return (linked(" ".join(within), *am) if am else Text()) + linked(day, tag)


def write_clause(w: Writer, size: int, first: bool, final: bool, alone: bool) -> Text:
    """A clause of this many English words."""
    shape = w.weighted(shapes_of(size, first, final))
    sizes = Sizes(*fill(w, shape.slots, size))
    deeds = deeds_for(shape, sizes, alone)
    verb, progressive, adverbs = w.pick([d for d in deeds if d[0].name not in w.used])
    w.used.add(verb.name)
    clash = verb.listed("not")
    nouns = [choose_noun(w, verb.subjects, sizes.subject, clash)]
    if sizes.receiver:
        nouns.append(choose_noun(w, verb.objects, sizes.receiver))
    if sizes.object:
        things = verb.gifts if sizes.receiver else verb.objects
        nouns.append(choose_noun(w, things, sizes.object, verb.listed("dull")))
    where = sizes.front if shape.front == "place" else sizes.place
    place = choose_place(w, verb.places, where, nouns) if where else None

    parts: Parts = {}
    if shape.front == "time":
        parts["front"] = time_phrase(w, sizes.front)
    elif place and shape.front:
        parts["front"] = place_phrase(w, place, where)
    number, head = "few" if "one" in verb.flags else "any", Head(verb, "subject")
    subject = noun_phrase(w, nouns[0], sizes.subject, "nom", number, clash=clash, head=head)
    name = w.pick(adverbs) if sizes.adverb else ""
    manner = linked(name, lexicon.ADVERBS[name]) if name else Text()
    deed = deed_parts(verb, subject.plural, progressive, manner)
    rest = Text()
    if sizes.receiver:
        rest += noun_phrase(w, nouns[1], sizes.receiver, "dat", "one").text
    if sizes.object:
        rich = not final and not sizes.place
        thing = object_phrase(w, verb, nouns[-1], sizes.object, subject.plural, rich)
        rest += deed["via"] + thing.text
    if place and sizes.place:
        rest += place_phrase(w, place, sizes.place)
    order = "final" if final else "front" if parts else "main"
    return weave(ORDERS[order], **parts, **deed, subject=subject.text, rest=rest)


@cache
def referents_for(role: int, gender: str) -> list[tuple[Reason, tuple[Noun, ...]]]:
    """The reasons with nouns of this gender that they can speak of (0 the subject,
    1 the object)."""
    pairs = []
    for reason in lexicon.REASONS:
        words, nouns = set(reason.about[role]), reason.nouns[role]
        able = tuple(n for n in nouns if n.gender == gender and words & set(n.adjectives))
        pairs += [(reason, able)] if able else []
    return pairs


def cast_roles(w: Writer) -> tuple[Reason, int, list[Noun], Adjective]:
    """A deed, whom its reason speaks of, its subject and object, and the reason."""
    gender, role = w.pick("mfn"), w.below(2)
    reason, able = w.pick(referents_for(role, gender))
    referent = w.fresh(able)
    cause = w.pick([a for a in reason.about[role] if a in referent.adjectives])
    others = [noun for noun in reason.nouns[1 - role] if noun.gender != gender]
    fits = [n for n in others if reason.contest or cause not in n.adjectives]
    nouns = [referent, w.fresh(fits)]
    if reason.verb.name in w.used:
        raise DeadEnd
    w.used.add(reason.verb.name)
    return reason, role, nouns if role == 0 else nouns[::-1], cause


PRONOUN = {"m": "er", "f": "sie", "n": "es"}


def write_reason(w: Writer, size: int, first: bool) -> Text:
    """A clause with its reason; the writer notes what "it" stands for."""
    reason, role, nouns, cause = w.attempt(cast_roles)
    verb, negated = reason.verb, reason.negated
    simple = "simple" in verb.flags
    about_size = {word.english for word in reason.about[1]} & {"heavy", "light"}
    able = "age colour" if reason.contest or about_size else "size age colour"
    most = (2 + capacity(nouns[0], only=able), 2 + min(1, capacity(nouns[1], only="age colour")))
    subjects, objects = (tuple(s for s in SLOTS["basic"] if s[0] <= n) for n in most)
    words = len(reason.english.split()) + 1 + bool(verb.particle) + 2 * negated
    deeds = ((words, 100),) if negated or simple else ((words, 65), (words + 1, 35))
    when = slot_of("0:85 1:5 2:4 3:6") if first and not simple else SLOTS["nothing"]
    tails = slot_of("5:100") if negated else slot_of("4:70 5:30")
    slots = (when, subjects, deeds, objects, tails)
    before, n_subject, n_verb, n_object, tail = fill(w, slots, size)

    parts = {"front": time_phrase(w, before)} if before else {}
    number = "the" if negated or "mass" in nouns[1].tags else "one"
    subject = noun_phrase(w, nouns[0], n_subject, "nom", "one", only=able)
    thing = noun_phrase(w, nouns[1], n_object, reason.case, number, only="age colour")
    progressive = n_verb > words
    if negated:
        progressive = w.below(4) == 0 and before < 2 and not reason.contest
    no = linked("not", "nicht") if negated else Text()
    deed = deed_parts(verb, False, progressive, no, negated) | {"manner": Text()}
    no_german = Text((), no.german)
    rest = thing.text + no_german
    if reason.german:
        rest = no_german + after_preposition(reason.english, reason.german, thing)
    order = ORDERS["front" if before else "main"]
    main = weave(order, subject=subject.text, rest=rest, **parts, **deed)

    degree = linked("too", "zu") if negated else linked("very", "sehr")
    it = linked("it", PRONOUN[nouns[role].gender])
    w.referents.append((it.english[0][1][0], (subject, thing)[role].label))
    return weave(
        "main because it be degree cause | main , because it degree cause be ,",
        main=main,
        because=linked("because", "weil"),
        it=it,
        be=linked("is", "ist"),
        degree=degree if tail == 5 else Text(),
        cause=linked(cause.english, cause.german),
    )


@cache
def outlines_of(size: int) -> tuple[tuple[str, int], ...]:
    """The outlines that a caption of this size can have, weighted."""
    outlines = []
    for outline, weight in TABLES["outlines"]:
        slots = slots_of(outline)
        outlines.append((outline, int(weight) * 100 ** (16 - len(slots)) * count_ways(slots, size)))
    return tuple(outlines)


def write_main(w: Writer, size: int, first: bool, alone: bool, reasons: bool) -> Text:
    """A main clause, with its reason if there is room for one."""
    if reasons and 9 <= size <= 16 and w.below(100) < (30 if size == 9 else 70):
        try:
            return w.attempt(write_reason, size, first)
        except DeadEnd:
            pass
    return w.attempt(write_clause, size, first, False, alone)


def write_caption(w: Writer, size: int) -> Text:
    """A caption of this many English words."""
    outline = w.weighted(outlines_of(size))
    text = Text()
    for part, n in zip(outline.split(), fill(w, slots_of(outline), size), strict=True):
        if part in ("main", "half"):
            n_reasons, first = len(w.referents), not text.english
            main = write_main(w, n, first, outline == "main", part == "main")
            if not first:
                negated = "not" in dict(main.english) and len(w.referents) > n_reasons
                links = (("and", "und"), ("but", "aber"))
                text += linked(",", ",") + linked(*(w.pick(links) if negated else links[0]))
            text += main
        elif part == "side":
            side = w.attempt(write_clause, n, False, True, False)
            both = linked("while", "während")
            text += weave("both side | , both side ,", both=both, side=side)
    return text


# ---- simple sentences and bare noun phrases: what people type first into a translator


def simple_phrase(w: Writer, noun: Noun, case: str = "nom", number: str = "any") -> Phrase:
    """A short noun phrase, with any adjective that the noun may bear."""
    size = w.weighted(SLOTS["simple phrase"])
    return noun_phrase(w, noun, size, case, number, only=f"{BEFORE_NOUNS} state")


def any_noun(w: Writer) -> Noun:
    """A noun that the sentence has not used yet."""
    return w.fresh(tuple(lexicon.NOUNS.values()))


def quality(w: Writer, phrase: Phrase, *said: Adjective) -> Adjective:
    """An adjective to say of a phrase, unlike those it bears and those said already."""
    borne = {word.dimension for word in (*phrase.adjectives, *said)}
    borne |= {"age", "youth"} if borne & {"age", "youth"} else set()
    return w.fresh([word for word in phrase.noun.adjectives if word.dimension not in borne])


def place_of(w: Writer, noun: Noun) -> Text:
    """A place where this noun may be."""
    groups = [groups for tags, groups in TABLES["homes"] if noun.tags & set(tags.split())]
    size = w.weighted(SLOTS["simple place"])
    return place_phrase(w, choose_place(w, w.pick(groups), size, [noun]), size)


def is_so(w: Writer) -> Text:
    """The street is wide; today the dogs are not tired; the cat is small and very clever."""
    phrase = simple_phrase(w, any_noun(w))
    first = quality(w, phrase)
    gradual = first.dimension != "colour"
    able = (row for row in TABLES["degrees"] if gradual or row[3] == "any")
    degree = w.weighted([(row[:2] if row[0] != "-" else None, int(row[2])) for row in able])
    text = (linked(*degree) if degree else Text()) + linked(first.english, first.german)
    if not degree and w.below(100) < 20:
        second = quality(w, phrase, first)
        text += linked("and", "und") + linked(second.english, second.german)
    front = time_phrase(w, w.weighted(SLOTS["simple time"])) if w.below(100) < 12 else Text()
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
    noun = w.fresh([noun for noun in lexicon.NOUNS.values() if "person" not in noun.tags])
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
    return write_clause(w, w.weighted(SLOTS["simple clause"]), True, False, True)


SIMPLE = (
    (is_so, 34), (bare, 16), (is_there, 10), (there_is, 9), (this_is, 6), (it_is, 6), (contrast, 12), (short, 7),
)  # fmt: skip


def tidy(words: Words) -> Words:
    """Merge commas that meet, and drop one at the end."""
    merged: list[tuple[str, tuple[int, ...]]] = []
    for word, labels in words:
        if word == "," and merged and merged[-1][0] == ",":
            merged[-1] = (",", merged[-1][1] + labels)
        else:
            merged.append((word, labels))
    return tuple(merged[:-1] if merged[-1][0] == "," else merged)
