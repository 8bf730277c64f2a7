"""Runs: begun, interrupted, resumed to the bit, trained longer, fine-tuned, and independent of the defaults."""

import json
import shutil
from dataclasses import dataclass, replace

import pytest
import torch
from runs import CPU, assert_same_run, begin, everything, options, pairs_file, run_folder, write_pairs

import transformer_lib.translation.run as run_module
from transformer_lib.data.batching import Pair
from transformer_lib.data.captions import make_captions
from transformer_lib.data.corpus import tokenize_corpus
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models import registry
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.training.trainer import Trainer
from transformer_lib.translation.evaluation import evaluate_run
from transformer_lib.translation.export import export_run
from transformer_lib.translation.run import TrainOptions, create_run, load_corpus, locked, open_run, read_options
from transformer_lib.translation.translator import Translator, find_pretrained, read_config, weights_file


def test_training_lowers_the_loss_and_leaves_a_complete_folder():
    folder = run_folder()
    files = {path.name for path in folder.iterdir()}
    assert files == {
        "config.json", "source.json", "target.json", "last.safetensors", "best.safetensors", "log.jsonl", "corpus",
    }  # fmt: skip
    log = load_tensors(folder / "last.safetensors")[1]["progress"]["log"]
    assert log[1]["validation_loss"] < log[0]["validation_loss"] < 6
    assert read_options(folder)[1] == options()


def test_the_same_options_give_the_same_bits_and_leave_the_world_its_random_numbers(tmp_path):
    torch.manual_seed(5)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    run = begin(options(), tmp_path / "again")
    torch.rand(1)  # whatever the caller draws in between
    torch.manual_seed(5)
    assert run.trainer.fit() and torch.equal(torch.rand(3), drawn)
    assert_same_run(run_folder(), tmp_path / "again")


@pytest.mark.parametrize("data", ["a file", "captions"])
def test_a_corpus_in_capitals_is_read_as_the_translator_will_read_it(data, tmp_path):
    lines = [f"THE {one} CAT SEES A {two} DOG.\tDie Katze." for one in "ABCDEFGH" for two in "STUVWXYZ"]
    for name in ("pairs.tsv", "more.tsv"):
        (tmp_path / name).write_text("\n".join(lines if name == "pairs.tsv" else lines[::-1]) + "\n", encoding="utf-8")
    own = {"data": str(tmp_path / "pairs.tsv")} if data == "a file" else {"n_captions": 40}
    chosen = TrainOptions(**own, extra=str(tmp_path / "more.tsv"))
    for part in load_corpus(chosen)[:3]:
        sources = [pair.source if isinstance(pair, Pair) else pair[0] for pair in part]
        assert sources == [*map(chosen.preparation().prepare, sources)] and not any(map(str.isupper, sources))


def test_a_noisy_run_with_joined_pairs_resumes_to_the_bit(tmp_path):
    write_pairs(tmp_path / "few.tsv", 60)
    training = {"max_tokens": 55, "epochs": 1}
    plan = options(
        data=str(tmp_path / "few.tsv"), noise=0.2, capitals=0.1, joined=0.5, bpe_dropout=0.1, training=training
    )
    assert not create_run(plan, tmp_path / "whole")  # a joined line that is too long is no pair
    whole = open_run(tmp_path / "whole", CPU).trainer
    assert 54 < len(whole.train) == 54 + whole.train.joined < 81 and not whole.validation.joined
    noise = whole.batches.dataset.transforms[0]
    assert {noise.typo, noise.no_capital, noise.no_full_stop} == {0.2} and noise.all_capitals == 0.1
    assert whole.fit() and not begin(plan, tmp_path / "parts").trainer.fit(watch=lambda loss: True)
    assert open_run(tmp_path / "parts", CPU).trainer.fit()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_further_pairs_are_for_training_alone(tmp_path):
    own, extra = tmp_path / "own.tsv", tmp_path / "extra.tsv"
    pairs = write_pairs(own)
    held = load_corpus(options(data=str(own))).test[0].source
    extra.write_text(f"a small zebra sleeps\tein kleines Zebra schläft\n{held}\tein Hund\n", encoding="utf-8")
    plan = options(data=str(own), extra=str(extra))
    for given in (plan, replace(plan, data="captions", n_captions=100, vocab_size=None)):
        with_it, without = load_corpus(given), load_corpus(replace(given, extra=None))
        assert (with_it.validation, with_it.test) == (without.validation, without.test)
        new = list(with_it.train)[len(list(without.train)) :]
        named = given.data == "captions"  # whose sentences are others, so no pair is left out
        assert [pair[0] for pair in new] == ["a small zebra sleeps", held][: 1 + named]
    run = begin(plan, tmp_path / "run")
    assert len(run.trainer.train) == len(pairs) - 12 + 1 and run.trainer.fit()
    card = (export_run(tmp_path / "run", tmp_path / "small") / "README.md").read_text()
    extra.unlink()
    assert "--extra extra.tsv" in card and str(tmp_path) not in card
    assert evaluate_run(tmp_path / "run", device="cpu")["sentences"] == 6
    with pytest.raises(ValueError, match="is no file"):
        create_run(plan, tmp_path / "new")
    extra.write_text("no pair\n")
    for given in (plan, replace(plan, data="captions", n_captions=100, vocab_size=None)):
        with pytest.raises(ValueError, match="line 1: expected two texts"):
            load_corpus(given)
        assert load_corpus(replace(given, skip_bad=True)).notes == ("left out 1 lines that are no pair: 1",)


