"""The options of a training: what they mean, what is refused, and what follows from a corpus."""

import math
from dataclasses import MISSING, asdict, fields

import pytest
import torch
from runs import pairs_file, write_pairs

from transformer_lib.data.captions import make_captions
from transformer_lib.data.multi30k import moses_tokenize
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.beam_search import SearchConfig
from transformer_lib.models import registry
from transformer_lib.models.registry import build_model
from transformer_lib.training.config import TrainingConfig
from transformer_lib.translation import run
from transformer_lib.translation.run import TrainOptions, load_corpus, model_config, resolve, training_config
from transformer_lib.translation.translator import TextPreparation, Translator, unknown_words


def made(options, *sizes):
    return build_model(options.model, model_config(options, *sizes))


def test_what_is_not_given_follows_from_the_model():
    recurrent = training_config(TrainOptions(model="gru"))
    assert (recurrent.betas, recurrent.schedule, recurrent.learning_rate) == ((0.9, 0.999), "plateau", 2e-3)
    transformer = training_config(TrainOptions(training={"warmup": 7}))
    assert (transformer.betas, transformer.schedule, transformer.warmup) == ((0.9, 0.98), "linear", 7)
    assert transformer.patience is None and transformer.smoothing == 0.1
    assert training_config(TrainOptions(training={"smoothing": 0.0})).smoothing == 0.0
    fine = training_config(TrainOptions(start_from="captions-en-de"), [3] * 50)
    assert (fine.learning_rate, fine.epochs) == (3e-4, 10)


