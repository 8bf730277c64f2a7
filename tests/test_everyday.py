"""The corpus of the translator for visitors."""

import gzip
import random
from collections import Counter
from itertools import pairwise

import pytest

from transformer_lib.data.captions import Pair
from transformer_lib.data.everyday import dictionary, load_everyday, other_names, visitors_corpus


def test_names_change_on_both_sides_and_nothing_else_does():
    pair = Pair("Tom's dog saw Mary in Boston.", "Toms Hund sah Maria in Boston.")
    for seed in range(30):
        new = other_names(pair, random.Random(seed))
        man, woman = new.source.split("'")[0], new.source.split()[3]
        assert new.target.split()[0] == f"{man}s" and new.target.split()[3] == woman
        assert new.source.startswith(f"{man}'s dog saw {woman} in ") and "Boston" not in new.source
    alone = Pair("Tom is here.", "Er ist hier.")
    assert other_names(alone, random.Random(0)) == alone
    stays = Pair("Tomatoes are red.", "Tomaten sind rot.")
    assert other_names(stays, random.Random(0)) == stays


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


def test_corpus_oversamples_short_sentences(tmp_path):
    corpus = Counter(
        pair.source
        for pair in visitors_corpus([Pair("Go!", "Geh!"), Pair("I see a big dog.", "Ich sehe einen großen Hund.")])
    )
    assert corpus["Go!"] == 3 and corpus["I see a big dog."] == 1 and corpus["Hello!"] == 20
    pairs = [Pair(f"I see {n} dogs.", f"Ich sehe {n} Hunde.") for n in range(1000)]
    capitals = [pair for pair in visitors_corpus(pairs) if pair.source.startswith("I SEE")]
    assert 15 < len(capitals) < 50 and all(pair.target.startswith("Ich sehe") for pair in capitals)
    captions = [text for text in corpus if "," not in text and text.endswith(".") and len(text.split()) > 9]
    assert len(captions) > 1000 and all(text[0].isupper() for text in captions)


def test_loading(tmp_path, monkeypatch):
    folder = tmp_path / "everyday"
    folder.mkdir()
    (folder / "val.en-de.tsv.gz").write_bytes(gzip.compress(b"Hi.\tHallo!\n"))
    assert load_everyday("val", tmp_path) == [Pair("Hi.", "Hallo!")]
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path))
    assert load_everyday("val") == [Pair("Hi.", "Hallo!")]
    with pytest.raises(FileNotFoundError, match="manythings"):
        load_everyday("train")
    with pytest.raises(ValueError, match="train, val, test"):
        load_everyday("dev")
