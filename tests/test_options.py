"""The options of a training: what they mean, what is refused, and what follows from a corpus."""

import re
from dataclasses import asdict

import pytest
import torch
from jaxtyping import TypeCheckError
from runs import pairs_file, write_pairs

from transformer_lib.data.captions import Pair
from transformer_lib.models import alignment, hard_attention, scores
from transformer_lib.models.seq2seq import build_model
from transformer_lib.translation import options as module
from transformer_lib.translation.options import Corpus, TrainOptions, load_corpus, training_config
from transformer_lib.translation.text import TextPreparation, unknown_words
from transformer_lib.translation.translator import Translator


def made(options, *sizes):
    return build_model(*options.model_config(*sizes))


def test_what_is_not_given_follows_from_the_model():
    recurrent = training_config(TrainOptions(model="gru"), [])
    assert (recurrent.betas, recurrent.schedule, recurrent.learning_rate) == ((0.9, 0.999), "plateau", 2e-3)
    transformer = training_config(TrainOptions(warmup=7), [])
    assert (transformer.betas, transformer.schedule, transformer.warmup) == ((0.9, 0.98), "linear", 7)
    assert transformer.patience is None and transformer.smoothing == 0.1
    assert training_config(TrainOptions(smoothing=0.0), []).smoothing == 0.0
    fine = training_config(TrainOptions(start_from="captions-en-de"), [([5, 2], [1, 5, 2])] * 50)
    assert (fine.learning_rate, fine.epochs) == (3e-4, 10)


