"""Tests of transformer_lib.data: tokenizer, batches, verified files, Multi30k."""

import gzip
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from transformer_lib.data import files, tokenizer
from transformer_lib.data.batching import Batch, batches, collate, encode_pairs
from transformer_lib.data.captions import Pair
from transformer_lib.data.files import DataFile, fetch
from transformer_lib.data.multi30k import (
    MULTI30K,
    load_multi30k,
    moses_detokenize,
    moses_tokenize,
)
from transformer_lib.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

TEXTS = [
    "the small dog runs through the park .",
    "the dogs are running and the children are running too .",
    "der kleine Hund läuft durch den Park .",
    "die Hunde laufen, und die Kinder laufen auch.",
    "<pad> <s> </s> <unk> <pad> </s> <pad>",
] * 3
BPE = Tokenizer.train(TEXTS, vocab_size=330)
WORDS = Tokenizer.train(TEXTS, level="word")
LOOK_ALIKES = ["<pad>", "<s>", "</s>", "<unk>", "[PAD]", "⟨unk⟩", "<|endoftext|>", " ", "  ", "\n", "Ġ", "▁"]

# ---------------------------------------------------------------------------------------------------- tokenizer


def test_special_ids():
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)


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


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.text())
def test_bpe_gives_back_every_string(text):
    ids = BPE.encode(text)
    assert BPE.decode(ids) == text
    assert BPE.decode([BOS, *ids, EOS, PAD, PAD]) == text
    assert all(4 <= index < BPE.vocab_size for index in ids)
    assert len(BPE.tokens(text)) == len(ids)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*LOOK_ALIKES, "dog", "Hund", "ä", "\x00", "\u2028", "\r", "🐕"])).map("".join))
def test_look_alikes_of_special_tokens_are_text(text):
    ids = BPE.encode(text)
    assert BPE.decode(ids) == text
    assert not {PAD, BOS, EOS, UNK} & set(ids)
    assert not {PAD, BOS, EOS} & set(WORDS.encode(text))


def test_training_text_that_holds_special_looking_words():
    """Even a piece that reads like a mark has an ordinary id."""
    trained = Tokenizer.train(["<pad> </s>"] * 50, vocab_size=280)
    assert trained.tokens("<pad>") == ["▁<pad>"] or len(trained.tokens("<pad>")) < 5
    assert min(trained.encode("<pad> </s> <unk>")) > UNK
    words = Tokenizer.train(["<pad> ⟨unk⟩"], level="word")
    assert sorted(words.encode("<pad> ⟨unk⟩")) == [4, 5]


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
    assert BPE.decode(torch.tensor([BOS, *ids, PAD])) == "the dog"
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


@pytest.mark.slow
def test_training_is_the_same_on_one_thread_and_on_many():
    script = (
        "import sys, hashlib, random; from transformer_lib.data.tokenizer import Tokenizer; r = random.Random(3)\n"
        "texts = [' '.join(''.join(r.choices('abcdeé', k=r.randint(1, 6))) for _ in range(9)) for _ in range(400)]\n"
        "t = Tokenizer.train(texts, 600)\n"
        "print(hashlib.sha256(repr((t.pieces, t.merges, t.encode_batch(texts))).encode()).hexdigest())"
    )
    settings_ = ({"RAYON_NUM_THREADS": "1"}, {"RAYON_NUM_THREADS": "3"})
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | extra,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for extra in settings_
    ]
    assert len(set(runs)) == 1 and len(runs[0].strip()) == 64


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
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        BPE.save(path)
    assert Tokenizer.load(path) == WORDS
    assert list(tmp_path.iterdir()) == [path]