@pytest.mark.parametrize("data", ["a file", "captions"])
def test_further_pairs_that_repeat_themselves_without_end_are_left_out_and_counted(data, tmp_path):
    own, extra = tmp_path / "own.tsv", tmp_path / "extra.tsv"
    write_pairs(own)
    own.write_text(own.read_text("utf-8") + f"a zebra\t{'h' * 40}\n", encoding="utf-8")  # yours stays
    kept = [("zebra", "h" * 9), ("zebra " + "." * 40, "- " * 20), ("in 1000000000", "very, " * 9)]
    endless = ["h" * 10, "die Num" + "mer" * 10, "sehr " * 9 + "sehr", "1" + "02" * 10, "ein Hund, " * 12]
    gone = [pair for text in endless for pair in ((text, "Hund"), ("dog", text))]
    lines = (f"{source}\t{target}\n" for source, target in [*gone, *kept])
    extra.write_text("".join(lines), encoding="utf-8")
    given = options(data=str(own), extra=str(extra))
    if data == "captions":
        given = replace(given, data=data, n_captions=100, vocab_size=None)
    corpus, without = load_corpus(given), load_corpus(replace(given, extra=None))
    new = list(corpus.train)[len(list(without.train)) :]
    assert [pair[1] for pair in new] == [target.strip() for _, target in kept]
    assert corpus.notes == ("left out 10 extra pairs that repeat a letter, a word or a phrase ten times in a row",)
    assert not without.notes and ("h" * 40 in str([*map(list, without[:3])])) == (data == "a file")


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    folder = shutil.copytree(run_folder(), tmp_path / "copy")
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    assert open_run(folder, CPU).trainer.fit()
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before


def test_a_finished_run_is_trained_longer_than_planned(tmp_path):
    folder = shutil.copytree(run_folder("transformer"), tmp_path / "copy")
    planned = read_options(folder)[1].training["epochs"]
    before = load_tensors(folder / "last.safetensors")[1]["progress"]["log"]
    run = open_run(folder, CPU, epochs=planned + 2)
    assert run.trainer.config.epochs == planned + 2
    assert open_run(folder, CPU, epochs=planned + 2).trainer.fit()  # the new plan is stored, once
    assert read_config(folder).notes == {"resumed": [{"epochs": planned + 2}]}
    log = load_tensors(folder / "last.safetensors")[1]["progress"]["log"]
    assert len(log) == planned + 2 and log[:planned] == before
    with pytest.raises(ValueError, match="has trained for"):
        open_run(folder, CPU, epochs=1)


