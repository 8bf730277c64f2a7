"""The tokenizer: byte-pair encoding equal to the plain library and to a naive loop, every text back exactly."""

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from texts import BPE, LOOK_ALIKES, TEXTS, WORDS

from transformer_lib.data import tokenizer
from transformer_lib.data.batching import Pair, encode_pairs
from transformer_lib.data.bpe import join_at_random
from transformer_lib.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer


def test_byte_letters_are_those_of_the_library():
    letters = tokenizer._byte_letters()
    assert set(letters) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert sorted(letters.values()) == list(range(256))
    pre = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = "".join(map(chr, range(1, 2048)))
    (piece, _), *_ = pre.pre_tokenize_str(text)
    assert bytes(letters[letter] for letter in piece) == text.encode()


def test_bpe_equals_the_plain_library():
    plain = tokenizers.Tokenizer(tokenizers.models.BPE())
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        min_frequency=2,
        special_tokens=["\ue000", "\ue001", "\ue002", "\ue003"],  # so that pieces begin at 4
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator([" " + text for text in TEXTS], trainer)
    assert plain.get_vocab_size() == BPE.vocab_size == len(BPE) == 330
    for text in [*TEXTS, "Läufer überquert 12 Straßen!", "unseen  words\nand 🐕"]:
        ids = plain.encode(" " + text).ids
        assert BPE.encode(text) == ids
        assert BPE.decode(ids) == plain.decode(ids)[1:] == text


def naive_merges(words: Counter, n_merges: int) -> list[tuple[str, str]]:
    """Byte-pair encoding as its definition reads; ties go to the older pieces."""
    letters = list(tokenizer._byte_letters())
    age = {letter: i for i, letter in enumerate(letters)}
    split = {word: list(word) for word in words}
    merges = []
    for _ in range(n_merges):
        counts = Counter()
        for word, pieces in split.items():
            for pair in pairwise(pieces):
                counts[pair] += words[word]
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], -age[pair[0]], -age[pair[1]]))
        if counts[best] < 2:
            break
        merges.append(best)
        age.setdefault("".join(best), len(age))
        for word, pieces in split.items():
            joined, i = [], 0
            while i < len(pieces):
                step = 2 if tuple(pieces[i : i + 2]) == best else 1
                joined.append("".join(pieces[i : i + step]))
                i += step
            split[word] = joined
    return merges


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("abcd", min_size=1, max_size=8), min_size=1, max_size=30), st.integers(1, 25))
def test_merges_equal_those_of_the_naive_loop(words, n_merges):
    trained = Tokenizer.train([" ".join(words)], vocab_size=260 + n_merges)
    expected = naive_merges(Counter("Ġ" + word for word in words), len(trained.merges))
    assert list(trained.merges) == expected
    assert trained.vocab_size <= 260 + n_merges


ODD_WORDS = st.lists(st.sampled_from([*LOOK_ALIKES, "dog", "Hund", "ä", "\x00", "\u2028", "\r", "🐕"])).map("".join)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.text() | ODD_WORDS)
def test_bpe_gives_back_every_string_and_look_alikes_of_special_tokens_are_text(text):
    ids = BPE.encode(text)
    assert BPE.decode(ids) == text
    assert BPE.decode([BOS, *ids, EOS, PAD, PAD]) == text
    assert all(4 <= index < BPE.vocab_size for index in ids)
    assert len(BPE.tokens(text)) == len(ids)
    assert not {PAD, BOS, EOS} & set(WORDS.encode(text))


def test_training_text_that_holds_special_looking_words():
    """Even a piece that reads like a mark has an ordinary id."""
    trained = Tokenizer.train(["<pad> </s>"] * 50, vocab_size=280)
    assert trained.tokens("<pad>") == ["▁<", "pad", ">"]
    assert min(trained.encode("<pad> </s> <unk>")) > UNK
    words = Tokenizer.train(["<pad> ⟨unk⟩"], level="word")
    assert sorted(words.encode("<pad> ⟨unk⟩")) == [4, 5]