GOOD = {"format": "transformer_lib.Tokenizer", "version": 1, "level": "word", "pieces": ["a", "b"], "merges": []}
LETTERS = list(tokenizer._byte_letters())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as a tokenizer"),
        ('{"format": "transformer_lib.Tok', "cannot be read as a tokenizer"),
        ("[]", "another format"),
        ("{}", "another format"),
        (json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {}}}), "another format"),
        (json.dumps(GOOD | {"version": 2}), "version 2"),
        (json.dumps({key: GOOD[key] for key in ("format", "version", "level")}), "pieces"),
        (json.dumps(GOOD | {"level": "char"}), "level='char' is unknown"),
        (json.dumps(GOOD | {"pieces": "ab"}), "one string"),
        (json.dumps(GOOD | {"pieces": [1, 2]}), "cannot be read as a tokenizer"),
        (json.dumps(GOOD | {"pieces": None}), "cannot be read as a tokenizer"),
        (json.dumps(GOOD | {"pieces": ["a", "a"]}), "twice"),
        (json.dumps(GOOD | {"pieces": ["a", "b c"]}), "white space"),
        (json.dumps(GOOD | {"merges": [["a", "b"]]}), "merges must be empty"),
        (json.dumps(GOOD | {"level": "bpe"}), "256 byte letters"),
        (json.dumps(GOOD | {"level": "bpe", "pieces": [*LETTERS, "日"]}), "byte letters"),
        (json.dumps(GOOD | {"level": "bpe", "pieces": LETTERS, "merges": [["a", "b"]]}), "not all of it is in pieces"),
        (json.dumps(GOOD | {"level": "bpe", "pieces": LETTERS, "merges": [["a"]]}), "cannot be read as a tokenizer"),
        ("\xff\xfe", "cannot be read as a tokenizer"),
    ],
)
def test_unreadable_tokenizers_are_refused(content, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("latin-1" if content.startswith("\xff") else "utf-8"))
    with pytest.raises(ValueError, match=message) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)


# ------------------------------------------------------------------------------------------------------ batches

LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(2, 12)), min_size=1, max_size=40)


def make_examples(lengths):
    """Examples of given lengths; every one has ids of its own."""
    return [([10 + i] * (s - 1) + [EOS], [BOS] + [10 + i] * (t - 2) + [EOS]) for i, (s, t) in enumerate(lengths)]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(12, 80), st.none() | st.integers(0, 5), st.integers(0, 3))
def test_batches_hold_every_example_once_within_the_budget(lengths, max_tokens, seed, epoch):
    examples = make_examples(lengths)
    made = list(batches(examples, max_tokens, seed=seed, epoch=epoch))
    assert sorted(index for batch in made for index in batch.indices) == list(range(len(examples)))
    for batch in made:
        assert len(batch) * max(batch.source.shape[1], batch.target.shape[1]) <= max_tokens
        for row, index in enumerate(batch.indices):
            source, target = examples[index]
            assert batch.source[row].tolist() == source + [PAD] * (batch.source.shape[1] - len(source))
            assert batch.target[row].tolist() == target + [PAD] * (batch.target.shape[1] - len(target))
    again = list(batches(examples, max_tokens, seed=seed, epoch=epoch))
    assert [batch.indices for batch in made] == [batch.indices for batch in again]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(LENGTHS)
def test_without_a_seed_short_examples_come_first(lengths):
    examples = make_examples(lengths)
    order = [index for batch in batches(examples, 30) for index in batch.indices]
    assert order == sorted(range(len(examples)), key=lambda index: max(lengths[index]))