def test_batches_epochs_and_warm_up_follow_from_the_size_of_the_corpus():
    for count, tokens, epochs in ((300, 250, 75), (3000, 2000, 60), (100_000, 2000, 30)):
        config = training_config(TrainOptions(), [10] * count)
        updates = -(-count // (config.max_tokens // 10)) * config.epochs
        assert (config.max_tokens, config.epochs) == (tokens, epochs) and updates >= 900
        assert config.warmup == min(4000, updates // 10)
    assert training_config(TrainOptions(), [400]).max_tokens == 400  # the longest pair fits
    given = training_config(TrainOptions(training={"epochs": 3, "max_tokens": 50}), [10] * 100)
    assert (given.epochs, given.max_tokens, given.warmup) == (3, 50, 6)


@pytest.mark.parametrize(("preset", "width", "layers"), [("tiny", 128, 4), ("base", 512, 6), ("big", 1024, 6)])
def test_presets_are_the_sizes_of_the_papers(preset, width, layers):
    with torch.device("meta"):
        config = made(TrainOptions(preset=preset, model_options={"d_ff": 64}), 50, 60).config
    assert (config.d_model, config.n_encoder_layers, config.n_decoder_layers) == (width, layers, layers)
    assert config.d_ff == 64 and config.target_vocab_size == 60


@pytest.mark.parametrize("vocab_size", [None, 400])
def test_a_transformer_ties_what_its_vocabularies_share(vocab_size):
    model = made(TrainOptions(vocab_size=vocab_size, preset="tiny"), 400, 400)
    shared = model.source_embedding.weight is model.target_embedding.weight
    assert shared == (vocab_size is not None) and model.output.weight is model.target_embedding.weight


# ---------------------------------------------------------------- corpora


def test_no_source_sentence_is_on_both_sides(tmp_path):
    path = tmp_path / "mine.tsv"
    sources = [pair.source.capitalize() for pair in write_pairs(path, 200)]
    path.write_text("".join(f"{one}\tso\n{one.upper()}\tanders\n" for one in sources))  # each twice, once in capitals
    corpus = load_corpus(TrainOptions(data=str(path)))
    train = list(corpus.train)
    parts = [{source for source, _ in train}, *({pair.source for pair in part} for part in corpus[1:3])]
    assert [len(part) for part in parts] == [180, 10, 10]
    assert [len(train), len(corpus.validation), len(corpus.test)] == [360, 20, 20]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert {pair.source for pair in load_corpus(TrainOptions(data=str(path), seed=1)).test} != parts[2]


BAD_FILES = {
    "one column": (b"the cat\n", "line 1: expected two texts"),
    "three columns": (b"a\tb\nthe cat\tdie Katze\tle chat\n", "line 2: expected two texts"),
    "an empty side": (b"\n\nthe cat\t \n", "line 3: expected two texts"),
    "not text": (b"\xff\xfe\x00", "line 1: this is not UTF-8 text"),
    "zeros": (b"the cat\tdie\0Katze\n", "line 1: expected two texts"),
    "a letter too many": (b"a\tb\n" + b"x" * 30_000 + b"\ty\n", "line 2: 30,003 letters are too many"),
    "a mark inside a line": ("the\u2028cat\tdie Katze\n".encode() * 99, "1 different source sentence, "),
    "too short": (b"the cat\tdie Katze\n" * 99, "1 different source sentence, "),
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
    assert corpus.notes == ("left out 2 lines that are no pair: 1, 122",) and len(list(corpus.train)) == 108


def test_of_a_large_file_a_thousand_sources_are_held_back(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "MANY", 2500)
    path = tmp_path / "mine.tsv"
    path.write_text("".join(f"number {n}\tNummer {n}\n" for n in range(6000)))
    corpus = load_corpus(TrainOptions(data=str(path)))
    assert (len(corpus.validation), len(corpus.test), sum(1 for _ in corpus.train)) == (1000, 1000, 4000)
    assert corpus.fingerprint("validation") != corpus.fingerprint("test")


def test_the_parts_of_the_captions_have_nothing_in_common_in_either_direction():
    for source, target in (("en", "de"), ("de", "en")):
        corpus = load_corpus(TrainOptions(n_captions=100, source=source, target=target))
        parts = [{pair.source for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
        assert len(corpus.test) == 1000 and 90 <= len(corpus.train) <= 100
        assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    forward = load_corpus(TrainOptions(n_captions=50))
    assert forward.test[0].alignment != corpus.test[0].alignment
    few = load_corpus(TrainOptions(n_captions=40))  # evaluation relies on it
    assert (few.test, few.validation) == (forward.test, forward.validation)


@pytest.mark.ci
@pytest.mark.parametrize(("source", "target", "tokens"), [("en", "de", 12_103), ("de", "en", 12_968)])
def test_multi30k_has_the_published_number_of_reference_tokens(data_directory, source, target, tokens):
    corpus = load_corpus(TrainOptions(data="multi30k", source=source, target=target))
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [29_000, 1_014, 1_000]
    words = [moses_tokenize(pair.target, target) for pair in corpus.test]
    assert sum(len(text.split()) for text in words) == tokens


def test_languages_are_those_that_were_said():
    assert TrainOptions().preparation() == TextPreparation("captions", "en", "de")
    assert TrainOptions(data="multi30k", source="de").preparation() == TextPreparation("raw", "de", "en")
    assert TrainOptions(data="multi30k", target="fr").preparation() == TextPreparation("raw", "en", "fr")
    own = str(pairs_file())
    assert TrainOptions(data=own).preparation() == TextPreparation("raw")
    assert TrainOptions(data=own, source="en").preparation() == TextPreparation("raw", "en")


@pytest.mark.parametrize("data", ["captions", "everyday"])
def test_a_language_that_a_corpus_does_not_have_is_refused_before_the_corpus_is_made(data, monkeypatch):
    monkeypatch.setattr(run, "make_captions", None)
    monkeypatch.setattr(run, "load_everyday", None)
    with pytest.raises(ValueError, match=f"{data} is en and de, not 'fr' and 'en'"):
        load_corpus(TrainOptions(data=data, source="fr"))


def test_a_file_does_not_take_the_place_of_a_corpus(tmp_path, monkeypatch):
    (tmp_path / "captions").write_text("no pair\n")
    monkeypatch.chdir(tmp_path)
    assert resolve(TrainOptions()).options.data == "captions"


# ---------------------------------------------------------------- text


def test_raw_text_is_left_alone_but_for_its_spaces():
    raw = TextPreparation()
    assert raw.prepare("  A  dog,\trunning. ") == "A dog, running."
    assert raw.restore("Ein Hund .", "A dog.", "A dog.") == "Ein Hund ."


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


def test_captions_in_subwords_lose_their_capitals_too():
    tokenizer = Tokenizer.train([pair.source for pair in make_captions(200, seed=1)] * 2, 400, level="bpe")
    prepared = TextPreparation("captions").prepare("The dog, which is tired, sleeps on a Bed.", tokenizer)
    assert prepared == "the dog , which is tired , sleeps on a bed"


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("TWO DOGS PLAY.  A CAT SLEEPS!", "Two dogs play. A cat sleeps!"),
        ("ÜBER DIE STRASSE", "Über die strasse"),
        ("NATO", "NATO"),  # a name, probably
        ("Two DOGS play.", "Two DOGS play."),
        ("3 + 4", "3 + 4"),
    ],
)
def test_a_line_in_capitals_is_read_in_lower_case(text, prepared):
    assert TextPreparation().prepare(text) == prepared
    assert TextPreparation(capitals="keep").prepare(text) == " ".join(text.split())


def test_options_survive_json():
    options = TrainOptions(
        model="luong", model_options={"d_model": 8, "window": 3, "local": "m"}, training={"epochs": 2}
    )
    assert TrainOptions(**asdict(options)) == options


@pytest.mark.parametrize("model", ["gru", "bahdanau", "luong", "hard", "transformer", "gpt", "llama"])
@pytest.mark.parametrize(("schedule", "share"), [("linear", 10), ("inverse-sqrt", 10), ("plateau", None)])
def test_a_schedule_brings_its_warm_up_for_every_model(model, schedule, share):
    chosen = {"schedule": schedule, "epochs": 30, "max_tokens": 100}
    config = training_config(TrainOptions(model=model, training=chosen), [10] * 1000)
    assert config.warmup == (30 * 100 // share if share else 0)


CONFIGS = dict.fromkeys(registry.model_entry(name).config_class for name in registry._BUILT_IN)


@pytest.mark.parametrize("kind", [*CONFIGS, SearchConfig, TrainingConfig])
def test_no_setting_is_not_a_number_or_infinite(kind):
    needed = {one.name: 9 for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    for one in fields(kind):
        if "float" in str(one.type) or isinstance(one.default, float):
            for bad in (math.nan, math.inf):
                with pytest.raises(ValueError, match=one.name):
                    kind(**needed | {one.name: bad})