def test_words_have_no_characters_that_nobody_sees():
    words = Tokenizer.train(["der \u202aHund\u202c", "\u2066 der"], level="word")
    assert words.pieces == ("der", "Hund") and words.encode("\u2067Hund\u2069 der") == words.encode("Hund der") == [
        5,
        4,
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=20), max_size=8))
def test_encoding_many_equals_encoding_one_by_one(texts):
    for one in (BPE, WORDS):
        assert one.encode_batch(texts) == [one.encode(text) for text in texts]


def test_first_word_is_the_same_piece_as_elsewhere():
    assert BPE.encode("the the") == BPE.encode("the") * 2


def test_pieces_are_readable():
    tokenizer = Tokenizer.train(["über über über"], vocab_size=270)
    assert tokenizer.tokens("über 🐕") == ["▁über", "▁", "\\xf0", "\\x9f", "\\x90", "\\x95"]
    assert WORDS.tokens("the zebra runs") == ["the", "⟨unk⟩", "runs"]
    assert repr(BPE) == "Tokenizer(level='bpe', vocab_size=330)"


def test_words_are_ranked_by_frequency_then_alphabet():
    tokenizer = Tokenizer.train(["b b a", "c a d"], level="word")
    assert tokenizer.pieces == ("a", "b", "c", "d")
    assert Tokenizer.train(["b b a", "c a d"], vocab_size=7, level="word").pieces == ("a", "b", "c")
    assert Tokenizer.train(["z z a"], vocab_size=5, level="word").pieces == ("z",)
    assert Tokenizer.train(["z a"], vocab_size=500, level="word").vocab_size == 6


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(TEXTS), max_size=4).map(" \t ".join))
def test_word_level_gives_back_known_words(text):
    assert WORDS.decode(WORDS.encode(text)) == " ".join(text.split())
    assert WORDS.encode(text) == [4 + WORDS.pieces.index(word) for word in text.split()]


def test_unknown_words():
    assert WORDS.encode("the zebra") == [*WORDS.encode("the"), UNK]
    assert WORDS.decode([UNK, *WORDS.encode("runs")]) == "⟨unk⟩ runs"
    assert BPE.decode([*BPE.encode("runs"), UNK]) == "runs⟨unk⟩"


def test_decode_stops_at_the_end():
    ids = BPE.encode("the dog")
    assert BPE.decode([BOS, *ids, EOS, *ids]) == "the dog"
    assert BPE.decode([BOS, *ids, EOS, 10**9]) == "the dog"  # what follows the end is not looked at
    assert BPE.decode(torch.tensor([BOS, *ids, PAD])) == BPE.decode(iter(np.array(ids))) == "the dog"
    assert BPE.decode([]) == WORDS.decode([EOS]) == ""
    assert BPE.encode("") == WORDS.encode("") == WORDS.encode(" ") == []
    broken = BPE.encode("🐕")[1:-1]  # a model may stop in the middle of a character
    assert "\ufffd" in BPE.decode(broken)


def test_a_joint_vocabulary_is_one_tokenizer():
    pairs = [Pair("the dog", "der Hund"), Pair("the park", "der park")]
    joint = Tokenizer.train([text for pair in pairs for text in (pair.source, pair.target)], level="word")
    (source, _), (park, target) = encode_pairs(pairs, joint, joint)
    assert park[1] == target[2] == joint.encode("park")[0]
    assert source == [*joint.encode("the dog"), EOS]


SCRIPT = """
import hashlib, random
from transformer_lib.data.tokenizer import Tokenizer
r = random.Random(3)
texts = [" ".join("".join(r.choices("abcdeé", k=r.randint(1, 6))) for _ in range(9)) for _ in range(400)]
t = Tokenizer.train(texts, 600)
digest = hashlib.sha256(repr((t.pieces, t.merges, t.encode_batch(texts))).encode()).hexdigest()
print(digest)
"""