def test_a_recurrent_model_is_slowed_down_and_stopped_when_the_validation_loss_stops_falling(tmp_path, monkeypatch):
    losses = iter([2.0, 1.0, 1.5, 1.25, 0.5])
    monkeypatch.setattr(Trainer, "evaluate", lambda self: next(losses))
    run = begin(options(training={"epochs": 9, "patience": 2}), tmp_path / "run")
    assert run.trainer.fit() is True
    assert run.trainer.progress.epoch == 4 and run.trainer.progress.best == 1.0
    assert [line["learning_rate"] for line in run.trainer.progress.log] == [0.002, 0.002, 0.002, 0.001]


# ---------------------------------------------------------------- self-contained


@pytest.fixture
def other_defaults(monkeypatch):
    """The library as it may be in a year: every default is another."""
    monkeypatch.setitem(run_module.TABLES, "models", {})
    changed = {"epochs": 1, "learning_rate": 1.0, "schedule": "constant", "warmup": 0, "smoothing": 0.5, "average": 0}
    monkeypatch.setitem(run_module.TABLES, "training", {"transformers": changed, "others": changed})


@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_a_saved_model_depends_on_no_default(model, request, tmp_path):
    folder = shutil.copytree(run_folder(model), tmp_path / "copy")
    before = [Translator.from_pretrained(name, device="cpu") for name in (folder, "captions-en-de")]
    resumed = open_run(folder, CPU).trainer.config
    request.getfixturevalue("other_defaults")
    after = [Translator.from_pretrained(name, device="cpu") for name in (folder, "captions-en-de")]
    assert open_run(folder, CPU).trainer.config == resumed
    for one, other in zip(before, after, strict=True):
        assert one.model.config == other.model.config
        assert one.search(["the dog is sleeping"]) == other.search(["the dog is sleeping"])


@dataclass(frozen=True)
class MyConfig(RecurrentConfig):
    """A model of one's own.

    Args:
        shout: how loud.
    """

    shout: int = 1


class MyModel(RecurrentSeq2Seq):
    """Writes louder."""

    def decode(self, target, memory):
        return super().decode(target, memory) * self.config.shout


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    registry.register_model("ours", MyConfig, MyModel)


def test_a_model_of_ones_own_trains_saves_loads_and_translates(registered, tmp_path):
    mine = options("ours", model_options={"d_model": 8, "d_hidden": 8, "shout": 2})
    run = begin(mine, tmp_path / "run")
    assert run.trainer.fit()
    loaded = Translator.from_pretrained(tmp_path / "run", device="cpu")
    assert type(loaded.model) is MyModel and loaded.model.config.shout == 2
    saved = run.translator.save_pretrained(tmp_path / "saved")
    texts = ["the dog is sleeping", "a cat"]
    assert Translator.from_pretrained(saved, device="cpu").search(texts) == run.translator.search(texts)
    with pytest.raises(ValueError, match="shout: no option of the model 'gru'"):
        options("gru", model_options={"shout": 2})