def test_batches_epochs_and_warm_up_follow_from_the_size_of_the_corpus():
    pair = ([5] * 8 + [2], [1] + [5] * 8 + [2])
    for count, tokens, epochs in ((300, 250, 75), (3000, 2000, 60), (100_000, 2000, 30)):
        config = training_config(TrainOptions(), [pair] * count)
        updates = -(-count // (config.max_tokens // 10)) * config.epochs
        assert (config.max_tokens, config.epochs) == (tokens, epochs) and updates >= 900
        assert config.warmup == min(4000, updates // 10)
    assert training_config(TrainOptions(), [([5] * 399 + [2], [1, 5, 2])]).max_tokens == 400  # the longest pair fits
    given = training_config(TrainOptions(epochs=3, max_tokens=50), [pair] * 100)
    assert (given.epochs, given.max_tokens, given.warmup) == (3, 50, 6)


@pytest.mark.parametrize(("preset", "width", "layers"), [("tiny", 128, 4), ("base", 512, 6), ("big", 1024, 6)])
def test_presets_are_the_sizes_of_the_papers(preset, width, layers):
    with torch.device("meta"):
        config = made(TrainOptions(preset=preset, model_options={"d_ff": 64}), 50, 60).config
    assert (config.d_model, config.n_encoder_layers, config.n_decoder_layers) == (width, layers, layers)
    assert config.d_ff == 64 and config.target_vocab_size == 60


def test_both_sides_of_a_transformer_may_have_layers_of_their_own():
    _, config = TrainOptions(model_options={"n_layers": 2, "n_decoder_layers": 1}).model_config(9, 9)
    assert (config.n_encoder_layers, config.n_decoder_layers) == (2, 1)


@pytest.mark.parametrize("vocab_size", [None, 400])
def test_a_transformer_ties_what_its_vocabularies_share(vocab_size):
    model = made(TrainOptions(vocab_size=vocab_size, preset="tiny"), 400, 400)
    shared = model.source_embedding.weight is model.target_embedding.weight
    assert shared == (vocab_size is not None) and model.output.weight is model.target_embedding.weight


KINDS = ["bahdanau", *module.VARIANTS, "hard"]


@pytest.mark.parametrize("model", KINDS)
def test_a_model_is_what_its_name_says(model):
    own = {"input_feeding": False} if model != "bahdanau" else {}
    own |= {"window": 3} if "local" in model else {}
    options = TrainOptions(model=model, model_options={"d_model": 8, "d_hidden": 16, "n_layers": 2, **own})
    one = made(options, 11, 13)
    assert (one.config.d_model, one.config.d_hidden, one.config.n_layers) == (8, 16, 2)
    attention, name = one.decoder.attention, model.split("-")
    if model == "bahdanau":
        assert type(one.decoder) is alignment.BahdanauDecoder
        return
    unsaid = made(TrainOptions(model=model), 11, 13).config
    assert one.config.input_feeding is False and unsaid.input_feeding is (name[0] == "luong")
    if name[0] == "hard":
        assert type(attention) is hard_attention.HardAttention
        assert attention.estimator == ("gumbel" if "gumbel" in name else "reinforce")
    elif name[1] == "global":
        assert type(attention.score).__name__ == f"{name[2].capitalize()}Score"
    else:
        assert type(attention) is scores.LocalAttention and one.config.window == 3 and unsaid.window == 5
        assert (attention.predict is not None) == (name[2] == "p")


# ---------------------------------------------------------------- corpora


def test_no_source_sentence_is_on_both_sides(tmp_path):
    path = tmp_path / "mine.tsv"
    pairs = write_pairs(path, 200)
    path.write_text(path.read_text() + "".join(f"{pair.source}\tanders\n" for pair in pairs))  # each source twice
    corpus = load_corpus(TrainOptions(data=str(path)))
    parts = [{pair.source for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
    assert [len(part) for part in parts] == [180, 10, 10]
    assert [len(corpus.train), len(corpus.validation), len(corpus.test)] == [360, 20, 20]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert {pair.source for pair in load_corpus(TrainOptions(data=str(path), seed=1)).test} != parts[2]


BAD_FILES = {
    "one column": (b"the cat\n", "line 1: expected two texts"),
    "three columns": (b"a\tb\nthe cat\tdie Katze\tle chat\n", "line 2: expected two texts"),
    "an empty side": (b"\n\nthe cat\t \n", "line 3: expected two texts"),
    "not text": (b"\xff\xfe\x00", "not UTF-8"),
    "a mark inside a line": ("the\u2028cat\tdie Katze\n".encode() * 99, "1 different sentences"),
    "too short": (b"the cat\tdie Katze\n" * 99, "1 different sentences"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_with_its_line(case, tmp_path):
    content, message = BAD_FILES[case]
    (tmp_path / "mine.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_corpus(TrainOptions(data=str(tmp_path / "mine.tsv")))


def test_bad_lines_are_skipped_on_request(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("no tab\n" + pairs_file().read_text() + "a\tb\tc\n")
    corpus = load_corpus(TrainOptions(data=str(path), skip_bad=True))
    assert corpus.skipped == (1, 122) and len(corpus.train) == 108
    pair = corpus.train[0]
    assert path.read_text().splitlines()[corpus.lines[pair.source, pair.target] - 1].startswith(pair.source)


def test_a_fingerprint_tells_one_part_from_another():
    one, two, three = Pair("a", "x"), Pair("b", "y"), Pair("c", "z")
    corpus, other = Corpus([one], [two], [three]), Corpus([one, one], [two], [three])
    known = corpus.fingerprint()
    other.check_fingerprint(known, "test", "here")
    with pytest.raises(ValueError, match="here has changed since the training began: its train part"):
        other.check_fingerprint(known, "train", "here")


def test_the_parts_of_the_captions_have_nothing_in_common_in_either_direction():
    for source, target in (("en", "de"), ("de", "en")):
        corpus = load_corpus(TrainOptions(n_captions=500, source=source, target=target))
        parts = [{pair.source for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
        assert len(corpus.test) == 1000 and 490 <= len(corpus.train) <= 500
        assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    forward = load_corpus(TrainOptions(n_captions=5))
    assert forward.test[0].alignment != corpus.test[0].alignment
    few = load_corpus(TrainOptions(n_captions=1))  # evaluation relies on it
    assert (few.test, few.validation) == (forward.test, forward.validation)


@pytest.mark.ci
@pytest.mark.parametrize(("source", "target", "tokens"), [("en", "de", 12_103), ("de", "en", 12_968)])
def test_multi30k_has_the_published_number_of_reference_tokens(data_directory, source, target, tokens):
    corpus = load_corpus(TrainOptions(data="multi30k", source=source, target=target))
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [29_000, 1_014, 1_000]
    assert sum(len(pair.target.split()) for pair in corpus.test) == tokens
    raw = load_corpus(TrainOptions(data="multi30k", source=source, target=target, text="raw"))
    assert raw.test[0].source[0].isupper() and raw.test[0].source.endswith(".")


def test_languages_are_those_that_were_said():
    assert TrainOptions().preparation() == TextPreparation("captions", "en", "de")
    assert TrainOptions(data="multi30k", source="de").preparation() == TextPreparation("moses", "de", "en")
    assert TrainOptions(data="multi30k", target="fr").preparation() == TextPreparation("moses", "en", "fr")
    assert TrainOptions(data="x.tsv").preparation() == TextPreparation("raw")
    assert TrainOptions(data="x.tsv", source="en").preparation() == TextPreparation("raw", "en")


# ---------------------------------------------------------------- text


def test_raw_text_is_left_alone_but_for_its_spaces():
    raw = TextPreparation()
    assert raw.prepare("  A  dog,\trunning. ") == "A dog, running."
    assert raw.restore("Ein Hund .", "A dog.", "A dog.") == "Ein Hund ."


def test_moses_text_is_tokenised_on_the_way_in_and_joined_on_the_way_out():
    moses = TextPreparation("moses", "en", "de")
    assert moses.prepare("A dog, running.") == "a dog , running ."
    assert moses.restore("ein hund , rennt .", "", "") == "ein hund, rennt."


@pytest.mark.parametrize(
    ("text", "prepared", "restored"),
    [
        ("The dog, the cat.", "the dog , the cat", "Der Hund, da."),
        ("the dog , the cat", "the dog , the cat", "der Hund , da"),
        ("the dog?!", "the dog", "der Hund, da?!"),
        ("Zebra ...", "Zebra", "Der Hund, da..."),
    ],
)
def test_captions_lose_capitals_and_stops_and_get_them_back(text, prepared, restored):
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    found = translator.text.prepare(text, translator.source_tokenizer)
    assert found == prepared
    assert translator.text.restore("der Hund , da", text, found) == restored
    assert unknown_words(found, translator.source_tokenizer) == (("Zebra",) if "Zebra" in text else ())


# ---------------------------------------------------------------- what is refused

BAD_OPTIONS = {
    "data": ({"data": "wmt"}, "data='wmt'"),
    "model": ({"model": "lstm"}, "model='lstm'"),
    "precision": ({"precision": "int8"}, "precision='int8'"),
    "preset": ({"preset": "huge"}, "preset='huge'"),
    "a preset that a GRU has not": ({"preset": "tiny", "model": "gru"}, "preset='tiny' is no option"),
    "schedule": ({"schedule": "cosine"}, "schedule='cosine'"),
    "text": ({"text": "upper"}, "text='upper'"),
    "Moses for nobody": ({"text": "moses", "data": "x.tsv"}, "source=None"),
    "not a file of pairs": ({"data": "pairs.csv"}, "PATH.tsv"),
    "a width that a GRU has not": ({"model": "gru", "model_options": {"d_ff": 64}}, "d_ff=64 is no option"),
    "a state that a Transformer has not": ({"model_options": {"d_hidden": 64}}, "d_hidden=64 is no option"),
    "a window that is not there": ({"model": "gru", "model_options": {"window": 9}}, "window=9 is no option"),
    "no width": ({"model_options": {"d_model": 0}}, "d_model=0"),
    "no layers": ({"model": "gru", "model_options": {"n_layers": 0}}, "n_layers=0"),
    "half a head": ({"model_options": {"n_heads": 2.5}}, "n_heads=2.5"),
    "vocabulary": ({"vocab_size": -5}, "vocab_size=-5"),
    "dropout": ({"model_options": {"dropout": 1.5}}, "dropout=1.5"),
    "a word for a flag": ({"model_options": {"norm_first": "no"}}, "norm_first='no'"),
    "another flag": ({"skip_bad": "no"}, "skip_bad"),
    "seed": ({"seed": -1}, "seed=-1"),
    "one epoch and a half": ({"epochs": 1.5}, "epochs=1.5"),
    "smoothing": ({"smoothing": 1.0}, "smoothing=1.0"),
    "no batches": ({"accumulate": 0}, "accumulate=0"),
    "captions": ({"n_captions": 0}, "n_captions=0"),
    "epochs": ({"epochs": 0}, "epochs=0"),
    "tokens": ({"max_tokens": -1}, "max_tokens=-1"),
    "length": ({"max_length": 0}, "max_length=0"),
    "patience": ({"patience": 0}, "patience=0"),
    "rate": ({"learning_rate": 0.0}, "learning_rate=0.0"),
    "infinite rate": ({"learning_rate": float("inf")}, "learning_rate=inf"),
    "a rate that no tensor holds": ({"learning_rate": 1e40}, "learning_rate=1e[+]40 must be"),
    "nan rate": ({"learning_rate": float("nan")}, "learning_rate=nan"),
    "clip": ({"clip": -1.0}, "clip=-1.0"),
    "one language": ({"source": "de", "target": "de"}, "both 'de'"),
    "sizes of another": ({"start_from": "captions-en-de", "preset": "base"}, "leave out preset"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_named(case):
    changes, message = BAD_OPTIONS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        TrainOptions(**changes)
    # With the annotations enforced, a wrong type may be caught before our own check; test_errors.py runs without.
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))


def test_options_survive_json():
    options = TrainOptions(model="luong-local-p", model_options={"d_model": 8, "window": 3})
    assert TrainOptions(**asdict(options)) == options