@pytest.mark.slow
def test_training_is_the_same_on_one_thread_and_on_many():
    here = {}
    exec(SCRIPT, here)
    alone = os.environ | {"RAYON_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=alone, capture_output=True, text=True, check=True)
    assert done.stdout == f"{here['digest']}\n"


def test_vocabulary_is_pinned():
    """The same texts give the same ids, whatever the machine and the version of the libraries."""
    digest = hashlib.sha256(json.dumps([BPE.pieces, BPE.merges, BPE.encode_batch(TEXTS)]).encode()).hexdigest()
    assert digest == "e9797051d92284f4b3dfbc7f3c6bd2338af0797f7f9ab8ffa6e4205fcca84791"


@pytest.mark.parametrize("tokenizer", [BPE, WORDS], ids=["bpe", "word"])
def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "new" / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(str(path))
    assert loaded == tokenizer and hash(loaded) == hash(tokenizer)
    assert loaded.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert [file.name for file in path.parent.iterdir()] == ["tokenizer.json"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    WORDS.save(path)

    def fail(*_):
        raise OSError(28, "disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        BPE.save(path)
    assert Tokenizer.load(path) == WORDS
    assert list(tmp_path.iterdir()) == [path]


GOOD = {"format": "transformer_lib.Tokenizer", "version": 1, "level": "word", "pieces": ["a", "b"], "merges": []}
LETTERS = list(tokenizer._byte_letters())


READ, VOCABULARY = "cannot be read as a tokenizer", "do not make a vocabulary"
NO_TOKENIZERS = [
    *((text, READ) for text in ("", '{"format": "transformer_lib.Tok', "[]", "{}", "[" * 100_000, "\xff\xfe")),
    (json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {}}}), READ),
    (json.dumps({key: GOOD[key] for key in ("format", "version", "level")}), READ),
]
CHANGED = [  # fields that are not those of the good one
    ({"version": 2}, "another format"),
    ({"sha256": "0"}, "not those that were saved"),
    ({"level": "char"}, "level 'char'"),
    ({"pieces": [["a"]]}, READ),
    ({"pieces": [1, 2]}, READ),
    ({"pieces": None}, READ),
    ({"pieces": ["a", "a"]}, VOCABULARY),
    ({"pieces": ["a", "b c"]}, VOCABULARY),
    ({"merges": [["a", "b"]]}, f"{VOCABULARY} of level 'word'"),
    ({"level": "bpe"}, VOCABULARY),
    ({"level": "bpe", "pieces": [*LETTERS, "日"]}, VOCABULARY),
    ({"level": "bpe", "pieces": LETTERS, "merges": [["a", "b"]]}, f"{VOCABULARY} of level 'bpe'"),
    ({"level": "bpe", "pieces": LETTERS, "merges": [["a"]]}, READ),
]


@pytest.mark.parametrize(
    ("content", "message"), [*NO_TOKENIZERS, *((json.dumps(GOOD | new), message) for new, message in CHANGED)]
)
def test_unreadable_tokenizers_are_refused(content, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("latin-1" if content.startswith("\xff") else "utf-8"))
    with pytest.raises(ValueError, match=message) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)


SPARE = """
import sys, warnings
sys.modules["tokenizers"] = None  # cannot be imported
import torch
before = list(warnings.filters)
import transformer_lib as t
assert warnings.filters == before
heavy = {"matplotlib", "sacrebleu", "sacremoses", "transformers"} & set(sys.modules)
assert not heavy, heavy
words = t.Tokenizer.train(["ein Hund"], level="word")
batch = t.collate(t.encode_pairs([("ein Hund", "ein Hund")], words, words))
print(words.decode(batch.source[0]))
try:
    t.Tokenizer.train(["ein Hund"], 300)
except ImportError as error:
    print("tokenizers" in str(error))
"""


