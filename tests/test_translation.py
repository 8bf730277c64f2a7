"""The command line: train, stop, resume, translate, evaluate; and what happens when something is wrong."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields

import pytest
import torch

from transformer_lib import translation
from transformer_lib.data import Batch
from transformer_lib.translation import (
    Interrupt,
    TrainOptions,
    Translator,
    build_parser,
    evaluate_run,
    load_tensors,
    main,
    pick_device,
    read_options,
    record_run,
    resume_run,
    save_tensors,
    start_run,
    train_run,
)

CPU = torch.device("cpu")
SMALL = {"n_captions": 300, "d_model": 16, "d_hidden": 32, "epochs": 2, "max_tokens": 600, "dropout": 0.2}
ARGUMENTS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def quiet(line: str) -> None:
    """Report nothing."""


@pytest.fixture(scope="module", autouse=True)
def captions_once():
    """Generate equal captions once: they are the same every time, and most tests begin with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation, "make_captions", functools.lru_cache(translation.make_captions))
        yield


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run that came to its end."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    assert main(["train", "--output", str(folder), "--device", "cpu", *ARGUMENTS]) == 0
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
def test_a_run_that_is_stopped_and_resumed_ends_the_same_to_the_bit(run_folder, tmp_path, monkeypatch, stop_after):
    taken = []
    train_on = translation.train_on

    def train_and_count(model, batches, *rest):
        loss = train_on(model, batches, *rest)
        taken.append(loss)
        if len(taken) == stop_after:
            os.kill(os.getpid(), signal.SIGINT)
        return loss

    monkeypatch.setattr(translation, "train_on", train_and_count)
    folder = tmp_path / "stopped"
    assert main(["train", "--output", str(folder), "--device", "cpu", *ARGUMENTS]) == 130
    assert len(taken) == stop_after
    torch.manual_seed(12345)  # whatever happens between the two processes
    assert main(["train", "--output", str(folder), "--device", "cpu", "--resume"]) == 0
    assert_same_run(run_folder, folder)