def test_seeds_and_epochs_differ_and_are_pinned():
    examples = make_examples([(1 + i % 7, 2 + i % 5) for i in range(60)])

    def order(**options):
        return [index for batch in batches(examples, 40, **options) for index in batch.indices]

    orders = [tuple(order(seed=seed, epoch=epoch)) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len(set(orders)) == 6
    assert order(seed=7, epoch=3)[:12] == [57, 22, 2, 42, 45, 17, 52, 37, 31, 10, 20, 27]


def test_shuffling_lets_different_sentences_meet():
    examples = make_examples([(5, 5)] * 40)
    meetings = {frozenset(batch.indices) for epoch in range(5) for batch in batches(examples, 20, seed=1, epoch=epoch)}
    assert len(meetings) > 40  # ten batches in each of five epochs, nearly all of them new


def test_bucketing_saves_padding():
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(3, 40, (500,), generator=generator).tolist()
    examples = make_examples([(size, size + 1) for size in sizes])
    share = {}
    plain = [collate(examples[k : k + 32]) for k in range(0, 500, 32)]
    for name, made in (("plain", plain), ("bucketed", list(batches(examples, 32 * 20, seed=0)))):
        padding = sum(int((batch.source == PAD).sum()) for batch in made)
        share[name] = padding / sum(batch.source.numel() for batch in made)
    assert share["bucketed"] < share["plain"] / 3


def test_errors_of_batches_come_at_once_not_at_the_first_batch():
    with pytest.raises(ValueError, match="max_tokens=5 is less than the 9 tokens of examples\\[1\\]"):
        batches(make_examples([(2, 3), (9, 4), (3, 3)]), 5)


def test_collate():
    batch = collate([([5, 6, EOS], [BOS, 7, EOS]), ([8, EOS], [BOS, 9, 9, EOS])], indices=[4, 2])
    assert batch.source.tolist() == [[5, 6, EOS], [8, EOS, PAD]]
    assert batch.target.tolist() == [[BOS, 7, EOS, PAD], [BOS, 9, 9, EOS]]
    assert batch.source.dtype == batch.target.dtype == torch.long
    assert batch.source_mask.tolist() == [[True, True, True], [True, True, False]]
    assert batch.target_input.tolist() == [[BOS, 7, EOS], [BOS, 9, 9]]
    assert batch.target_output.tolist() == [[7, EOS, PAD], [9, 9, EOS]]
    assert batch.n_tokens == 5
    assert batch.indices == (4, 2) and len(batch) == 2
    assert collate([([EOS], [BOS, EOS])]).indices == (0,)
    moved = batch.to("meta")
    assert moved.source.device.type == moved.target.device.type == "meta" and moved.indices == (4, 2)
    assert batch.source.device.type == "cpu"


def test_encode_pairs():
    pairs = (Pair(text, text.upper()) for text in ("the dog", "dog"))
    assert encode_pairs(pairs, WORDS, BPE) == [
        ([*WORDS.encode("the dog"), EOS], [BOS, *BPE.encode("THE DOG"), EOS]),
        ([*WORDS.encode("dog"), EOS], [BOS, *BPE.encode("DOG"), EOS]),
    ]


# ------------------------------------------------------------------------------------------------------- files

LINES = "ein Hund\u2028 läuft \n\x85eine Katze\n"
CONTENT = gzip.compress(LINES.encode(), mtime=0)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the good file, or one that is broken in the way the path says."""

    def do_GET(self):
        self.server.asked.append(self.path)
        if "missing" in self.path:
            self.send_error(404)
            return
        body = {"altered": CONTENT[:-1] + b"!", "page": b"<html>log in</html>"}.get(self.path[1:], CONTENT)
        if "short" in self.path:
            body = CONTENT[:-5]
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) if "broken" in self.path else len(body)))
        self.end_headers()
        self.wfile.write(body[:10] if "broken" in self.path else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server on this machine; the cache is a folder of the test's own."""
    monkeypatch.setenv("TRANSFORMER_LIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSFORMER_LIB_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        running.address = f"http://127.0.0.1:{running.server_port}"
        yield running
        running.shutdown()
        thread.join(10)


def published(url: str, content: bytes = CONTENT) -> DataFile:
    """A file as the table describes it."""
    return DataFile("multi30k", "val.en.gz", url, hashlib.sha256(content).hexdigest(), 2)


def in_cache(tmp_path: Path) -> list[str]:
    """The names of all files below the cache."""
    return sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_fetch_downloads_once(server, tmp_path):
    file = published(server.address + "/good")
    assert fetch(file) == tmp_path / "cache" / "multi30k" / "val.en.gz"
    assert fetch(file).read_bytes() == CONTENT
    assert server.asked == ["/good"]
    assert in_cache(tmp_path) == ["val.en.gz"]


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("/altered", ValueError, "truncated, altered or another file"),
        ("/page", ValueError, "truncated, altered or another file"),
        ("/short", ValueError, "truncated, altered or another file"),
        ("/broken", OSError, "could not be downloaded"),
        ("/missing", OSError, "404"),
    ],
)
def test_broken_downloads_are_refused_and_not_kept(path, error, message, server, tmp_path):
    with pytest.raises(error, match=message) as caught:
        fetch(published(server.address + path))
    assert server.address + path in str(caught.value)
    assert "val.en.gz" in str(caught.value)
    assert in_cache(tmp_path) == []


