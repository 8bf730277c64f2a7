"""The corpus of the translator for visitors."""

import gzip
import random
import re
from collections import Counter
from functools import cache
from itertools import islice, pairwise

import pytest

from experiments.pages.visitors import load_visitors
from transformer_lib.data import everyday
from transformer_lib.data.batching import Pair
from transformer_lib.data.everyday import dictionary, fill_patterns, load_everyday, other_names, visitors_corpus
from transformer_lib.data.text import one_line


@cache
def patterns():
    return [*fill_patterns()]


def test_names_change_on_both_sides_and_nothing_else_does():
    pair = Pair("Tom's dog saw Mary in Boston.", "Toms Hund sah Maria in Boston.")
    for seed in range(30):
        new = other_names(pair, random.Random(seed))
        man, woman = new.source.split("'")[0], new.source.split()[3]
        assert new.target.split()[0] == man + ("'" if man[-1] in "sxzß" else "s") and new.target.split()[3] == woman
        assert new.source.startswith(f"{man}'s dog saw {woman} in ") and "Boston" not in new.source
    alone = Pair("Tom is here.", "Er ist hier.")
    assert other_names(alone, random.Random(0)) == alone
    stays = Pair("Tomatoes are red.", "Tomaten sind rot.")
    assert other_names(stays, random.Random(0)) == stays
    names = Counter(other_names(pair, random.Random(seed)).source.split("'")[0] for seed in range(400))
    known = {name for (name,) in everyday.PHRASES["men"]}
    assert 60 < sum(n for name, n in names.items() if name not in known) < 140  # a quarter is invented


def test_patterns_agree_with_the_gender_of_what_stands_in_them():
    made = patterns()
    again, other = ([*islice(fill_patterns(seed), 2000)] for seed in (0, 1))
    assert made[:2000] == again != other and len(made) > 20_000
    genders = {row["de"]: "mfn".index(row["g"]) for row in everyday.pattern_tables()[0]["thing"]}
    articles = {"meinen": 0, "meine": 1, "mein": 2}
    pronouns = {"ihn": 0, "sie": 1, "es": 2}
    lost = re.compile(r"Ich habe (\w+) (\w+) verloren\. Hast du (\w+) gesehen\?")
    found = [match.groups() for pair in made if (match := lost.fullmatch(pair.target))]
    assert len(found) == 40 and {genders[noun] for _, noun, _ in found} == {0, 1, 2}
    assert all(articles[one] == genders[noun] == pronouns[it] for one, noun, it in found)


def test_patterns_make_whole_sentences():
    tables, sentences = everyday.pattern_tables()
    for pair in patterns():
        for text in (pair.source, pair.target):
            assert text == one_line(text) and not re.search(r"[{}|_]| [.,!?]", text), text
    for name, rows in tables.items():
        assert len({row["en"] for row in rows}) == len(rows), name
        assert all(row.keys() == rows[0].keys() for row in rows), name
    for english, german, *number in sentences:
        slots = {match[2] + match[3] for match in everyday.SLOT.finditer(english)}
        assert slots >= {match[2] + match[3] for match in everyday.SLOT.finditer(german)}, german
        assert not number or int(number[0]) > 0, english


def test_two_slots_of_a_table_hold_two_rows(monkeypatch):
    tables, sentences = everyday.pattern_tables()
    beside = [[english, german] for english, german, *_ in sentences if "is next to the" in english]
    monkeypatch.setattr(everyday, "pattern_tables", lambda: (tables, beside))
    places = [re.findall(r"[Tt]he (\w+)", pair.source) for pair in fill_patterns(most=10**6)]
    assert len(places) > 500 and all(one != other for one, other in places)


def test_patterns_begin_with_a_capital_and_have_the_right_article():
    texts = {pair.source: pair.target for pair in patterns()}
    assert texts["Love is all you need."] == "Liebe ist alles, was du brauchst."
    for english, german in (("is riding a bicycle.", "fährt Fahrrad."), ("is watching television.", "sieht fern.")):
        found = [texts[text] for text in texts if text.endswith(english)]
        assert len(found) > 5 and all(text.endswith(german) for text in found)
    assert {"An orange, please.", "A sausage, please."} <= texts.keys()
    assert not any(re.search(r"\b[Aa] [aeio]", text) for text in texts)


def test_what_visitors_are_judged_by_is_not_learned_by_heart():
    asked = {everyday.plain(visitor.text) for visitor in load_visitors()}
    long = {text for text in asked if len(text.split()) >= 4}
    assert len(long) > 50
    learned = {everyday.plain(pair.source) for pair in patterns()}
    learned |= {everyday.plain(english) for english, _ in everyday.PHRASES["phrases"]}
    # greetings, and what a phrase book can't leave out
    assert learned & long == {"my name is anna", "what time is it"}


def test_dictionary_holds_words_that_choose_each_other():
    pairs = [
        Pair(f"the {a} is here.", f"{b} ist hier.") for a, b in (("dog", "Hund"), ("cat", "Katze")) for _ in range(5)
    ]
    found = {entry.source: entry.target for entry in dictionary(pairs)}
    assert found["dog"] == "Hund" and found["cat"] == "Katze"
    assert "dog" not in {entry.source for entry in dictionary(pairs[:3])}  # too rare