@pytest.mark.slow
def test_words_need_no_tokenizers_and_importing_loads_nothing_heavy():
    """Importing sets no warning filter, and neither tokenizers, matplotlib, sacrebleu nor sacremoses is imported."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", SPARE], capture_output=True, text=True, timeout=120)
    assert done.stdout == "ein Hund\nTrue\n", done.stderr


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.floats(0, 0.99), st.integers(0, 5))
def test_dropout_cuts_in_other_ways_and_loses_nothing(text, dropout, seed):
    ids = BPE.encode(text, dropout=dropout, seed=seed)
    assert BPE.decode(ids) == text
    assert ids == BPE.encode(text, dropout=dropout, seed=seed)
    assert len(ids) >= len(BPE.encode(text))


def test_dropout_near_none_and_near_all():
    rank, never = BPE._rank, random.Random(0)
    for text in TEXTS:  # the slow loop cuts as the library does
        words = BPE._model.pre_tokenizer.pre_tokenize_str(" " + text)
        pieces = [p for word, _ in words for p in join_at_random(list(word), rank, 0.0, never)]
        assert [BPE._ids[piece] for piece in pieces] == BPE.encode(text)
    text = TEXTS[0]
    lengths = [len(BPE.encode(text, dropout=p, seed=1)) for p in (0.0, 0.1, 0.5, 0.999999)]
    assert lengths == sorted(lengths) and lengths[1] > lengths[0]
    assert lengths[-1] == len(text.encode()) + 1  # one id for each byte, and the space in front
    assert BPE.encode(text, dropout=0.5, seed=1) != BPE.encode(text, dropout=0.5, seed=2)


# ---- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tokenizer.train(None, 300), "NoneType"),
        (lambda: Tokenizer.train([], 300), "texts contain no words"),
        (lambda: Tokenizer.train(["", "  \n"], 300), "texts contain no words"),
        (lambda: Tokenizer.train([], level="word"), "texts contain no words"),
        (lambda: Tokenizer.train("one string", 300), "'one string', expected a list"),
        (lambda: Tokenizer.train(["a", "b\ud800"], 300), r"texts\[1\] holds half a surrogate pair"),
        (lambda: Tokenizer.train(["a"], 300, level="char"), "level 'char' is neither"),
        (lambda: Tokenizer.train(["a"]), "vocab_size=None"),
        (lambda: Tokenizer.train(["a"], 259), "vocab_size=259 must be at least 260"),
        (lambda: Tokenizer.train(["a"], 4, level="word"), "vocab_size=4 must be at least 5"),
        (lambda: Tokenizer.train(["a"], 0), "vocab_size=0 must be at least"),
        (lambda: Tokenizer.train(["a"], -300), "vocab_size=-300 must be at least"),
        (lambda: Tokenizer.train(["a"], 8000.0), r"vocab_size=8000\.0 must be at least 260, a whole number"),
        (lambda: Tokenizer.train(["a"], True, level="word"), "vocab_size=True must be"),
        (lambda: Tokenizer("char", ("a",)), "level 'char'"),
        (lambda: BPE.encode("half \udc00"), r"half a surrogate pair, '\\udc00' at position 5"),
        (lambda: WORDS.encode("half \udc00"), "half a surrogate pair"),
        (lambda: BPE.encode_batch("one string"), "'one string', expected a list"),
        (lambda: BPE.decode([5, 330]), "330 is no id: they go from 0 to 329"),
        (lambda: BPE.decode([-1]), "-1 is no id"),
        (lambda: WORDS.decode([10**6]), "1000000 is no id"),
        (lambda: BPE.decode([5.7]), "5.7 is no id"),
        (lambda: BPE.decode("56"), "already decoded"),
        (lambda: BPE.encode("a", dropout=1), "dropout=1"),
        (lambda: BPE.encode(b"bytes"), r"texts\[0\] is b'bytes'"),
        (lambda: BPE.decode(b"bytes"), "already decoded"),
        (lambda: BPE.encode("a", dropout=0.5, seed=None), "seed=None"),
        (lambda: WORDS.encode("a", dropout=0.5), r"dropout=0\.5, seed=0: expected a probability, subwords"),
    ],
)
def test_bad_input_names_the_thing(call, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError)) as caught:
        call()
    if not isinstance(caught.value, TypeCheckError) and not isinstance(caught.value.__cause__, TypeCheckError):
        assert re.search(message, str(caught.value))  # test_errors.py asks again, where annotations are not checked


def test_a_vocabulary_is_no_larger_than_its_text_and_a_long_word_is_left_out():
    assert Tokenizer.train(["a b"], 10**9).vocab_size == 260
    long = "ab" * 500_000
    trained = Tokenizer.train(["the dog the dog", long], 300)
    assert trained == Tokenizer.train(["the dog the dog"], 300) and len(trained.encode(long)) == 10**6 + 1


def test_a_file_with_two_pieces_exchanged_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    BPE.save(path)
    content = json.loads(path.read_text())
    content["pieces"][-1], content["pieces"][-2] = content["pieces"][-2], content["pieces"][-1]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="not those that were saved"):
        Tokenizer.load(path)


def test_loading_a_tokenizer_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        Tokenizer.load(tmp_path / "nothing.json")