def test_a_broken_file_in_the_cache_is_replaced(server, tmp_path):
    path = fetch(published(server.address + "/good"))
    path.write_bytes(CONTENT[:20])
    assert fetch(published(server.address + "/good")).read_bytes() == CONTENT
    path.write_bytes(CONTENT[:20])
    with pytest.raises(OSError, match="could not be downloaded"):
        fetch(published(server.address + "/missing"))
    assert in_cache(tmp_path) == []


def test_offline_says_what_to_do(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(OSError, match="could not be downloaded from http:") as caught:
        fetch(published(server.address + "/good"), timeout=5)
    assert "multi30k/val.en.gz" in str(caught.value) and "TRANSFORMER_LIB_DATA" in str(caught.value)
    assert in_cache(tmp_path) == []


def test_an_interrupted_write_leaves_nothing(server, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch(published(server.address + "/good"))
    assert in_cache(tmp_path) == []


def test_many_may_fetch_at_once(server, tmp_path):
    file = published(server.address + "/good")
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(fetch, [file] * 16))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert in_cache(tmp_path) == ["val.en.gz"]


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_local_folder_is_used_and_checked(how, server, tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    (folder / "multi30k").mkdir(parents=True)
    (folder / "multi30k" / "val.en.gz").write_bytes(CONTENT)
    directory = folder if how == "argument" else None
    if how == "environment":
        monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(folder))
    file = published(server.address + "/good")
    assert fetch(file, directory) == folder / "multi30k" / "val.en.gz"
    (folder / "multi30k" / "val.en.gz").write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match="truncated, altered or another file"):
        fetch(file, directory)
    assert (folder / "multi30k" / "val.en.gz").exists()  # the reader's own file is left alone
    assert server.asked == [] and in_cache(tmp_path) == []


def test_a_local_folder_without_the_file(server, tmp_path, monkeypatch):
    file = published(server.address + "/good")
    with pytest.raises(FileNotFoundError, match=r"no file multi30k/val\.en\.gz"):
        fetch(file, tmp_path)
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path))
    assert fetch(file).parent == tmp_path / "cache" / "multi30k"  # the folder may hold only a part of the data
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path / "typo"))
    with pytest.raises(FileNotFoundError, match=r"TRANSFORMER_LIB_DATA=.*typo.* is not a folder"):
        fetch(file)


def test_default_cache(monkeypatch):
    monkeypatch.delenv("TRANSFORMER_LIB_CACHE", raising=False)
    assert files._cache_folder() == Path.home() / ".cache" / "transformer_lib"


# ----------------------------------------------------------------------------------------------------- Multi30k


def test_table_of_multi30k():
    splits = {"train": 29000, "val": 1014, "test_2016_flickr": 1000, "test_2017_flickr": 1000, "test_2017_mscoco": 461}
    assert set(MULTI30K) == {f"{split}.{language}.gz" for split in splits for language in ("en", "de", "fr")}
    for name, file in MULTI30K.items():
        assert (file.dataset, file.name, file.lines) == ("multi30k", name, splits[name.split(".")[0]])
        assert file.url.startswith("https://") and file.url.endswith("/raw/" + name)
        assert len(file.sha256) == 64 and int(file.sha256, 16)
    assert len({file.sha256 for file in MULTI30K.values()}) == 15


def test_load_multi30k_from_a_server(server, monkeypatch):
    french = gzip.compress(b"un chien court\nun chat\n", mtime=0)
    monkeypatch.setitem(MULTI30K, "val.en.gz", published(server.address + "/good"))
    monkeypatch.setitem(MULTI30K, "val.fr.gz", published(server.address + "/good"))
    # Only the newline ends a line; spaces and other separators stay.
    expected = [("ein Hund\u2028 läuft ",) * 2, ("\x85eine Katze",) * 2]
    assert load_multi30k("val", "en", "fr") == [Pair(*pair) for pair in expected]
    monkeypatch.setitem(MULTI30K, "val.fr.gz", published(server.address + "/good", french))
    with pytest.raises(ValueError, match=r"not the published val\.en\.gz"):
        load_multi30k("val", "en", "fr")