def test_dictionary_has_the_same_order_in_every_process():
    numbers = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    pairs = [Pair(f"{a} {b}", f"{a} {b}".upper()) for a, b in pairwise(numbers)] * 4
    assert [entry.source for entry in dictionary(pairs)] == numbers


def test_corpus_oversamples_short_sentences():
    pairs = [Pair(f"I see {n} dogs.", f"Ich sehe {n} Hunde.") for n in range(1000)]
    made = [*visitors_corpus([Pair("Go!", "Geh!"), Pair("I saw a big dog.", "Ich sah einen großen Hund."), *pairs])]
    corpus = Counter(pair.source for pair in made)
    assert (
        corpus["Go!"] == 3 and corpus["I saw a big dog."] == 1 and corpus["Hello!"] == 12 + 1
    )  # a pattern makes it, too
    capitals = [pair for pair in made if pair.source.startswith("I SEE")]
    assert 15 < len(capitals) < 50 and all(pair.target.startswith("Ich sehe") for pair in capitals)
    captions = [text for text in corpus if "," not in text and text.endswith(".") and len(text.split()) > 9]
    assert len(captions) > 1000 and all(text[0].isupper() for text in captions)


def test_from_german_it_is_the_german_that_is_typed_in_a_hurry(monkeypatch):
    monkeypatch.setattr(everyday, "make_captions", lambda *_, **__: [])
    pairs = [Pair(f"I see {n} dogs.", f"Ich sehe {n} Hunde.") for n in range(1000)]
    made = [*visitors_corpus(pairs, from_german=True)]
    capitals = [pair for pair in made if pair.target.startswith("ICH SEHE")]
    assert 15 < len(capitals) < 50 and all(pair.source.startswith("I see") for pair in capitals)
    assert not any(pair.source.startswith("I SEE") for pair in made)
    assert sum(pair.source.endswith(".") and not pair.target.endswith(".") for pair in made) > 1000


@pytest.fixture
def folder(tmp_path):
    """A folder of data: 1,200 pairs whose sentences stand alone, three that share one, and others that know them."""
    path = tmp_path / "everyday"
    path.mkdir()
    train = [f"I see {n} dogs.\tIch sehe {n} Hunde." for n in range(1200)]
    train += ["Hi.\tHallo!", "Hi.\tGrüß dich!", "Hello.\tHallo!", "HI!\tServus!"]
    rows = {"train": train, "val": ["Hi there.\tHallo!"], "more": ["i see 6 dogs\tHunde!", "Go.\tGeh!"]}
    for name, lines in rows.items():
        (path / f"{name}.en-de.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    return tmp_path


def test_loading(folder, monkeypatch):
    assert load_everyday("val", folder) == [Pair("Hi there.", "Hallo!")]
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(folder))
    assert load_everyday("val") == [Pair("Hi there.", "Hallo!")]
    with pytest.raises(FileNotFoundError, match="manythings"):
        load_everyday("stories")
    with pytest.raises(ValueError, match="train, aside, more, stories, val, test"):
        load_everyday("dev")


def test_a_damaged_file_is_named(folder):
    path = folder / "everyday" / "val.en-de.tsv.gz"
    whole, anki = path.read_bytes(), gzip.compress(b"Hi.\tHallo!\tCC-BY 2.0\n")
    for content in (whole[:-5], whole[:15] + b"?" + whole[16:], anki, b"Hi.\tHallo!\n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"val\.en-de\.tsv\.gz is not English and German"):
            load_everyday("val", folder)


def test_nobody_learns_from_what_is_kept_aside(folder):
    train, aside = load_everyday("train", folder), load_everyday("aside", folder)
    assert len(aside) == 1000 and len(train) == 204 and not set(train) & set(aside)
    assert all(pair.source.startswith("I see") for pair in aside)  # the others share a sentence
    assert Pair("I see 6 dogs.", "Ich sehe 6 Hunde.") in aside and load_everyday("more", folder) == [
        Pair("Go.", "Geh!")
    ]


def test_what_is_kept_aside_is_in_no_other_part(data_directory, monkeypatch):
    for slow in ("plain", "read_part"):
        monkeypatch.setattr(everyday, slow, cache(getattr(everyday, slow)))
    kept = everyday.kept_aside(everyday.read_part("train", data_directory))
    monkeypatch.setattr(everyday, "kept_aside", lambda train: kept)
    parts = {part: load_everyday(part, data_directory) for part in everyday.PARTS}
    assert [len(parts[part]) for part in ("train", "aside", "val", "test")] == [164_866, 1000, 1000, 1000]
    sides = {
        part: {everyday.plain(x) for pair in pairs for x in (pair.source, pair.target)} for part, pairs in parts.items()
    }
    for part in ("train", "more", "stories"):
        assert not sides["aside"] & sides[part], part
