"""The command line: train, stop, resume, translate, evaluate; and what happens when something is wrong."""

import functools
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields

import pytest
import torch
from jaxtyping import TypeCheckError
from safetensors import safe_open

import transformer_lib
import transformer_lib.training.trainer as trainer_module
import transformer_lib.translation.options as options_module
import transformer_lib.translation.translator as translator_module
from transformer_lib.checks import pick_device
from transformer_lib.data.captions import make_captions
from transformer_lib.models.alignment import AlignedSeq2Seq
from transformer_lib.models.recurrent import RecurrentConfig
from transformer_lib.training import schedule
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.training.trainer import Trainer
from transformer_lib.translation import cli, evaluation
from transformer_lib.translation.cli import build_parser, main
from transformer_lib.translation.evaluation import (
    bleu_by_length,
    evaluate_run,
    record_run,
)
from transformer_lib.translation.options import RECIPES, TrainOptions, read_options
from transformer_lib.translation.runs import start_run
from transformer_lib.translation.translator import (
    Translator,
    find_pretrained,
    pretrained_names,
)

CPU = torch.device("cpu")
SMALL = {"n_captions": 300, "d_model": 16, "d_hidden": 32, "epochs": 2, "max_tokens": 600, "dropout": 0.2}
TINY = {
    "model": "transformer",
    "n_captions": 300,
    "d_model": 16,
    "n_heads": 2,
    "d_ff": 32,
    "n_layers": 1,
    "epochs": 3,
    "max_tokens": 600,
    "warmup": 10,
    "average": 2,
}


def as_arguments(options: dict) -> list[str]:
    """The options as they are typed."""
    return [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]


ARGUMENTS = as_arguments(SMALL)


def quiet(line: str) -> None:
    """Report nothing."""