def test_a_wrong_number_of_lines_is_refused(server, monkeypatch):
    file = published(server.address + "/good")
    wrong = DataFile(file.dataset, file.name, file.url, file.sha256, 3)
    monkeypatch.setitem(MULTI30K, "val.en.gz", wrong)
    with pytest.raises(ValueError, match=r"val.en.gz of multi30k has 2 lines, expected 3"):
        load_multi30k("val", "en", "de")


def multi30k(split: str) -> list[Pair]:
    """Real pairs from the local folder, or a skip that says why."""
    folder = os.environ.get("TRANSFORMER_LIB_DATA")
    if not folder or not Path(folder, "multi30k", f"{split}.en.gz").exists():
        pytest.skip(f"needs {split} of Multi30k in the folder named by TRANSFORMER_LIB_DATA")
    return load_multi30k(split, "de", "en")


@pytest.mark.slow
@pytest.mark.parametrize(("split", "lines"), [("train", 29000), ("val", 1014), ("test_2016_flickr", 1000)])
def test_real_splits(split, lines):
    pairs = multi30k(split)
    assert len(pairs) == lines
    assert all(pair.source.strip() and pair.target.strip() and "\n" not in pair.source for pair in pairs)
    swapped = load_multi30k(split, "en", "de")
    assert [(pair.source, pair.target) for pair in swapped] == [(pair.target, pair.source) for pair in pairs]


@pytest.mark.slow
def test_moses_tokens_of_the_literature():
    pairs = multi30k("test_2016_flickr")
    assert sum(len(moses_tokenize(pair.source, "de").split()) for pair in pairs) == 12103
    assert sum(len(moses_tokenize(pair.target, "en").split()) for pair in pairs) == 12968


@pytest.mark.slow
def test_padding_of_multi30k_as_the_chapter_says():
    pairs = multi30k("train")
    joint = Tokenizer.train([text for pair in pairs for text in (pair.source, pair.target)], vocab_size=10_000)
    assert joint.vocab_size == 10_000
    examples = encode_pairs(pairs, joint, joint)
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = (collate([examples[i] for i in order[k : k + 128]]) for k in range(0, len(order), 128))
    for made, expected in ((shuffled, 0.54), (batches(examples, 4096, seed=1), 0.068)):
        sizes = [
            (int((b.source == PAD).sum() + (b.target == PAD).sum()), b.source.numel() + b.target.numel()) for b in made
        ]
        share = sum(padding for padding, _ in sizes) / sum(cells for _, cells in sizes)
        assert share == pytest.approx(expected, abs=0.006)


def test_moses():
    assert moses_tokenize("A man's dog, (black) isn't here.", "en") == "a man 's dog , ( black ) isn 't here ."
    assert moses_tokenize("Über die Straße!", "de") == "über die straße !"
    assert moses_tokenize("Über die Straße!", "de", lowercase=False) == "Über die Straße !"
    assert (
        moses_tokenize("a & b < c black-and-white", "en") == "a & b < c black-and-white"
    )  # no escapes, no dash splits
    assert moses_tokenize("", "fr") == ""
    assert moses_detokenize("a man 's dog , ( black ) .", "en") == "a man's dog, (black)."
    assert moses_detokenize("&amp; so on", "en") == "&amp; so on"


# ---------------------------------------------------------------------------------------------------- bad input