def updates(folder) -> int:
    return load_tensors(folder / "last.safetensors")[1]["progress"]["update"]


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_ends_the_same_to_the_bit(tmp_path):
    def command(folder):
        program = "import sys; from transformer_lib.translation import main; sys.exit(main())"
        start = [sys.executable, "-c", program, "train", "--output", str(folder), "--device", "cpu"]
        return [*start, "--save-every", "1"]

    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command(whole), *ARGUMENTS], check=True, env=environment, capture_output=True, timeout=120)
    process = subprocess.Popen([*command(killed), *ARGUMENTS], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (killed / "config.json").exists() and updates(killed) >= 2:
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert load_tensors(killed / "last.safetensors")[1]["progress"]["epoch"] < 2, "the run ended before it was killed"
    subprocess.run([*command(killed), "--resume"], check=True, env=environment, capture_output=True, timeout=120)
    assert_same_run(whole, killed)


def test_resuming_a_finished_run_changes_nothing(run_folder, tmp_path):
    before = {path.name: path.read_bytes() for path in run_folder.iterdir()}
    assert main(["train", "--output", str(run_folder), "--resume", "--device", "cpu"]) == 0
    assert {path.name: path.read_bytes() for path in run_folder.iterdir()} == before


def test_training_stops_when_the_validation_loss_stops_falling(tmp_path, monkeypatch):
    losses = iter([2.0, 1.0, 1.5, 1.25, 0.5])
    monkeypatch.setattr(translation, "evaluate_loss", lambda *_: next(losses))
    run = start_run(TrainOptions(**{**SMALL, "epochs": 9, "patience": 2}), tmp_path / "run", CPU)
    assert train_run(run, tmp_path / "run", quiet) is True
    assert run.progress.epoch == 4 and run.progress.best == 1.0
    rates = [line["learning_rate"] for line in run.progress.log]
    assert rates == [0.002, 0.002, 0.002, 0.001]
    assert load_tensors(tmp_path / "run" / "best.safetensors")[1]["pass"] == 2


def test_the_second_interrupt_stops_at_once():
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.wished
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


# ---------------------------------------------------------------- translating


def test_translation_keeps_order_empty_lines_and_mode(run_folder):
    translator = Translator.from_pretrained(run_folder, "cpu")
    lines = ["a dog is running in the park", "", "the cat", "   ", "zebra crossing 🦓", "the cat"]
    together = translator.translate(lines)
    assert together[1] == together[3] == "" and together[2] == together[5]
    assert all(translator.translate([line]) == [text] for line, text in zip(lines, together, strict=True))
    for training in (True, False):
        translator.model.train(training)
        assert translator.translate(lines) == together
        assert translator.model.training is training
    assert translator.translate([]) == []


def test_blank_lines_never_reach_the_model(run_folder, monkeypatch):
    seen = []
    monkeypatch.setattr(translation, "translate", lambda model, lines, *_: seen.extend(lines) or ["x"] * len(lines))
    assert Translator.from_pretrained(run_folder, "cpu").translate(["", "the cat", " \t"]) == ["", "x", ""]
    assert seen == ["the cat"]


@pytest.mark.slow
def test_every_pass_has_an_order_of_its_own(tmp_path, monkeypatch):
    epochs, batches = [], translation.batches

    def noting(examples, max_tokens, seed=None, epoch=0):
        if seed is not None:
            epochs.append((seed, epoch))
        return batches(examples, max_tokens, seed=seed, epoch=epoch)

    monkeypatch.setattr(translation, "batches", noting)
    run = start_run(TrainOptions(**SMALL, seed=5), tmp_path / "run", CPU)
    assert train_run(run, tmp_path / "run", quiet)
    assert epochs == [(5, 0), (5, 1)]


def test_a_line_longer_than_any_batch_is_translated_too(run_folder):
    translator = Translator.from_pretrained(run_folder, "cpu")
    assert len(translator.translate(["the dog " * 300, "the cat"], max_tokens=50, max_length=20)) == 2


def test_moses_text_is_tokenised_on_the_way_in_and_joined_on_the_way_out(run_folder, monkeypatch):
    translator = Translator.from_pretrained(run_folder, "cpu")
    translator.moses = True
    seen = []
    answer = ["ein hund , rennt ."]
    monkeypatch.setattr(translator, "translate_tokenized", lambda texts, *_: seen.extend(texts) or answer)
    assert translator.translate(["A dog, running."]) == ["ein hund, rennt."]
    assert seen == ["a dog , running ."]


def test_the_command_translates_files_and_streams(run_folder, tmp_path, capsys, monkeypatch):
    import io

    text = "a dog is running\n\nthe cat\n"
    translations = Translator.from_pretrained(run_folder, "cpu").translate(text.split("\n")[:3])
    expected = "".join(line + "\n" for line in translations)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["translate", str(run_folder), "--device", "cpu"]) == 0
    assert capsys.readouterr().out == expected
    (tmp_path / "in.txt").write_text(text)
    assert main(["translate", str(run_folder), str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")]) == 0
    assert (tmp_path / "out.txt").read_text() == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["translate", str(run_folder)]) == 0
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------- every model

KINDS = [name for name in translation.MODELS if name != "gru"]


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.slow
def test_every_model_trains_resumes_translates_and_is_scored_by_the_same_command(model, tmp_path, capsys, monkeypatch):
    import io

    folder, captions = tmp_path / model, TrainOptions(n_captions=300)
    arguments = [*ARGUMENTS, "--model", model, "--epochs", "1", "--window", "2", "--n-layers", "2"]
    assert main(["train", "--output", str(folder), "--device", "cpu", *arguments]) == 0
    assert read_options(folder)[0].model == model
    assert main(["train", "--output", str(folder), "--device", "cpu", "--resume"]) == 0
    corpus = translation.load_captions(captions)
    monkeypatch.setattr(translation, "load_captions", None)
    small = translation.Corpus(corpus.train, corpus.validation[:30], corpus.test[:30], moses=False)
    monkeypatch.setitem(translation.CORPORA, "captions", lambda _: small)
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
    from transformer_lib import alignment, hard_attention, scores

    options = TrainOptions(model=model, d_model=8, d_hidden=16, n_layers=2, window=3, input_feeding=False)
    made = translation.MODELS[model](options, 11, 13)
    assert (made.config.d_model, made.config.d_hidden, made.config.n_layers) == (8, 16, 2)
    attention, name = made.decoder.attention, model.split("-")
    if model == "bahdanau":
        assert type(made.decoder) is alignment.BahdanauDecoder and type(attention.score) is alignment.AdditiveScore
        return
    assert made.config.input_feeding is False
    unsaid = translation.MODELS[model](TrainOptions(model=model), 11, 13).config
    assert unsaid.input_feeding is (name[0] == "luong")
    if name[0] == "hard":
        assert type(attention) is hard_attention.HardAttention and type(attention.score) is scores.GeneralScore
        assert attention.estimator == ("gumbel" if "gumbel" in name else "reinforce")
        return
    assert made.config.window == 3
    if name[0] == "luong" and name[1] == "global":
        assert type(attention) is alignment.Attention
        assert type(attention.score).__name__ == f"{name[2].capitalize()}Score"
    elif name[0] == "luong":
        assert type(attention) is scores.LocalAttention and type(attention.score) is scores.GeneralScore
        assert (attention.predict is not None) == (name[2] == "p")


def test_the_alignment_is_scored_only_where_there_is_one(run_folder):
    assert "alignment_error_rate" not in evaluate_run(run_folder, "validation", "cpu")  # no attention, no alignment


@pytest.mark.parametrize(("data", "count"), [("multi30k", 15), ("zapier", 1)])
def test_the_command_fetches_every_file_of_a_data_set(data, count, monkeypatch, capsys):
    fetched = []
    monkeypatch.setattr(translation, "fetch", lambda file: fetched.append(file) or f"/cache/{file.name}")
    assert main(["download", data]) == 0
    assert len(fetched) == count and {file.dataset for file in fetched} == {data}
    assert capsys.readouterr().out.splitlines() == [f"/cache/{file.name}" for file in fetched]


# ---------------------------------------------------------------- evaluating and recording


def test_evaluation_scores_what_the_model_writes(run_folder):
    from transformer_lib.metrics import bleu, exact_match

    scores = evaluate_run(run_folder, "validation", "cpu")
    options, _ = read_options(run_folder)
    pairs = translation.load_captions(options).validation
    translator = Translator.from_pretrained(run_folder, "cpu")
    written = translator.translate_tokenized([pair.source for pair in pairs])
    right = [pair.target for pair in pairs]
    assert scores["bleu"] == round(bleu(written, right, tokenize="none").score, 2)
    assert scores["exact_match"] == round(100 * exact_match(written, right), 2)
    assert scores["sentences"] == 500 and "tok:none" in scores["signature"]
    best = load_tensors(run_folder / "best.safetensors")[1]["validation_loss"]
    assert scores["loss"] == pytest.approx(best, abs=2e-4)


def test_evaluate_prints_json_and_writes_a_record(run_folder, tmp_path, capsys):
    record = tmp_path / "results" / "small.json"
    assert main(["evaluate", str(run_folder), "--json", "--device", "cpu", "--record", str(record)]) == 0
    scores = json.loads(capsys.readouterr().out)
    content = json.loads(record.read_text())
    assert content["metrics"]["test_bleu"] == {"value": scores["bleu"], "signature": scores["signature"]}
    assert content["command"].startswith("transformer-lib train --n-captions 300 --d-model 16")
    assert len(content["curves"]) == 2 and content["seeds"] == [0] and content["parameters"] == scores["parameters"]
    again = build_parser().parse_args(content["command"].split()[1:])
    chosen = {entry.name: getattr(again, entry.name) for entry in fields(TrainOptions)}
    assert TrainOptions(**{name: value for name, value in chosen.items() if value is not None}) == TrainOptions(**SMALL)


@pytest.mark.slow
def test_the_parts_of_the_captions_have_nothing_in_common():
    corpus = translation.load_captions(TrainOptions(n_captions=500))
    parts = [{pair.source for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [500, 500, 1000]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]


@pytest.mark.slow
def test_captions_in_the_other_direction():
    directions = (("en", "de"), ("de", "en"))
    forward, backward = (
        translation.load_captions(TrainOptions(n_captions=5, source=source, target=target))
        for source, target in directions
    )
    for one, other in zip(forward.train, backward.train, strict=True):
        assert (one.source, one.target) == (other.target, other.source)
        assert {(s, t) for s, t in one.alignment} == {(s, t) for t, s in other.alignment}


@pytest.mark.parametrize(("source", "target", "tokens"), [("en", "de", 12_103), ("de", "en", 12_968)])
def test_multi30k_has_the_published_number_of_reference_tokens(data_directory, source, target, tokens):
    corpus = translation.load_multi30k_corpus(TrainOptions(data="multi30k", source=source, target=target))
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [29_000, 1_014, 1_000]
    assert sum(len(pair.target.split()) for pair in corpus.test) == tokens


# ---------------------------------------------------------------- bad input

BAD_OPTIONS = {
    "data": ({"data": "wmt"}, "data='wmt'"),
    "model": ({"model": "lstm"}, "model='lstm'"),
    "precision": ({"precision": "int8"}, "precision='int8'"),
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
    with pytest.raises(ValueError, match=message):
        TrainOptions(**changes)


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
    "translate without a run": (["translate", "{tmp}/none"], "holds no run"),
    "evaluate without a run": (["evaluate", "{tmp}/none"], "holds no run"),
    "no input file": (["translate", "{run}", "{tmp}/none.txt"], "none.txt"),
    "no length": (["translate", "{run}", "{tmp}/in.txt", "--max-length", "0"], "max_length=0"),
}


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
    import shutil

    folder = shutil.copytree(run_folder, tmp_path / "copy")
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    assert main(["evaluate", str(folder), "--device", "cpu"]) == 1
    assert message in capsys.readouterr().err


def test_a_truncated_checkpoint_is_not_resumed(run_folder, tmp_path, capsys):
    import shutil

    folder = shutil.copytree(run_folder, tmp_path / "copy")
    path = folder / "last.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["train", "--output", str(folder), "--resume", "--device", "cpu"]) == 1
    assert "not a readable checkpoint" in capsys.readouterr().err


def test_a_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.ones(3)}, {"step": 1})
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_tensors(path, {"a": torch.zeros(3)}, {"step": 2})
    tensors, notes = load_tensors(path)
    assert torch.equal(tensors["a"], torch.ones(3)) and notes == {"step": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.safetensors"]


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


def test_resume_puts_the_learning_rate_back(tmp_path):
    run = start_run(TrainOptions(**SMALL), tmp_path / "run", CPU)
    run.optimizer.param_groups[0]["lr"] = 0.000125
    run.save(tmp_path / "run" / "last.safetensors")
    assert resume_run(tmp_path / "run", CPU).optimizer.param_groups[0]["lr"] == 0.000125


def test_a_record_needs_a_run(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        record_run(tmp_path, [], tmp_path / "record.json")
    assert not (tmp_path / "record.json").exists()


def test_batches_are_what_training_takes(run_folder):
    run = resume_run(run_folder, CPU)
    assert run.progress.epoch == 2 and isinstance(next(iter(translation.batches([([2], [1, 2])], 10))), Batch)
