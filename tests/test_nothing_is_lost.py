"""Nothing of the user's is lost, and nothing is used that isn't what was written."""

import json
import shutil
from dataclasses import dataclass
from itertools import product

import pytest
from runs import CPU, options, pairs_file, run_folder, write_pairs

from transformer_lib.data.corpus import TokenCorpus
from transformer_lib.models.recurrent import RecurrentConfig
from transformer_lib.settings import settings
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.training.trainer import TrainingConfig
from transformer_lib.translation import run as run_module
from transformer_lib.translation.cli import main
from transformer_lib.translation.run import PART, create_run, open_run
from transformer_lib.translation.translator import Translator


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def train(*arguments):
    sizes = ["--model", "gru", "--d-model", "8", "--d-hidden", "8", "--vocab-size", "300", "--epochs", "1"]
    return main(["train", *map(str, arguments), *sizes, "--device", "cpu"])


# ---------------------------------------------------------------- folders


@pytest.mark.parametrize("names", [("train",), ("validation",), ("train", "validation"), ("train.part",), ()])
def test_a_folder_that_looks_like_ours_but_is_not_is_left_alone(names, tmp_path, capsys):
    folder = tmp_path / "mine"
    for name in names:
        (folder / "corpus" / name).mkdir(parents=True)
        write_pairs(folder / "corpus" / name / "pairs.tsv")
        (folder / "corpus" / name / "tokens.bin").write_bytes(b"mine")
    folder.mkdir(exist_ok=True)
    for name in ("source.json", "target.json"):
        (folder / name).write_text("{}")
    before = content(folder)
    inside = folder / "corpus" / "train" / "pairs.tsv"
    for data in (pairs_file(), inside) if inside.is_file() else (pairs_file(),):
        assert train("--data", data, "--output", folder) == 1
        assert "is not empty" in capsys.readouterr().err and content(folder) == before


def unfinished(folder):
    """What a run leaves that was killed before it was complete."""
    shutil.copytree(run_folder(), folder / PART)
    return folder


def test_an_unfinished_run_is_begun_anew(tmp_path):
    folder = unfinished(tmp_path / "run")
    assert not create_run(options(), folder) and len(open_run(folder, CPU).trainer.train) == 108
    assert {path.name for path in folder.iterdir()} == {"corpus", "source.json", "target.json", "config.json"}


@pytest.mark.parametrize("place", ["notes.txt", "corpus/notes.txt", "source.json"])
def test_beside_an_unfinished_run_nothing_is_removed(place, tmp_path):
    folder = unfinished(tmp_path / "run")
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_text("mine")
    with pytest.raises(ValueError, match="is not empty"):
        create_run(options(), folder)
    assert (folder / place).read_text() == "mine"


def test_a_run_that_cannot_begin_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="no pairs of at most 3 tokens"):
        create_run(options(training={"max_tokens": 3}), tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


# ---------------------------------------------------------------- links


LINKED = ("averaged", "best", "last", "epoch-2", "epoch-3")


def test_nothing_is_written_through_a_link(tmp_path):
    folder = shutil.copytree(run_folder("transformer"), tmp_path / "run")
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in (*(f"{name}.safetensors" for name in LINKED), "log.jsonl", "config.json"):
        shutil.move(folder / name, outside / name)
        (folder / name).symlink_to(outside / name)
    before = content(outside)
    assert main(["average", str(folder), "--last", "1"]) == 0
    assert main(["train", "--resume", "--output", str(folder), "--epochs", "4", "--device", "cpu"]) == 0
    assert content(outside) == before
    assert len(load_tensors(folder / "last.safetensors")[1]["progress"]["log"]) == 4


# ---------------------------------------------------------------- what is no longer what was written


CORPUS = ("train/tokens.bin", "train/lengths.bin", "validation/tokens.bin")


@pytest.mark.parametrize(("file", "place"), [*zip(CORPUS, (1, 0.5, 0), strict=True)])
def test_one_flipped_bit_of_a_corpus_is_noticed(file, place, tmp_path):
    folder = shutil.copytree(run_folder(), tmp_path / "run")
    path = folder / "corpus" / file
    data = bytearray(path.read_bytes())
    data[round(place * (len(data) - 1))] ^= 1
    path.write_bytes(data)
    for door in (lambda: open_run(folder, CPU), lambda: TokenCorpus(path.parent)):
        with pytest.raises(ValueError, match=r"is damaged \(\w+\.bin is not the one"):
            door()


CHANGES = {
    "heads": lambda c: c["model"]["config"].update(n_heads=4),
    "norm": lambda c: c["model"]["config"].update(norm_first=True, final_norm=False),
    "activation": lambda c: c["model"]["config"].update(activation="swish"),
    "languages": lambda c: c["text"].update(source=c["text"]["target"], target=c["text"]["source"]),
    "a language": lambda c: c["text"].update(source="fr"),
    "vocabularies": lambda c: c["tokenizers"].update(source="target.json", target="source.json"),
    "text": lambda c: c["text"].update(kind="captions"),
}


OF_OTHERS = {"average": "heads", "saved": "languages", "exported": "text"}  # whose weights are saved elsewhere


@pytest.mark.parametrize(("kind", "case"), [*product(["run"], CHANGES), *OF_OTHERS.items()])
def test_a_configuration_that_does_not_fit_its_weights_is_noticed(case, kind, tmp_path):
    folder = shutil.copytree(run_folder("transformer"), tmp_path / "run")
    if kind == "average":
        assert main(["average", str(folder), "--last", "2"]) == 0
    if kind == "saved":
        folder = Translator.from_pretrained(folder, device="cpu").save_pretrained(tmp_path / "saved")
    if kind == "exported":
        assert main(["export", str(folder), "--output", str(tmp_path / "out")]) == 0
        folder = tmp_path / "out"
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["text"] |= {"source": config["text"]["source"] or "en"}
    CHANGES[case](config)
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.json is not the one that \w+\.safetensors was saved with"):
        Translator.from_pretrained(folder, device="cpu")
    if kind == "run":
        with pytest.raises(ValueError, match=r"is of a run with another (model and another )?translator"):
            open_run(folder, CPU)


def test_how_to_search_may_be_changed(tmp_path):
    folder = Translator.from_pretrained(run_folder(), device="cpu").save_pretrained(tmp_path / "saved")
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"beam_size": 5', '"beam_size": 2'))
    assert Translator.from_pretrained(folder, device="cpu").decoding.beam_size == 2


# ---------------------------------------------------------------- settings that come later


@settings
class LaterTraining(TrainingConfig):
    """As it may be in a year."""

    patience_of_a_saint: bool = False


@dataclass(frozen=True)
class LaterModel(RecurrentConfig):
    """As it may be in a year."""

    swing: float = 0.0


def test_a_setting_that_is_added_changes_no_run(tmp_path, monkeypatch):
    folder = shutil.copytree(run_folder(), tmp_path / "run")
    monkeypatch.setattr(run_module, "TrainingConfig", LaterTraining)
    assert open_run(folder, CPU).trainer.progress.epoch == 2
    run = open_run(folder, CPU)
    kept = run.trainer.model.config
    names = {name: getattr(kept, name) for name in kept.__dataclass_fields__}
    run.trainer.model.config = LaterModel(**names)
    run.trainer.resume()
    run.trainer.model.config = LaterModel(**names, swing=0.5)
    with pytest.raises(ValueError, match="another model"):
        run.trainer.resume()
    with pytest.raises(ValueError, match="another configuration"):
        open_run(folder, CPU, patience_of_a_saint=True)