EXAMPLES = make_examples([(3, 4), (2, 2)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tokenizer.train([], 300), "texts holds no words"),
        (lambda: Tokenizer.train(["", "  \n"], 300), "texts holds no words"),
        (lambda: Tokenizer.train([], level="word"), "texts holds no words"),
        (lambda: Tokenizer.train("one string", 300), "texts must be a list of strings"),
        (lambda: Tokenizer.train(["a", "b\ud800"], 300), r"texts\[1\] holds half a surrogate pair"),
        (lambda: Tokenizer.train(["a"], 300, level="char"), "level='char' is unknown"),
        (lambda: Tokenizer.train(["a"]), "vocab_size=None"),
        (lambda: Tokenizer.train(["a"], 259), "vocab_size=259 is too small: it must be at least 260"),
        (lambda: Tokenizer.train(["a"], 4, level="word"), "vocab_size=4 is too small: it must be at least 5"),
        (lambda: Tokenizer.train(["a"], 0), "vocab_size=0 is too small"),
        (lambda: Tokenizer.train(["a"], -300), "vocab_size=-300 is too small"),
        (lambda: Tokenizer.train(["a"], True, level="word"), "vocab_size=True is not a whole number"),
        (lambda: Tokenizer("char", ("a",)), "level='char' is unknown"),
        (lambda: BPE.encode("half \udc00"), r"half a surrogate pair, '\\udc00' at position 5"),
        (lambda: WORDS.encode("half \udc00"), "half a surrogate pair"),
        (lambda: BPE.encode_batch("one string"), "texts must be a list of strings"),
        (lambda: BPE.decode([5, 330]), r"ids\[1\]=330 is out of range: ids go from 0 to 329"),
        (lambda: BPE.decode([-1]), r"ids\[0\]=-1 is out of range"),
        (lambda: WORDS.decode([10**6]), "is out of range"),
        (lambda: encode_pairs([Pair("a", "b"), Pair("", "b")], WORDS, WORDS), r"pairs\[1\] has an empty source"),
        (lambda: encode_pairs([Pair("a", " \t")], BPE, BPE), r"pairs\[0\] has an empty target"),
        (lambda: collate([]), "examples is empty"),
        (lambda: collate([([EOS], [BOS])]), r"examples\[0\] has 1 source and 1 target ids"),
        (lambda: collate([([], [BOS, EOS])]), r"examples\[0\] has 0 source"),
        (lambda: collate([([5, EOS], [BOS, EOS]), ([PAD, EOS], [BOS, EOS])]), r"source of examples\[1\] holds 0"),
        (lambda: collate([([5, EOS], [BOS, PAD, EOS])]), r"target of examples\[0\] holds 0"),
        (lambda: collate(EXAMPLES, [1]), "same number of rows"),
        (lambda: Batch(torch.ones(2, 3).long(), torch.ones(2, 3).long(), (0,)), "same number of rows"),
        (lambda: batches([], 100), "examples is empty"),
        (lambda: batches(EXAMPLES, 3), r"max_tokens=3 is less than the 4 tokens of examples\[0\]"),
        (lambda: batches(EXAMPLES, 0), "max_tokens=0 is too small"),
        (lambda: batches(EXAMPLES, -5), "max_tokens=-5 is too small"),
        (lambda: batches(EXAMPLES, 100, seed=-1), "seed=-1 is too small"),
        (lambda: batches(EXAMPLES, 100, seed=True), "seed=True is not a whole number"),
        (lambda: batches(EXAMPLES, 100, epoch=-1), "epoch=-1 is too small"),
        (lambda: load_multi30k("test"), "split='test' is unknown"),
        (lambda: load_multi30k("val", source="nl"), "source='nl' is unknown"),
        (lambda: load_multi30k("val", target="DE"), "target='DE' is unknown"),
        (lambda: load_multi30k("val", "en", "en"), "source and target are both 'en'"),
        (lambda: load_multi30k("val", directory="/nowhere"), "is not a folder"),
        (lambda: moses_tokenize("a", "xx"), "language='xx' is unknown"),
        (lambda: moses_detokenize("a", ""), "language='' is unknown"),
    ],
)
def test_bad_input_names_the_thing(call, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: Tokenizer.train(["a"], 300.0),
        lambda: Tokenizer.train(["a", 3], 300),
        lambda: BPE.encode(b"bytes"),
        lambda: BPE.encode(None),
        lambda: BPE.decode([5.0]),
        lambda: batches(EXAMPLES, 99.5),
        lambda: batches(EXAMPLES, "100"),
        lambda: Batch([[1]], [[1]], (0,)),
        lambda: Batch(torch.ones(2, 3).long(), torch.ones(3, 3).long(), (0, 1)),
    ],
)
def test_bad_types_are_refused(call):
    with pytest.raises((ValueError, TypeError, TypeCheckError)):
        call()


def test_loading_a_tokenizer_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        Tokenizer.load(tmp_path / "nothing.json")