@pytest.fixture(scope="module", autouse=True)
def captions_once():
    """Generate equal captions once: they are the same every time, and most tests begin with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options_module, "make_captions", functools.lru_cache(options_module.make_captions))
        yield


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run that came to its end."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    assert main(["train", "--output", str(folder), "--device", "cpu", *ARGUMENTS]) == 0
    return folder


@pytest.fixture(scope="module")
def transformer_folder(tmp_path_factory):
    """A run of a small Transformer that came to its end."""
    folder = tmp_path_factory.mktemp("runs") / "transformer"
    assert main(["train", "--output", str(folder), "--device", "cpu", *as_arguments(TINY)]) == 0
    return folder


def everything(folder) -> tuple[dict, dict]:
    """All that a run saved, without the clock."""
    tensors, notes = load_tensors(folder / "last.safetensors")
    for line in notes["progress"]["log"]:
        line.pop("seconds"), line.pop("target_tokens_per_second")
    notes["progress"].pop("seconds")
    return tensors, notes


def assert_same_run(one, other) -> None:
    tensors, notes = everything(one)
    others, other_notes = everything(other)
    assert tensors.keys() == others.keys() and notes == other_notes
    for name in tensors:
        assert torch.equal(tensors[name], others[name]), name


# ---------------------------------------------------------------- training and resuming


@pytest.mark.slow
def test_training_lowers_the_loss_and_leaves_a_complete_folder(run_folder, capsys):
    files = {path.name for path in run_folder.iterdir()}
    assert files == {"config.json", "source.json", "target.json", "last.safetensors", "best.safetensors", "log.jsonl"}
    log = [json.loads(line) for line in (run_folder / "log.jsonl").read_text().splitlines()]
    assert [line["pass"] for line in log] == [1, 2]
    assert log[1]["validation_loss"] < log[0]["validation_loss"] < 6
    options, moses = read_options(run_folder)
    assert options == TrainOptions(**SMALL) and moses is False


@pytest.mark.slow
def test_the_same_options_give_the_same_bits(run_folder, tmp_path):
    assert main(["train", "--output", str(tmp_path / "again"), "--device", "cpu", *ARGUMENTS]) == 0
    assert_same_run(run_folder, tmp_path / "again")


@pytest.mark.parametrize(
    "stop_after", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(7, marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_a_run_that_is_stopped_and_resumed_ends_the_same_to_the_bit(run_folder, tmp_path, monkeypatch, stop_after):
    taken, update = [], Trainer.update

    def update_and_count(trainer, group):
        done = update(trainer, group)
        taken.append(done)
        if len(taken) == stop_after:
            os.kill(os.getpid(), signal.SIGINT)
        return done

    monkeypatch.setattr(Trainer, "update", update_and_count)
    folder = tmp_path / "stopped"
    assert main(["train", "--output", str(folder), "--device", "cpu", *ARGUMENTS]) == 130
    assert len(taken) == stop_after
    torch.manual_seed(12345)  # whatever happens between the two processes
    assert main(["train", "--output", str(folder), "--device", "cpu", "--resume"]) == 0
    assert_same_run(run_folder, folder)


def updates(folder) -> int:
    return load_tensors(folder / "last.safetensors")[1]["progress"]["step"]


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_ends_the_same_to_the_bit(tmp_path):
    def command(folder):
        program = "import sys; from transformer_lib.translation.cli import main; sys.exit(main())"
        start = [sys.executable, "-c", program, "train", "--output", str(folder), "--device", "cpu"]
        return [*start, "--save-every", "1"]

    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command(whole), *ARGUMENTS], check=True, env=environment, capture_output=True, timeout=120)
    with subprocess.Popen([*command(killed), *ARGUMENTS], env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and process.poll() is None:
                if (killed / "config.json").exists() and updates(killed) >= 2:
                    break
                time.sleep(0.01)
        finally:
            process.kill()
    assert load_tensors(killed / "last.safetensors")[1]["progress"]["epoch"] < 2, "the run ended before it was killed"
    subprocess.run([*command(killed), "--resume"], check=True, env=environment, capture_output=True, timeout=120)
    assert_same_run(whole, killed)


@pytest.mark.slow
def test_resuming_a_finished_run_changes_nothing(run_folder, tmp_path):
    before = {path.name: path.read_bytes() for path in run_folder.iterdir()}
    assert main(["train", "--output", str(run_folder), "--resume", "--device", "cpu"]) == 0
    assert {path.name: path.read_bytes() for path in run_folder.iterdir()} == before


@pytest.mark.slow
def test_a_recurrent_model_is_slowed_down_and_stopped_when_the_validation_loss_stops_falling(tmp_path, monkeypatch):
    losses = iter([2.0, 1.0, 1.5, 1.25, 0.5])
    monkeypatch.setattr(trainer_module, "evaluate_loss", lambda *_: next(losses))
    run = start_run(TrainOptions(**{**SMALL, "epochs": 9, "patience": 2}), tmp_path / "run", CPU)
    assert run.trainer.fit() is True
    assert run.trainer.progress.epoch == 4 and run.trainer.progress.best == 1.0
    rates = [line["learning_rate"] for line in run.trainer.progress.log]
    assert rates == [0.002, 0.002, 0.002, 0.001]
    assert load_tensors(tmp_path / "run" / "best.safetensors")[1]["pass"] == 2


def test_the_recipe_of_a_model_fills_in_what_was_not_given():
    recurrent, transformer = TrainOptions(), TrainOptions(model="transformer", warmup=7)
    assert recurrent.resolved().learning_rate == RECIPES["recurrent"]["learning_rate"] == 2e-3
    assert recurrent.training().betas == (0.9, 0.999) and recurrent.training().schedule == "plateau"
    assert transformer.training().betas == (0.9, 0.98) and transformer.training().warmup == 7
    assert transformer.training().schedule == RECIPES["transformer"]["schedule"]
    short = TrainOptions(model="transformer", epochs=1)
    assert [short.training(n).warmup for n in (1, 9, 10, 100, 10**6)] == [0, 0, 1, 10, 4000]
    assert schedule.learning_rate_at(1, short.training(1), 8, total=1) > 0  # a corpus of a single batch trains
    assert transformer.resolved().patience is None and transformer.resolved().d_model is None
    assert TrainOptions(smoothing=0.0, model="transformer").training().smoothing == 0.0


@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_a_transformer_ties_what_its_vocabularies_share(kind, tmp_path):
    options = TrainOptions(**TINY, vocab_size=None if kind == "words" else 400, norm_first=True)
    model = start_run(options, tmp_path / "run", CPU).trainer.model
    shared = model.source_embedding.weight is model.target_embedding.weight
    assert shared == (kind == "subwords") and model.output.weight is model.target_embedding.weight
    config = model.config
    assert (config.d_model, config.d_ff, config.n_heads, config.n_decoder_layers) == (16, 32, 2, 1)
    assert config.dropout == 0.3 and config.norm_first


@pytest.mark.parametrize(("preset", "width", "layers"), [("tiny", 128, 4), ("base", 512, 6), ("big", 1024, 6)])
def test_presets_are_the_sizes_of_the_papers(preset, width, layers):
    with torch.device("meta"):
        options = TrainOptions(model="transformer", preset=preset, d_ff=64)
        config = options_module.MODELS["transformer"](options, 50, 60).config
    assert (config.d_model, config.n_encoder_layers, config.n_decoder_layers) == (width, layers, layers)
    assert config.d_ff == 64 and config.target_vocab_size == 60


@pytest.mark.slow
def test_a_run_of_a_transformer_leaves_its_last_passes_and_their_mean(transformer_folder):
    files = {path.name for path in transformer_folder.iterdir()}
    assert {"averaged.safetensors", "pass-2.safetensors", "pass-3.safetensors"} <= files
    assert "pass-1.safetensors" not in files
    mean, notes = load_tensors(transformer_folder / "averaged.safetensors")
    passes = [load_tensors(transformer_folder / f"pass-{number}.safetensors")[0] for number in (2, 3)]
    assert notes == {"passes": [2, 3]}
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (passes[0][name] + passes[1][name]) / 2)


@pytest.mark.slow
def test_the_command_averages_again(transformer_folder, tmp_path, capsys):
    folder = shutil.copytree(transformer_folder, tmp_path / "copy")
    assert main(["average", str(folder), "--last", "1"]) == 0
    assert capsys.readouterr().out == f"{folder}/averaged.safetensors: passes 3\n"
    mean, last = (load_tensors(folder / f"{name}.safetensors")[0] for name in ("averaged", "pass-3"))
    assert all(torch.equal(mean[name], last[name]) for name in last)
    assert main(["average", str(folder), "--last", "3"]) == 1
    assert "keeps 2 passes" in capsys.readouterr().err


# ---------------------------------------------------------------- translating


@pytest.mark.parametrize("folder", ["run_folder", "transformer_folder"])
@pytest.mark.slow
def test_translation_keeps_order_empty_lines_and_mode(folder, request):
    translator = Translator.from_pretrained(request.getfixturevalue(folder), "cpu")
    lines = ["a dog is running in the park", "", "the cat", "   ", "zebra crossing 🦓", "the cat"]
    together = translator.translate(lines, beam_size=2, max_length=20)
    assert together[1] == together[3] == "" and together[2] == together[5]
    alone = [translator.translate([line], beam_size=2, max_length=20) for line in lines]
    assert alone == [[text] for text in together]
    for training_mode in (True, False):
        translator.model.train(training_mode)
        assert translator.translate(lines, beam_size=2, max_length=20) == together
        assert translator.model.training is training_mode
    assert translator.translate([]) == []


@pytest.mark.slow
def test_the_best_translations_come_with_scores_in_order(transformer_folder):
    translator = Translator.from_pretrained(transformer_folder, "cpu")
    texts = ["a dog is running in the park", "", "the cat"]
    best = translator.search(texts, beam_size=4, n_best=3, max_length=12)
    assert translator.translate(texts, beam_size=4, n_best=3, max_length=12) == [[t.text for t in one] for one in best]
    for one in (best[0], best[2]):
        assert len({t.text for t in one}) == 3
        assert [t.score for t in one] == sorted((t.score for t in one), reverse=True)
        assert all(t.log_probability < 0 for t in one)
    assert [t.text for t in best[1]] == ["", "", ""]
    flat = translator.search(texts[:1], beam_size=4, length_penalty=0.0, max_length=12)[0][0]
    assert flat.score == pytest.approx(flat.log_probability)


@pytest.mark.slow
def test_one_hypothesis_is_greedy(transformer_folder):
    from transformer_lib.decoding.greedy import translate

    translator = Translator.from_pretrained(transformer_folder, "cpu")
    texts = ["a dog is running in the park", "the cat"]
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    assert translator.translate(texts, beam_size=1) == translate(translator.model, texts, *tokenizers)


def test_averaged_weights_come_first_and_others_can_be_asked_for(transformer_folder):
    for weights, file in ((None, "averaged"), ("best", "best"), ("pass-2", "pass-2")):
        model = Translator.from_pretrained(transformer_folder, "cpu", weights).model
        expected = load_tensors(transformer_folder / f"{file}.safetensors")[0]
        assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(ValueError, match=r"pass-9\.safetensors"):
        Translator.from_pretrained(transformer_folder, "cpu", "pass-9")


def test_blank_lines_never_reach_the_model(run_folder, monkeypatch):
    seen, found = [], translator_module.beam_search
    monkeypatch.setattr(
        translator_module,
        "beam_search",
        lambda model, *rest: seen.append(rest[0]) or found(model, *rest),
    )
    written = Translator.from_pretrained(run_folder, "cpu").translate(["", "the cat", " \t"], max_length=5)
    assert len(seen) == 1 and len(seen[0]) == 1
    assert written[0] == written[2] == ""


@pytest.mark.slow
def test_a_line_longer_than_any_batch_is_translated_too(run_folder):
    translator = Translator.from_pretrained(run_folder, "cpu")
    assert len(translator.translate(["the dog " * 300, "the cat"], max_tokens=50, max_length=20)) == 2


def test_a_long_line_makes_a_batch_of_its_own(run_folder, monkeypatch):
    shapes = []

    def seen(model, source, *rest):
        shapes.append(tuple(source.shape))
        return search(model, source, *rest)

    search = translator_module.beam_search
    monkeypatch.setattr(translator_module, "beam_search", seen)
    texts = ["the cat"] * 7 + ["the cat " * 20] + ["a dog"] * 6
    found = Translator.from_pretrained(run_folder, "cpu").translate(texts, beam_size=2, max_tokens=24, max_length=5)
    assert sorted(shapes) == [(1, 3), (1, 41), (4, 3), (4, 3), (4, 3)]  # 12 tokens at most, but for the long one
    assert found == Translator.from_pretrained(run_folder, "cpu").translate(texts, beam_size=2, max_length=5)


def test_a_line_longer_than_the_positions_is_refused_before_anything_is_translated(transformer_folder, monkeypatch):
    translator = Translator.from_pretrained(transformer_folder, "cpu")
    monkeypatch.setattr(translator_module, "beam_search", None)
    with pytest.raises(ValueError, match=r"texts\[2\] has more tokens than the 1024"):
        translator.translate(["the cat", "", "the dog " * 600])


def test_moses_text_is_tokenised_on_the_way_in_and_joined_on_the_way_out(run_folder, monkeypatch):
    translator = Translator.from_pretrained(run_folder, "cpu")
    translator.moses = True
    seen = []
    answer = [[translator_module.Translation("ein hund , rennt .", -1.0, -0.5)]]
    monkeypatch.setattr(translator, "search_tokenized", lambda texts, *_: seen.extend(texts) or answer)
    assert translator.translate(["A dog, running."]) == ["ein hund, rennt."]
    assert seen == ["a dog , running ."]


@pytest.mark.slow
def test_attention_is_where_the_model_looks(transformer_folder):
    translator = Translator.from_pretrained(transformer_folder, "cpu")
    translator.model.train()
    looks = translator.attention("a dog is running", "ein Hund rennt")
    assert translator.model.training
    assert looks.source == ["a", "dog", "is", "running", "<eos>"] and looks.target == ["ein", "Hund", "rennt", "<eos>"]
    assert looks.cross.shape == (1, 2, 4, 5)
    assert looks.encoder.shape == (1, 2, 5, 5) and looks.decoder.shape == (1, 2, 4, 4)
    for weights in (looks.cross, looks.encoder, looks.decoder):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert looks.decoder.triu(1).abs().max() == 0
    own = translator.attention("a dog is running")
    assert " ".join(own.target[:-1]) == translator.translate(["a dog is running"])[0]


@pytest.mark.slow
def test_attention_of_a_recurrent_model_is_one_head_of_one_layer(tmp_path):
    run = start_run(TrainOptions(**{**SMALL, "model": "bahdanau"}), tmp_path / "run", CPU)
    translator = Translator(run.trainer.model, run.source_tokenizer, run.target_tokenizer, "en", "de")
    looks = translator.attention("a dog is running", "ein Hund rennt")
    assert looks.cross.shape == (1, 1, 4, 5) and looks.encoder is None and looks.decoder is None
    torch.testing.assert_close(looks.cross.sum(-1), torch.ones(1, 1, 4))


def test_what_cannot_be_translated_is_named(run_folder):
    translator = Translator.from_pretrained(run_folder, "cpu")
    with pytest.raises(TypeError, match="single string"):
        translator.translate("the cat")
    with pytest.raises(TypeError, match="single string"):
        translator.search_tokenized("the cat")
    for call, message in (
        (lambda: translator.translate(text for text in ["the cat"]), "texts is a generator, expected a list"),
        (lambda: translator.attention("the cat", 5), "translation is 5, expected one sentence"),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert isinstance(caught.value, TypeCheckError) or message in str(caught.value)
    with pytest.raises(ValueError, match=r"last\.safetensors is for going on"):
        Translator.from_pretrained(run_folder, "cpu", weights="last")
    with pytest.raises(ValueError, match="n_best=3 is more than beam_size=2"):
        translator.translate(["the cat"], beam_size=2, n_best=3)
    for name, value in (("beam_size", 0), ("n_best", 0), ("max_length", 0), ("max_tokens", -3)):
        with pytest.raises(ValueError, match=f"{name}={value}"):
            translator.translate([""], **{name: value})
    with pytest.raises(ValueError, match="length_penalty=nan"):
        translator.translate(["the cat"], length_penalty=float("nan"))
    with pytest.raises(ValueError, match="empty sentence"):
        translator.attention(" ")
    with pytest.raises(ValueError, match="no attention"):
        translator.attention("the cat")  # a GRU has none


def test_streams_are_utf_8_whatever_the_locale_says(run_folder, monkeypatch):
    seen = []
    monkeypatch.setattr(Translator, "search", lambda self, lines, *rest: seen.extend(lines) or [[] for _ in lines])
    raw = io.BytesIO("ein Mädchen\n".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(raw, encoding="cp1252"))
    assert main(["translate", str(run_folder), "--device", "cpu"]) == 0
    assert seen == ["ein Mädchen"]
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n"), encoding="cp1252"))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii"))
    found = [[translator_module.Translation("Mädchen", 0.0, 0.0)]]
    monkeypatch.setattr(Translator, "search", lambda *rest: found)
    assert main(["translate", str(run_folder), "--device", "cpu"]) == 0
    sys.stdout.flush()
    assert out.getvalue() == "Mädchen\n".encode()


def test_an_empty_translation_has_nothing_to_look_at(transformer_folder, monkeypatch):
    transformer = Translator.from_pretrained(transformer_folder, "cpu")
    tokenizers = transformer.source_tokenizer, transformer.target_tokenizer
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    recurrent = Translator(AlignedSeq2Seq(RecurrentConfig(*sizes, 8, 8)), *tokenizers, "en", "de")
    monkeypatch.setattr(Translator, "search_tokenized", lambda *rest: [[translator_module.Translation("", 0.0, 0.0)]])
    with pytest.raises(ValueError, match="the translation of 'the cat' is empty"):
        recurrent.attention("the cat")
    assert transformer.attention("the cat").target == ["<eos>"]


def test_the_command_translates_files_and_streams(run_folder, tmp_path, capsys, monkeypatch):
    text = "a dog is running\n\nthe cat\n"
    translations = Translator.from_pretrained(run_folder, "cpu").translate(text.split("\n")[:3])
    expected = "".join(line + "\n" for line in translations)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["translate", str(run_folder), "--device", "cpu"]) == 0
    assert capsys.readouterr().out == expected
    (tmp_path / "in.txt").write_text("\ufeff" + text, encoding="utf-8")  # as some editors begin a file
    assert options_module._read_text(tmp_path / "in.txt") == text
    assert main(["translate", str(run_folder), str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")]) == 0
    assert (tmp_path / "out.txt").read_text() == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["translate", str(run_folder)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_the_command_shows_scores_and_json(transformer_folder, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the cat\n")
    best = Translator.from_pretrained(transformer_folder, "cpu").search(["the cat"], n_best=2, max_length=9)[0]
    given = ["translate", str(transformer_folder), str(tmp_path / "in.txt"), "--n-best", "2", "--max-length", "9"]
    assert main([*given, "--scores"]) == 0
    expected = "".join(f"{one.score:.4f}\t{one.log_probability:.4f}\t{one.text}\n" for one in best)
    assert capsys.readouterr().out == expected
    assert main([*given, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["source"] == "the cat" and [one["text"] for one in shown["translations"]] == [one.text for one in best]


# ---------------------------------------------------------------- a file of one's own


def write_pairs(path, count=120) -> list:
    pairs = make_captions(count, seed=3, max_length=8)
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), encoding="utf-8")
    return pairs


@pytest.mark.slow
def test_a_file_of_two_columns_is_enough(tmp_path, capsys, monkeypatch):
    path = tmp_path / "mine.tsv"
    write_pairs(path)
    small = {**TINY, "data": str(path), "epochs": 1, "vocab_size": 300}
    small.pop("n_captions"), small.pop("warmup")
    assert main(["train", "--output", str(tmp_path / "run"), "--device", "cpu", *as_arguments(small)]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--json", "--device", "cpu", "--beam-size", "1"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["sentences"] == 6 and scores["data"] == str(path) and "tok:13a" in scores["signature"]
    path.write_text(path.read_text() + "one more\teins mehr\n")
    assert main(["train", "--output", str(tmp_path / "run"), "--device", "cpu", "--resume"]) == 1
    assert "other data" in capsys.readouterr().err


def test_no_source_sentence_is_on_both_sides(tmp_path):
    path = tmp_path / "mine.tsv"
    pairs = write_pairs(path, 200)
    path.write_text(path.read_text() + "".join(f"{pair.source}\tanders\n" for pair in pairs))  # each source twice
    corpus = options_module.load_corpus(TrainOptions(data=str(path)))
    parts = [{pair.source for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
    assert [len(part) for part in parts] == [180, 10, 10]
    assert [len(corpus.train), len(corpus.validation), len(corpus.test)] == [360, 20, 20]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    other = options_module.load_corpus(TrainOptions(data=str(path), seed=1))
    assert {pair.source for pair in other.test} != parts[2]


BAD_FILES = {
    "one column": (b"the cat\n", "line 1: expected two texts"),
    "three columns": (b"a\tb\nthe cat\tdie Katze\tle chat\n", "line 2: expected two texts"),
    "an empty side": (b"\n\nthe cat\t \n", "line 3: expected two texts"),
    "not text": (b"\xff\xfe\x00", "not UTF-8"),
    "a mark inside a line": ("the\u2028cat\tdie Katze\n".encode() * 99, "1 different sentences"),
    "too short": (b"the cat\tdie Katze\n" * 99, "1 different sentences"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_with_its_line(case, tmp_path, capsys):
    content, message = BAD_FILES[case]
    (tmp_path / "mine.tsv").write_bytes(content)
    given = ["train", "--output", str(tmp_path / "run"), "--data", str(tmp_path / "mine.tsv")]
    assert main(given) == 1
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


# ---------------------------------------------------------------- what comes with the library, and what is handed on


def test_a_model_is_handed_on_in_half_precision_with_a_card(transformer_folder, tmp_path, capsys):
    target = tmp_path / "small"
    assert main(["export", str(transformer_folder), "--output", str(target)]) == 0
    assert {path.name for path in target.iterdir()} == {
        "config.json",
        "source.json",
        "target.json",
        "weights.safetensors",
        "README.md",
    }
    mean = load_tensors(transformer_folder / "averaged.safetensors")[0]
    for name, tensor in load_tensors(target / "weights.safetensors")[0].items():
        assert tensor.dtype == torch.float16 and torch.equal(tensor, mean[name].half())
    translator = Translator.from_pretrained(target, "cpu")
    assert all(parameter.dtype == torch.float32 for parameter in translator.model.parameters())
    card = (target / "README.md").read_text()
    assert "transformer-lib train --model transformer --n-captions 300" in card and "no terms" in card
    parameters = sum(parameter.numel() for parameter in translator.model.parameters())
    with safe_open(target / "weights.safetensors", framework="pt") as file:
        stored = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118
    assert stored == parameters  # tied weights are stored once
    assert main(["export", str(transformer_folder), "--output", str(target)]) == 1
    assert "holds a model already" in capsys.readouterr().err
    assert main(["export", "captions-en-de", "--output", str(tmp_path / "shipped")]) == 0
    shipped = load_tensors(find_pretrained("captions-en-de") / "weights.safetensors")[0]
    for name, tensor in load_tensors(tmp_path / "shipped" / "weights.safetensors")[0].items():
        assert torch.equal(tensor, shipped[name])


ONNX = """
import sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from transformer_lib.translation.export import export_onnx
from transformer_lib.translation.translator import Translator
folder, target = map(Path, sys.argv[1:])
translator = Translator.from_pretrained(folder, "cpu")
largest = export_onnx(translator, target / "model.onnx")
before = (target / "model.onnx").read_bytes()
for name in ("refused.onnx", "model.onnx"):
    try:
        export_onnx(translator, str(target / name), tolerance=largest / 2)
    except ValueError as error:
        print(error)