def test_a_name_belongs_to_one_class_which_a_cell_may_define_again(registered):
    old = registry.build_model("ours", {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": 8, "d_hidden": 8})
    again = type("MyModel", (RecurrentSeq2Seq,), {"__module__": __name__})
    registry.register_model("ours", MyConfig, again)
    assert registry.model_entry("ours").model_class is again
    assert registry.model_name(old) == "ours"  # so that it can be saved
    registry.register_model("twice", MyConfig, type(old))
    assert registry.model_name(old) == "twice"  # the class itself before one of the same place
    stranger = type("RecurrentSeq2Seq", (RecurrentSeq2Seq,), {})
    with pytest.raises(ValueError, match=r"'gru' is taken by transformer_lib\.models\.recurrent\.RecurrentSeq2Seq"):
        registry.register_model("gru", RecurrentConfig, stranger)


def test_an_unregistered_model_is_named(monkeypatch):
    monkeypatch.delitem(registry._BUILT_IN, "gru")
    with pytest.raises(ValueError, match="model='gru' is unknown"):
        Translator.from_pretrained(run_folder())


# ---------------------------------------------------------------- fine-tuning


def test_a_shipped_translator_is_fine_tuned_and_says_what_it_cannot_learn(tmp_path):
    path = tmp_path / "mine.tsv"
    pairs = write_pairs(path, 60)
    path.write_text("".join(f"{pair.source}\t{pair.target} fürwahr\n" for pair in pairs), encoding="utf-8")
    plan = TrainOptions(data=str(path), start_from="captions-en-de", training={"epochs": 1})
    (note,) = create_run(plan, tmp_path / "fine")
    assert "target words are unknown to captions-en-de" in note and note.endswith("fürwahr")
    run = open_run(tmp_path / "fine", CPU)
    start = Translator.from_pretrained("captions-en-de", device="cpu")
    assert run.translator.model.config == start.model.config and run.translator.text == start.text
    assert run.translator.target_tokenizer == start.target_tokenizer
    same = zip(run.translator.model.parameters(), start.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in same)
    assert run.trainer.fit()
    assert open_run(tmp_path / "fine", CPU).trainer.progress.epoch == 1
    assert Translator.from_pretrained(tmp_path / "fine", device="cpu").text.kind == "captions"


def test_captions_of_people_are_learned_and_scored_as_they_are_read_later(tmp_path):
    path = tmp_path / "mine.tsv"
    pairs = make_captions(60, seed=3, max_length=8)
    lines = (f"{p.source[0].upper()}{p.source[1:]}.\t{p.target[0].upper()}{p.target[1:]}.\n" for p in pairs)
    text = "".join(lines).replace(" ,", ",") + "...\t...\n"  # nothing is left of the last line
    path.write_text(text, encoding="utf-8")
    plan = TrainOptions(data=str(path), start_from="captions-en-de", training={"epochs": 1, "warmup": 0})
    assert create_run(plan, tmp_path / "fine") == ["left out, as nothing remains of one side: 1 of the pairs"]
    run = open_run(tmp_path / "fine", CPU)
    one, other = run.translator.source_tokenizer, run.translator.target_tokenizer
    learned = {(one.decode(map(int, source)), other.decode(map(int, target))) for source, target in run.trainer.train}
    assert learned < {(pair.source, pair.target) for pair in pairs}
    assert run.trainer.fit()
    assert evaluate_run(tmp_path / "fine", device="cpu")["exact_match"] == 100
    assert Translator.from_pretrained(tmp_path / "fine", device="cpu")("The dog sleeps.") == "Der Hund schläft."


@pytest.mark.parametrize("data", ["a file", "captions"])
def test_no_further_pair_is_learned_whose_source_is_held_back(data, tmp_path):
    given = options() if data == "a file" else options(data="captions", n_captions=100, vocab_size=None)
    held = [pair.source for part in load_corpus(given)[1:3] for pair in part]
    (tmp_path / "extra.tsv").write_text("".join(f"{text}\tHund\n" for text in [*held, "a zebra"]), encoding="utf-8")
    learned = [*load_corpus(replace(given, extra=str(tmp_path / "extra.tsv"))).train]
    assert len(learned) == 1 + len([*load_corpus(given).train])


# ---------------------------------------------------------------- what is refused


def test_a_run_keeps_its_corpus(tmp_path):
    path = tmp_path / "mine.tsv"
    write_pairs(path)
    run = begin(options(data=str(path)), tmp_path / "run")
    path.unlink()
    again = open_run(tmp_path / "run", CPU)
    assert [side.tolist() for side in again.trainer.train[7]] == [side.tolist() for side in run.trainer.train[7]]
    shutil.rmtree(tmp_path / "run" / "corpus")
    with pytest.raises(ValueError, match="was not trained here"):
        open_run(tmp_path / "run", CPU)


@pytest.mark.parametrize("place", ["corpus/mine.tsv", "corpus.txt", "source.json", "x/corpus/train"])
def test_other_files_in_the_folder_of_a_run_are_left_alone(place, tmp_path):
    folder, path = tmp_path / "run", tmp_path / "run" / place
    path.parent.mkdir(parents=True)
    write_pairs(path)
    for data in (path, pairs_file()):
        with pytest.raises(ValueError, match="is not empty"):
            create_run(options(data=str(data)), folder)
    words = Tokenizer.train(["a b"], level="word")
    with pytest.raises(ValueError, match="is not empty"):
        tokenize_corpus([("a", "b")], words, words, path.parent)
    assert path.read_text() and [one for one in folder.rglob("*") if one.is_file()] == [path]


def test_an_average_of_fewer_epochs_is_not_taken_for_the_present_one(tmp_path):
    folder = shutil.copytree(run_folder("transformer"), tmp_path / "copy")
    planned = read_options(folder)[1].training["epochs"]
    assert weights_file(folder).stem == "averaged"
    (folder / "film.part").write_text("mine")
    (folder / f"x.safetensors.{'0' * 32}.part").write_text("what a killed process was writing")
    trainer = open_run(folder, CPU, epochs=planned + 9).trainer
    assert [path.name for path in folder.glob("*.part")] == ["film.part"]
    assert not trainer.fit(watch=lambda _: trainer.progress.epoch > planned)
    assert weights_file(folder).stem == "best"


def test_a_translator_is_fine_tuned_with_its_own_model(tmp_path):
    folder = shutil.copytree(run_folder("gru"), tmp_path / "copy")
    plan = options("transformer", start_from=str(folder), model_options={}, vocab_size=None)
    create_run(plan, tmp_path / "run")
    config, plan = read_options(tmp_path / "run")
    assert plan.model == config.model.name == "gru"
    shutil.rmtree(folder)  # the translator that it began with
    assert read_options(tmp_path / "run")[1] == plan


@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_a_translator_learns_on_with_another_dropout(tmp_path, model):
    start = Translator.from_pretrained(run_folder(model), device="cpu").model
    plan = options("transformer", start_from=str(run_folder(model)), model_options={"dropout": 0.45}, vocab_size=None)
    create_run(plan, tmp_path / "run")
    other = open_run(tmp_path / "run", CPU).translator.model
    assert start.config.dropout != 0.45 and other.config == replace(start.config, dropout=0.45)
    assert {module.p for module in other.modules() if isinstance(module, torch.nn.Dropout)} >= {0.45}
    same = zip(other.state_dict().values(), start.state_dict().values(), strict=True)
    assert all(torch.equal(one, another) for one, another in same)


def test_other_dropout_is_a_share_that_the_model_has(tmp_path):
    for name, share, told in (("attention_dropout", 0.1, "no option of the model 'gru'"), ("dropout", 1.5, "dropout")):
        plan = options("transformer", start_from=str(run_folder("gru")), model_options={name: share}, vocab_size=None)
        with pytest.raises(ValueError, match=told):
            create_run(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_pair_that_is_too_long_is_told_or_left_out(tmp_path):
    path = tmp_path / "mine.tsv"
    write_pairs(path)
    path.write_text(path.read_text() + f"{'the dog ' * 600}\tder Hund\n")
    plan = options("transformer", data=str(path), training={"max_tokens": 1024, "warmup": 1})
    with pytest.raises(ValueError, match=r"1 pairs have over 1024 tokens; --skip-bad"):
        create_run(plan, tmp_path / "run")
    assert not (tmp_path / "run" / "corpus").exists()
    notes = create_run(replace(plan, skip_bad=True), tmp_path / "run")
    assert notes == ["left out 1 pairs of the train part that are too long"]
    assert len(open_run(tmp_path / "run", CPU).trainer.train) == 108
    short = begin(replace(plan, max_length=30), tmp_path / "short")
    assert max(len(side) for pair in short.trainer.train for side in pair) <= 30


def test_two_trainings_do_not_share_a_folder(tmp_path):
    with (
        locked(tmp_path / "run"),
        pytest.raises(ValueError, match="is in use: another process trains in it"),
        locked(tmp_path / "run"),
    ):
        pass
    assert not (tmp_path / "run").exists()  # it stayed empty
    with locked(tmp_path):
        pass
    assert tmp_path.exists()


def test_what_was_only_handed_on_is_not_resumed():
    with pytest.raises(ValueError, match="fine-tune it with --from"):
        open_run(find_pretrained("captions-en-de"), CPU)


def test_config_json_tells_everything_and_nothing_is_left_open():
    content = json.loads((run_folder("transformer") / "config.json").read_text())
    assert content["model"]["name"] == "transformer" and content["model"]["config"]["n_heads"] == 2
    assert None not in [v for k, v in content["training"].items() if k != "patience"]
    assert set(content["data"]["fingerprint"]) == {"validation", "test"}
    assert everything(run_folder("transformer"))[1]["progress"]["epoch"] == 3