print((target / "model.onnx").read_bytes() == before, *sorted(path.name for path in target.iterdir()))
print(translator.model.training)
"""


@pytest.mark.slow
def test_onnx_computes_the_same_and_is_not_kept_if_it_does_not(transformer_folder, tmp_path):
    pytest.importorskip("onnxruntime")  # in a process of its own: the exporter does not take checks of shapes
    command = [sys.executable, "-c", ONNX, str(transformer_folder), str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    assert shown.count("differs by") == 2 and shown.endswith("True model.onnx\nFalse\n")


def test_a_recurrent_model_is_not_written_as_onnx(run_folder, tmp_path, capsys):
    assert main(["export", str(run_folder), "--output", str(tmp_path / "small"), "--onnx"]) == 1
    assert "only a Transformer" in capsys.readouterr().err


def test_a_name_that_is_neither_folder_nor_model_is_told_with_the_names(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="captions-en-de"):
        find_pretrained("no-such-model")
    monkeypatch.chdir(tmp_path)
    for name in pretrained_names():
        assert find_pretrained(name).is_absolute()


# ---------------------------------------------------------------- every model

KINDS = [name for name in options_module.MODELS if name not in ("gru", "transformer")]


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.slow
def test_every_model_trains_resumes_translates_and_is_scored_by_the_same_command(model, tmp_path, capsys, monkeypatch):

    folder, captions = tmp_path / model, TrainOptions(n_captions=300)
    arguments = [*ARGUMENTS, "--model", model, "--epochs", "1", "--n-layers", "2"]
    arguments += ["--window", "2"] if model.startswith("luong-local") else []
    assert main(["train", "--output", str(folder), "--device", "cpu", *arguments]) == 0
    assert read_options(folder)[0].model == model
    assert main(["train", "--output", str(folder), "--device", "cpu", "--resume"]) == 0
    corpus = options_module.load_captions(captions)
    monkeypatch.setattr(options_module, "load_captions", None)
    small = options_module.Corpus(corpus.train, corpus.validation[:30], corpus.test[:30], moses=False)
    monkeypatch.setitem(options_module.CORPORA, "captions", lambda _: small)
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--json", "--device", "cpu", "--record", str(tmp_path / "record.json")]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["model"] == model and 0 <= scores["alignment_error_rate"] <= 1 and scores["loss"] < 8
    recorded = json.loads((tmp_path / "record.json").read_text())["metrics"]
    assert recorded["test_alignment_error_rate"] == {"value": scores["alignment_error_rate"]}
    monkeypatch.setattr("sys.stdin", io.StringIO("a dog is running in the park\nthe cat\n"))
    assert main(["translate", str(folder), "--device", "cpu", "--max-length", "20"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("model", KINDS)
def test_a_model_is_what_its_name_says(model):
    from transformer_lib.models import alignment, hard_attention, scores

    own = {"window": 3} if model.startswith("luong-local") else {}
    own |= {"input_feeding": False} if model != "bahdanau" else {}
    options = TrainOptions(model=model, d_model=8, d_hidden=16, n_layers=2, **own)
    made = options_module.MODELS[model](options.resolved(), 11, 13)
    assert (made.config.d_model, made.config.d_hidden, made.config.n_layers) == (8, 16, 2)
    attention, name = made.decoder.attention, model.split("-")
    if model == "bahdanau":
        assert type(made.decoder) is alignment.BahdanauDecoder and type(attention.score) is alignment.AdditiveScore
        return
    assert made.config.input_feeding is False
    unsaid = options_module.MODELS[model](TrainOptions(model=model).resolved(), 11, 13).config
    assert unsaid.input_feeding is (name[0] == "luong")
    if name[0] == "hard":
        assert type(attention) is hard_attention.HardAttention and type(attention.score) is scores.GeneralScore
        assert attention.estimator == ("gumbel" if "gumbel" in name else "reinforce")
        return
    assert made.config.window == own.get("window", 5)
    if name[0] == "luong" and name[1] == "global":
        assert type(attention) is alignment.Attention
        assert type(attention.score).__name__ == f"{name[2].capitalize()}Score"
    elif name[0] == "luong":
        assert type(attention) is scores.LocalAttention and type(attention.score) is scores.GeneralScore
        assert (attention.predict is not None) == (name[2] == "p")


@pytest.mark.slow
def test_the_alignment_is_scored_only_where_there_is_one(run_folder):
    assert "alignment_error_rate" not in evaluate_run(run_folder, "validation", "cpu")  # no attention, no alignment


@pytest.mark.parametrize(("data", "count"), [("multi30k", 15), ("zapier", 1)])
def test_the_command_fetches_every_file_of_a_data_set(data, count, monkeypatch, capsys):
    fetched = []
    monkeypatch.setattr(cli, "fetch", lambda file: fetched.append(file) or f"/cache/{file.name}")
    assert main(["download", data]) == 0
    assert len(fetched) == count and {file.dataset for file in fetched} == {data}
    assert capsys.readouterr().out.splitlines() == [f"/cache/{file.name}" for file in fetched]


# ---------------------------------------------------------------- evaluating and recording


@pytest.mark.slow
def test_evaluation_scores_what_the_model_writes(run_folder):
    from transformer_lib.metrics import bleu, exact_match

    scores = evaluate_run(run_folder, "validation", "cpu")
    options, _ = read_options(run_folder)
    pairs = options_module.load_captions(options).validation
    translator = Translator.from_pretrained(run_folder, "cpu")
    written = [best[0].text for best in translator.search_tokenized([pair.source for pair in pairs])]
    right = [pair.target for pair in pairs]
    assert scores["bleu"] == round(bleu(written, right, tokenize="none").score, 2)
    assert scores["exact_match"] == round(100 * exact_match(written, right), 2)
    assert scores["sentences"] == 500 and "tok:none" in scores["signature"]
    best = load_tensors(run_folder / "best.safetensors")[1]["validation_loss"]
    assert scores["loss"] == pytest.approx(best, abs=2e-4)


def test_short_and_long_sentences_are_scored_apart():
    from transformer_lib.metrics import bleu

    sources = ["a b", "a b c", "a", "a b c d e f", "a b c d"]
    written = ["x y z w v", "x y z w", "x y z w", "p q r s t", "x y z u"]
    right = ["x y z w v", "x y z v", "x y z w", "p q r s u", "x y z u"]
    found = bleu_by_length(sources, written, right, edges=(2, 4, 5))
    assert [(group["words"], group["sentences"]) for group in found] == [("1 to 2", 2), ("3 to 4", 2), ("6 or more", 1)]
    for group, rows in zip(found, ([0, 2], [1, 4], [3]), strict=True):
        score = bleu([written[row] for row in rows], [right[row] for row in rows], tokenize="none")
        assert group["bleu"] == round(score.score, 2)
    assert found[0]["bleu"] == 100 > found[1]["bleu"] > 0
    (whole,) = bleu_by_length(sources, written, right, edges=())
    assert whole == {"words": "any", "sentences": 5, "bleu": round(bleu(written, right, tokenize="none").score, 2)}


@pytest.mark.parametrize("edges", [(0, 4), (4, 4), (5, 3)])
def test_groups_of_lengths_must_grow(edges):
    with pytest.raises(ValueError, match="must grow"):
        bleu_by_length(["a"], ["b"], ["c"], edges)
    with pytest.raises(ValueError, match="shorter"):
        bleu_by_length(["a", "b"], ["b"], ["c", "d"])


@pytest.mark.slow
def test_the_command_runs_as_a_module_too():
    start = [sys.executable, "-m", "transformer_lib"]
    told = subprocess.run([*start, "translate", "--help"], capture_output=True, text=True, check=True, timeout=120)
    assert told.stdout.startswith("usage: transformer-lib translate") and not told.stderr
    numbered = subprocess.run([*start, "--version"], capture_output=True, text=True, check=True, timeout=120)
    assert numbered.stdout == f"transformer-lib {transformer_lib.__version__}\n"
    wrong = subprocess.run([*start, "translate", "no such model"], capture_output=True, text=True, timeout=120)
    assert wrong.returncode == 1 and wrong.stderr.startswith("transformer-lib: error:")


@pytest.mark.slow
def test_evaluate_prints_json_and_writes_a_record(run_folder, tmp_path, capsys):
    record = tmp_path / "results" / "small.json"
    assert main(["evaluate", str(run_folder), "--json", "--device", "cpu", "--record", str(record)]) == 0
    scores = json.loads(capsys.readouterr().out)
    content = json.loads(record.read_text())
    assert content["metrics"]["test_bleu"] == {"value": scores["bleu"], "signature": scores["signature"]}
    assert content["command"].startswith("transformer-lib train --n-captions 300 --d-model 16")
    assert content["by_length"] == {"test": scores["by_length"]}
    assert sum(group["sentences"] for group in scores["by_length"]) == scores["sentences"]
    assert len(content["curves"]) == 2 and content["seeds"] == [0] and content["parameters"] == scores["parameters"]
    again = build_parser().parse_args(content["command"].split()[1:])
    chosen = {entry.name: getattr(again, entry.name) for entry in fields(TrainOptions)}
    assert TrainOptions(**{name: value for name, value in chosen.items() if value is not None}) == TrainOptions(**SMALL)


@pytest.mark.slow
def test_the_parts_of_the_captions_have_nothing_in_common():
    corpus = options_module.load_captions(TrainOptions(n_captions=500))
    parts = [{pair.source for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [500, 500, 1000]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]


@pytest.mark.slow
def test_captions_in_the_other_direction():
    directions = (("en", "de"), ("de", "en"))
    forward, backward = (
        options_module.load_captions(TrainOptions(n_captions=5, source=source, target=target))
        for source, target in directions
    )
    for one, other in zip(forward.train, backward.train, strict=True):
        assert (one.source, one.target) == (other.target, other.source)
        assert {(s, t) for s, t in one.alignment} == {(s, t) for t, s in other.alignment}


@pytest.mark.slow
def test_the_parts_have_no_german_sentence_in_common_either():
    corpus = options_module.load_captions(TrainOptions(n_captions=20_000, source="de", target="en"))
    parts = [{pair.source for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
    assert len(corpus.test) == 1000 and 19_000 < len(corpus.train) < 20_000  # different English, the same German
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]


def test_a_recorded_command_can_be_typed_again():
    options = TrainOptions(model="transformer", norm_first=True, data="my pairs.tsv", n_layers=2, warmup=7)
    fed = TrainOptions(model="luong-local-m", input_feeding=False, window=3)
    for each in (options, fed, TrainOptions(reverse_source=True)):
        given = build_parser().parse_args(["train", "--output", "x", *shlex.split(evaluation._typed(each))])
        chosen = {entry.name: getattr(given, entry.name) for entry in fields(TrainOptions)}
        assert TrainOptions(**{name: value for name, value in chosen.items() if value is not None}) == each


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target", "tokens"), [("en", "de", 12_103), ("de", "en", 12_968)])
def test_multi30k_has_the_published_number_of_reference_tokens(data_directory, source, target, tokens):
    corpus = options_module.load_multi30k_corpus(TrainOptions(data="multi30k", source=source, target=target))
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [29_000, 1_014, 1_000]
    assert sum(len(pair.target.split()) for pair in corpus.test) == tokens


# ---------------------------------------------------------------- bad input

BAD_OPTIONS = {
    "data": ({"data": "wmt"}, "data='wmt'"),
    "model": ({"model": "lstm"}, "model='lstm'"),
    "precision": ({"precision": "int8"}, "precision='int8'"),
    "preset": ({"preset": "huge", "model": "transformer"}, "preset='huge'"),
    "schedule": ({"schedule": "cosine"}, "schedule='cosine'"),
    "not a file of pairs": ({"data": "pairs.csv"}, "PATH.tsv"),
    "a width that a GRU has not": ({"d_ff": 64}, "d_ff=64 is no option"),
    "a state that a Transformer has not": ({"model": "transformer", "d_hidden": 64}, "d_hidden=64 is no option"),
    "backwards": ({"model": "transformer", "reverse_source": True}, "reverse_source=True is no option"),
    "a reader of both ways, backwards": ({"model": "bahdanau", "reverse_source": True}, "reverse_source=True is no"),
    "no width": ({"d_model": 0}, "d_model=0 must be at least 1"),
    "no layers": ({"n_layers": 0}, "n_layers=0 must be at least 1"),
    "half a head": ({"model": "transformer", "n_heads": 2.5}, "n_heads=2.5 must be a whole number"),
    "vocabulary": ({"vocab_size": -5}, "vocab_size=-5 must be at least 1"),
    "dropout": ({"dropout": 1.5}, "dropout=1.5 must be at least 0 and below 1"),
    "seed": ({"seed": -1}, "seed=-1 must be a whole number"),
    "one pass and a half": ({"epochs": 1.5}, "epochs=1.5 must be a whole number"),
    "smoothing": ({"smoothing": 1.0}, "smoothing=1.0"),
    "no batches": ({"accumulate": 0, "model": "transformer"}, "accumulate=0"),
    "nothing, which a GRU has not": ({"d_ff": 0}, "d_ff=0 is no option"),
    "a window that is not local": ({"model": "luong-global-dot", "window": 9}, "window=9 is no option"),
    "feeding that a GRU has not": ({"input_feeding": True}, "input_feeding=True is no option"),
    "captions": ({"n_captions": 0}, "n_captions=0"),
    "epochs": ({"epochs": 0}, "epochs=0"),
    "tokens": ({"max_tokens": -1}, "max_tokens=-1"),
    "patience": ({"patience": 0}, "patience=0"),
    "rate": ({"learning_rate": 0.0}, "learning_rate=0.0"),
    "infinite rate": ({"learning_rate": float("inf")}, "learning_rate=inf"),
    "nan rate": ({"learning_rate": float("nan")}, "learning_rate=nan"),
    "clip": ({"clip": -1.0}, "clip=-1.0"),
    "one language": ({"source": "de"}, "both 'de'"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_named(case):
    changes, message = BAD_OPTIONS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        TrainOptions(**changes)
    # With the annotations enforced, a wrong type may be caught before our own check; test_errors.py runs without.
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))


BAD_COMMANDS = {
    "unknown language": (["train", "--output", "{tmp}/x", "--source", "fr"], "'fr'"),
    "batch too small": (["train", "--output", "{tmp}/x", *ARGUMENTS, "--max-tokens", "3"], "max_tokens"),
    "vocabulary too small": (["train", "--output", "{tmp}/x", *ARGUMENTS, "--vocab-size", "7"], "vocab_size=7"),
    "no window": (["train", "--output", "{tmp}/x", *ARGUMENTS, "--window", "0"], "window=0"),
    "odd width": (
        ["train", "--output", "{tmp}/x", *ARGUMENTS, "--model", "bahdanau", "--d-hidden", "33"],
        "d_hidden=33",
    ),
    "both ways and backwards": (
        ["train", "--output", "{tmp}/x", *ARGUMENTS, "--model", "luong-global-dot", "--reverse-source"],
        "reverse_source",
    ),
    "width of nothing": (["train", "--output", "{tmp}/x", *ARGUMENTS, "--d-model", "0"], "d_model=0"),
    "a run is there": (["train", "--output", "{run}", *ARGUMENTS], "holds a run already"),
    "nothing to resume": (["train", "--output", "{tmp}/none", "--resume"], "holds no run"),
    "resume with options": (["train", "--output", "{run}", "--resume", "--epochs", "9"], "leave out epochs"),
    "save never": (["train", "--output", "{tmp}/x", "--save-every", "0"], "save_every=0"),
    "no such device": (["translate", "{run}", "--device", "cuda:99"], "cuda:99"),
    "no such backend": (["translate", "{run}", "--device", "abacus"], "abacus"),
    "a warm-up without end": (
        ["train", "--output", "{tmp}/x", *as_arguments(TINY), "--warmup", "500"],
        "warmup=500",
    ),
    "no file of pairs": (["train", "--output", "{tmp}/x", "--data", "{tmp}/none.tsv"], "none.tsv"),
    "heads that do not divide": (
        ["train", "--output", "{tmp}/x", "--model", "transformer", "--n-captions", "300", "--n-heads", "3"],
        "n_heads=3",
    ),
    "other weights": (["translate", "{run}", "--weights", "pass-7"], "pass-7"),
    "average without passes": (["average", "{run}"], "keeps no passes"),
    "average without a run": (["average", "{tmp}/none"], "holds no run"),
    "export without a run": (["export", "{tmp}/none", "--output", "{tmp}/x"], "holds no run"),
    "no beam": (["translate", "{run}", "{tmp}/in.txt", "--beam-size", "0"], "beam_size=0"),
    "nothing to record": (["evaluate", "captions-en-de", "--record", "{tmp}/x.json"], "no course of training"),
    "translate without a run": (["translate", "{tmp}/none"], "holds no run"),
    "evaluate without a run": (["evaluate", "{tmp}/none"], "holds no run"),
    "no input file": (["translate", "{run}", "{tmp}/none.txt"], "none.txt"),
    "no length": (["translate", "{run}", "{tmp}/in.txt", "--max-length", "0"], "max_length=0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BAD_COMMANDS)
def test_bad_commands_end_in_one_line_and_lose_nothing(case, run_folder, tmp_path, capsys):
    arguments, message = BAD_COMMANDS[case]
    (tmp_path / "in.txt").write_text("the cat\n")
    before = {path.name: path.read_bytes() for path in run_folder.iterdir()}
    assert main([part.format(tmp=tmp_path, run=run_folder) for part in arguments]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("transformer-lib: error: ") and message in error
    assert {path.name: path.read_bytes() for path in run_folder.iterdir()} == before
    assert not (tmp_path / "x" / "config.json").exists()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("best.safetensors", lambda content: content[: len(content) // 2], "not a readable checkpoint"),
        ("best.safetensors", lambda content: b"", "not a readable checkpoint"),
        ("best.safetensors", lambda content: b"\xff" * len(content), "not a readable checkpoint"),
        ("config.json", lambda content: content[:20], "not the configuration of a run"),
        ("config.json", lambda content: b"[1, 2]", "not the configuration of a run"),
        ("config.json", lambda content: content.replace(b'"gru"', b'"xyz"'), "model='xyz'"),
        ("config.json", lambda content: content.replace(b'"d_hidden": 32', b'"d_hidden": 31'), "has shape"),
        ("source.json", lambda content: content[:50], "source.json"),
    ],
)
def test_damaged_files_are_refused(name, damage, message, run_folder, tmp_path, capsys):
    folder = shutil.copytree(run_folder, tmp_path / "copy")
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    assert main(["evaluate", str(folder), "--device", "cpu"]) == 1
    assert message in capsys.readouterr().err


def test_a_truncated_checkpoint_is_not_resumed(run_folder, tmp_path, capsys):
    folder = shutil.copytree(run_folder, tmp_path / "copy")
    path = folder / "last.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["train", "--output", str(folder), "--resume", "--device", "cpu"]) == 1
    assert "not a readable checkpoint" in capsys.readouterr().err


def test_an_unknown_part_is_named(run_folder):
    with pytest.raises(ValueError, match="part='train'"):
        evaluate_run(run_folder, "train")


def test_every_option_is_explained(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for entry in fields(TrainOptions):
        assert f"--{entry.name.replace('_', '-')}" in shown
    assert "halved after each pass that does not lower the validation loss" in shown


def test_devices():
    assert pick_device("cpu") == CPU
    assert pick_device("auto").type in {"cpu", "cuda", "mps"}


def test_a_record_needs_a_run(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        record_run(tmp_path, [], tmp_path / "record.json")
    assert not (tmp_path / "record.json").exists()
