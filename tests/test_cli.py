"""The command: what is read and written, what is told, and what happens when something is wrong."""

import io
import json
import os
import random
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
from runs import assert_same_run, options, pairs_file, run_folder

import transformer_lib
from transformer_lib.decoding.beam_search import SearchConfig
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.training.run_state import Interrupt
from transformer_lib.training.trainer import Trainer
from transformer_lib.translation import cli
from transformer_lib.translation.cli import main
from transformer_lib.translation.export import command as typed
from transformer_lib.translation.export import export_run
from transformer_lib.translation.run import TrainOptions, locked
from transformer_lib.translation.translator import Translation, Translator, pretrained_names

SENTENCE = "The dog does not cross the street because it is too tired."
SATZ = "Der Hund überquert die Straße nicht, weil er zu müde ist."


def feed(monkeypatch, content: bytes, encoding="utf-8"):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding=encoding))


def translate(*arguments, run="captions-en-de"):
    return main(["translate", run, *arguments, "--device", "cpu"])


def train_arguments(plan: TrainOptions, folder) -> list[str]:
    return ["train", "--output", str(folder), "--device", "cpu", *shlex.split(typed(plan)), "--data", plan.data]


# ---------------------------------------------------------------- a full disk


@pytest.mark.parametrize("door", ["--output", "appended"])
def test_on_a_full_disk_no_line_is_cut(door, tmp_path):
    """A limit on the size of files stands for a disk, which is full in the middle of the ü of the third line."""
    resource = pytest.importorskip("resource")
    whole = f"{SATZ}\n".encode()
    limit = 2 * len(whole) + whole.index("ü".encode()) + 1
    (tmp_path / "texts").write_text(f"{SENTENCE}\n" * 4)
    path = tmp_path / "saetze"
    if door == "appended":
        path.write_bytes(b"x" * 7)
        limit += 7
    command = [sys.executable, "-m", "transformer_lib", "translate", "captions-en-de", str(tmp_path / "texts")]
    command += ["--device", "cpu", *(["--output", str(path)] if door == "--output" else [])]
    with path.open("ab") as out:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE if door == "--output" else out,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )
    assert done.returncode == 1 and b"transformer-lib: error: " in done.stderr
    assert path.read_bytes() == b"x" * 7 * (door == "appended") + 2 * whole


# ---------------------------------------------------------------- training


def test_the_command_trains_as_the_library_does_and_tells_what_it_chose(tmp_path, capsys):
    assert main(train_arguments(options(), tmp_path / "run")) == 0
    assert_same_run(run_folder(), tmp_path / "run")
    told = capsys.readouterr()
    assert told.out == "" and "batches of 300 tokens, 2 epochs" in told.err and "done: lowest" in told.err


def test_the_command_that_goes_on_can_be_typed_for_any_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Trainer, "fit", lambda *_: False)
    assert main(train_arguments(options(), tmp_path / "my run")) == 130
    again = capsys.readouterr().err.partition("go on with: ")[2]
    assert shlex.split(again) == ["transformer-lib", "train", "--output", str(tmp_path / "my run"), "--resume"]


def test_a_finished_run_is_trained_longer_by_the_command(tmp_path, capsys):
    folder = shutil.copytree(run_folder(), tmp_path / "copy")
    assert main(["train", "--resume", "--output", str(folder), "--epochs", "3", "--device", "cpu"]) == 0
    assert len(load_tensors(folder / "last.safetensors")[1]["progress"]["log"]) == 3
    card = (export_run(folder, tmp_path / "small") / "README.md").read_text()
    assert "300 --output RUN\ntransformer-lib train --resume --epochs 3 --output RUN\n" in card
    assert main(["train", "--resume", "--output", str(folder), "--d-model", "3"]) == 1
    assert "leave out d_model" in capsys.readouterr().err


def test_the_command_fine_tunes(tmp_path, capsys):
    path = tmp_path / "mine.tsv"
    path.write_text("".join(f"the dog number {n}\tder Hund Nummer {n}\n" for n in range(60)))
    given = ["train", "--from", "captions-en-de", "--data", str(path), "--epochs", "1", "--device", "cpu"]
    assert main([*given, "--output", str(tmp_path / "fine")]) == 0
    assert "target words are unknown to captions-en-de" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_ends_the_same_to_the_bit(tmp_path):
    start = [sys.executable, "-m", "transformer_lib"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    killed = tmp_path / "killed"
    command = [*start, *train_arguments(options(), killed), "--save-every", "1"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 60
            while time.monotonic() < end and process.poll() is None:
                there = (killed / "last.safetensors").exists()
                if there and load_tensors(killed / "last.safetensors")[1]["progress"]["step"] >= 2:
                    break
                time.sleep(0.01)
        finally:
            process.kill()
    assert load_tensors(killed / "last.safetensors")[1]["progress"]["epoch"] < 2, "the run ended before it was killed"
    again = [*start, "train", "--output", str(killed), "--resume", "--device", "cpu"]
    subprocess.run(again, check=True, env=environment, capture_output=True, timeout=120)
    assert_same_run(run_folder(), killed)


# ---------------------------------------------------------------- translating


def test_the_command_translates_files_and_streams(tmp_path, capsys, monkeypatch):
    text = f"{SENTENCE}\n\nthe cat\n"
    expected = f"{SATZ}\n\n{Translator.from_pretrained('captions-en-de', device='cpu').translate(['the cat'])[0]}\n"
    for content in (text, "\ufeff" + text, text.replace("\n", "\r\n"), text.rstrip("\n")):
        feed(monkeypatch, content.encode())
        assert translate() == 0
        assert capsys.readouterr().out == expected, repr(content)
    feed(monkeypatch, text.encode(), "cp1252")
    assert translate("-") == 0 and capsys.readouterr().out == expected
    path = tmp_path / "in.txt"
    path.write_text("\ufeff" + text, encoding="utf-8")
    assert translate("--beam-size", "5", str(path), "--output", str(tmp_path / "new" / "out.txt")) == 0
    assert (tmp_path / "new" / "out.txt").read_text(encoding="utf-8") == expected
    capsys.readouterr()
    assert translate(str(path), "--output", str(path)) == 1
    assert "is the input" in capsys.readouterr().err and path.read_text(encoding="utf-8-sig") == text
    feed(monkeypatch, b"the dog\reats\nthe cat\n")
    assert translate() == 0 and capsys.readouterr().out.count("\n") == 2  # a carriage return ends no line
    feed(monkeypatch, b"")
    assert translate() == 0 and capsys.readouterr().out == ""


def test_the_command_searches_as_the_folder_says_unless_told_otherwise(tmp_path, capsys, monkeypatch):
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    translator.decoding = SearchConfig(beam_size=2, length_penalty=1.25, n_best=2)  # the lines would not say of what
    translator.save_pretrained(tmp_path / "own")
    seen = []
    monkeypatch.setattr(Translator, "search", lambda self, lines, config: seen.append(config) or [[Translation("")]])
    for typed_options in ((), ("--length-penalty", "0")):
        feed(monkeypatch, b"the cat\n")
        assert main(["translate", str(tmp_path / "own"), "--device", "cpu", *typed_options]) == 0
    assert seen == [SearchConfig(beam_size=2, length_penalty=1.25), SearchConfig(beam_size=2, length_penalty=0.0)]


def test_each_line_is_written_before_the_next_is_read(capsys, monkeypatch):
    seen = []

    lines = [b"the cat\n", b"the dog\n"]

    class Slow(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            seen.append(capsys.readouterr().out.count("\n"))
            line = lines.pop(0) if lines else b""
            buffer[: len(line)] = line
            return len(line)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(Slow())))
    assert translate() == 0
    assert seen == [0, 1, 1]


def test_output_is_utf_8_whatever_the_locale_says(monkeypatch):
    out = io.BytesIO()
    feed(monkeypatch, SENTENCE.encode())
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert translate() == 0
    sys.stdout.flush()
    assert out.getvalue() == f"{SATZ}\n".encode()


def test_the_best_of_a_line_can_be_told_from_those_of_the_next(capsys, monkeypatch):
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    best = translator.search(["the cat", "a dog"], n_best=2, max_length=9)
    feed(monkeypatch, b"the cat\na dog\n")
    assert translate("--n-best", "2", "--max-length", "9", "--scores") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert [row[1:] for row in rows[:2]] == [[f"{t.score:.4f}", f"{t.log_probability:.4f}", t.text] for t in best[0]]
    feed(monkeypatch, b"the cat\na dog\n")
    assert translate("--n-best", "2", "--max-length", "9", "--json") == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["line"], one["source"]) for one in shown] == [(1, "the cat"), (2, "a dog")]
    assert [t["text"] for t in shown[1]["translations"]] == [t.text for t in best[1]]


def test_lines_are_counted_without_a_progress_bar(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("the cat\na dog\nthe dog\n")
    command = [sys.executable, "-m", "transformer_lib", "translate", "captions-en-de", str(path), "--json"]
    done = subprocess.run(command, env=os.environ | {"TQDM_DISABLE": "1"}, capture_output=True, check=True)
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 2, 3]


def test_unknown_words_are_told_with_their_line(capsys, monkeypatch):
    feed(monkeypatch, b"the cat\nthe zebra\n")
    assert translate() == 0
    error = capsys.readouterr().err  # a slow machine shows its progress too
    told = "standard input, line 2: This is probably wrong. The model does not know zebra.\n"
    assert told in error and "line 1:" not in error


BAD_LINES = {"too long": (b"the dog " * 600, "has 1201 tokens"), "not text": (b"\xff\xfe", "is not UTF-8 text")}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_named_and_skipped_on_request(case, capsys, monkeypatch, tmp_path):
    bad, message = BAD_LINES[case]
    content = b"the cat\n" + bad + b"\nthe cat\n"
    feed(monkeypatch, content)
    assert translate() == 1
    told = capsys.readouterr()
    assert f"standard input, line 2 {message}" in told.err and "--skip-bad" in told.err
    assert told.out.count("\n") == 1  # what came before is there
    (tmp_path / "in.txt").write_bytes(content)
    assert translate(str(tmp_path / "in.txt"), "--skip-bad") == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[1] == "" and lines[0] == lines[2] != "" and f"in.txt, line 2: left empty, it {message}" in told.err


def test_special_files_links_and_modes_are_respected(tmp_path):
    (tmp_path / "in.txt").write_text("the cat\n")
    real = tmp_path / "real.txt"
    real.write_text("old")
    real.chmod(0o600)
    link = tmp_path / "link.txt"
    link.symlink_to(real)
    assert translate(str(tmp_path / "in.txt"), "--output", str(link)) == 0
    assert link.is_symlink() and "\n" in real.read_text() and stat.S_IMODE(real.stat().st_mode) == 0o600
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert translate(str(tmp_path / "in.txt"), "--output", str(pipe)) == 0
    assert os.read(reader, 1000).decode() == real.read_text() and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)


@pytest.mark.parametrize(
    ("stream", "message"), [("stdin", "standard input is closed"), ("stdout", "standard output is closed")]
)
def test_a_closed_stream_is_told(stream, message, capsys, monkeypatch):
    feed(monkeypatch, b"the cat\n")
    monkeypatch.setattr(sys, stream, None)
    assert translate() == 1
    assert message in capsys.readouterr().err


def test_nobody_needs_to_listen_to_errors(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert translate("no such file") == 1
    sys.stderr.close()


# ---------------------------------------------------------------- evaluating, averaging, exporting, downloading


def test_evaluate_prints_lines_or_json(tmp_path, capsys):
    given = ["evaluate", str(run_folder()), "--device", "cpu", "--beam-size", "1"]
    assert main([*given, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["data"] == "pairs.tsv" and scores["beam_size"] == 1 and scores["epochs"] == "2 of 2"
    assert main(given) == 0
    assert f"bleu: {scores['bleu']}\n" in capsys.readouterr().out


def test_the_command_averages_again(tmp_path, capsys):
    folder = shutil.copytree(run_folder("transformer"), tmp_path / "copy")
    (folder / "epoch-abc.safetensors").write_bytes(b"a stray file")
    assert main(["average", str(folder), "--last", "1"]) == 0
    assert capsys.readouterr().out == f"{folder}/averaged.safetensors: epochs 3\n"
    mean, last = (load_tensors(folder / f"{name}.safetensors")[0] for name in ("averaged", "epoch-3"))
    assert all((mean[name] == last[name]).all() for name in last)
    assert main(["average", str(folder), "--last", "3"]) == 1
    assert "keeps 2 epochs" in capsys.readouterr().err


def test_the_command_exports(tmp_path, capsys):
    folder, out = str(run_folder("transformer")), str(tmp_path / "x")
    assert main(["export", folder, "--beam-size", "3", "--max-ratio", "2.5", "--output", out]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert "export RUN --beam-size 3 --max-ratio 2.5 --output x\n" in (tmp_path / "x" / "README.md").read_text()
    assert Translator.from_pretrained(out, device="cpu").decoding == SearchConfig(beam_size=3, max_ratio=2.5)


@pytest.mark.parametrize(("data", "count"), [("multi30k", 15), ("zapier", 1)])
def test_the_command_fetches_every_file_of_a_data_set(data, count, monkeypatch, capsys):
    fetched = []
    monkeypatch.setattr(cli, "fetch", lambda file: fetched.append(file) or f"/cache/{file.name}")
    assert main(["download", data]) == 0
    assert len(fetched) == count and {file.dataset for file in fetched} == {data}
    assert capsys.readouterr().out.splitlines() == [f"/cache/{file.name}" for file in fetched]


# ---------------------------------------------------------------- help, and models of one's own


def help_of(*command, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_the_help_names_every_translator_in_a_line(capsys):
    lines = help_of(capsys=capsys).splitlines()
    for name in pretrained_names():
        (line,) = [line for line in lines if line.split()[:1] == [f"{name}:"]]
        source, target = Translator.from_pretrained(name, device="cpu").text.source, name.split("-")[2]
        assert f", {source} to {target}, " in line


def test_the_version_does_not_wait_for_pytorch(capsys):
    code = "import sys; from transformer_lib.__main__ import main; assert main() == 0 and 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    assert main(["--version"]) == 0
    assert done.stdout == capsys.readouterr().out == f"transformer-lib {transformer_lib.__version__}\n"


COMMANDS = [*([name] for name in ("download", "translate", "evaluate", "average", "export"))]
COMMANDS += [["train", "--model", name] for name in ("transformer", "luong", "hard", "gpt")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_shows_examples_and_every_option_that_can_be_typed_and_no_other(command, capsys):
    examples, _, boxes = help_of(*command, capsys=capsys).partition("╭")
    assert f"transformer-lib {command[0]} " in examples.partition("examples:")[2] or command == ["download"]
    shown = {one[2:] for one in re.findall(r"(?<![\w-])--[a-z][a-z-]*", boxes)}
    if command[0] == "train":
        assert shown >= {"from", "d-model", "epochs", "seed"}
    kind = cli.train_command(command) if command[0] == "train" else getattr(cli, command[0].capitalize())
    names = cli.option_names(kind)
    assert shown - {"help"} <= names and len(names - shown) <= len(names) // 2
    cli.check_options(command[0], kind, [f"--{name}" for name in sorted(names)])
    for name in names - {"n-best", "json", "data"}:
        with pytest.raises(ValueError, match=f"no option --{name}x.*--{name}"):
            cli.check_options(command[0], kind, [f"--{name}x=3"])


# What is typed, and what must be told.
TYPED = """
train --lr 3 --output x | train has no option --lr: did you mean --learning-rate?
train --output x --epoch=3 | train has no option --epoch: did you mean --epochs?
train --output x --nonsense | train has no option --nonsense: see transformer-lib train --model NAME --help
translate captions-en-de --beam 3 | translate has no option --beam: did you mean --beam-size?
evaluate captions-en-de --nonsense | evaluate has no option --nonsense: see transformer-lib evaluate --help
trian | there is no command trian: did you mean train?
help | there is no command help, only download, train, translate, evaluate, average, export
translate captions-en-de sentences.tx | there is no file sentences.tx: did you mean sentences.txt?
translate captions-en-de FOLDER/nothing | there is no file FOLDER/nothing, nor the folder FOLDER
translate captions-en-de . | . is a folder: name a file in it
translate captions-en-de packed.gz | packed.gz, line 1 is not UTF-8 text (is it another encoding, or a packed
train --data packed.gz --output x | packed.gz, line 1: this is not UTF-8 text (is it another encoding, or a
train --output x -epochs 3 | train has no option -epochs: did you mean --epochs?
train \N{EN DASH}lr 3 --output x | train has no option \N{EN DASH}lr: did you mean --learning-rate?
train --epochs x --output y | error: --epochs=x is not INT; see transformer-lib train --help
train --learning-rate None --output x | train: None cannot be typed; it can be given in Python
train | Missing from transformer-lib train: --output PATH Folder of the run. (required); see
translate captions-en-de sentences.txt more | Unrecognized options: more; see transformer-lib translate --help
download wmt | invalid choice 'wmt' for argument 'data'. Expected one of ('multi30k', 'zapier'); see
 | Expected one of {download, train, translate, evaluate, average, export}; see transformer-lib --help
translate caption-en-de sentences.txt | multi30k-en-fr; did you mean captions-en-de?
train --resume --output nothing | nothing holds no run to go on with: leave out --resume to begin one
"""
WRONG = dict(line.split(" | ") for line in TYPED.split("\n")[1:-1])


@pytest.mark.parametrize("line", WRONG)
def test_what_is_typed_wrong_is_told_in_one_line_with_what_to_do(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sentences.txt").write_text("the dog sleeps\n")
    (tmp_path / "packed.gz").write_bytes(b"\x1f\x8b\x08\x00\xff\xfe\n")
    assert main(line.split()) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and WRONG[line] in err
    assert {path.name for path in tmp_path.iterdir()} <= {"sentences.txt", "packed.gz"}


def test_the_options_of_a_model_are_shown_with_its_name(capsys):
    shown = help_of("train", "--model", "luong", capsys=capsys)
    assert "--input-feeding" in shown and "--n-encoder-layers" not in shown and "--source-vocab-size" not in shown


def test_modules_register_models_first(tmp_path, monkeypatch, capsys):
    from transformer_lib.models import registry

    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "nothing_here.py").write_text("")
    (tmp_path / "my_models.py").write_text(
        "from dataclasses import dataclass\n"
        "from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq\n"
        "from transformer_lib.models.registry import register_model\n"
        "@dataclass(frozen=True)\n"
        "class MyConfig(RecurrentConfig):\n"
        "    shout: int = 1  # how loud\n"
        "class MyModel(RecurrentSeq2Seq):\n    pass\n"
        'register_model("mine", MyConfig, MyModel)\n'
    )
    monkeypatch.chdir(tmp_path)
    modules = ["--import=nothing_here", "--import", "my_models"]
    assert "how loud" in help_of(*modules, "train", "--model", "mine", capsys=capsys)
    small = shlex.split("--model mine --shout 3 --d-model 8 --d-hidden 8 --epochs 1 --vocab-size 300 --device cpu")
    assert main([*modules, "train", "--data", str(pairs_file()), "--output", "run", *small]) == 0, capsys.readouterr()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"]["config"]["shout"] == 3


def interrupted(stop, n, tmp_path, *before):
    """A translation of n sentences that gets a signal after the first: its exit status, its lines, and what it told."""
    (tmp_path / "in.txt").write_text(f"{SENTENCE}\n" * n)
    out = tmp_path / "out.txt"
    command = [*before, sys.executable, "-m", "transformer_lib", "translate", "captions-en-de", "--output", str(out)]
    with subprocess.Popen([*command, str(tmp_path / "in.txt")], stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (out.exists() and out.stat().st_size):
            time.sleep(0.05)
        process.send_signal(stop)
        _, error = process.communicate(timeout=60)
    lines = out.read_text().splitlines()
    assert lines and set(lines) == {SATZ}
    return process.returncode, len(lines), error


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_what_was_translated_is_kept_whatever_happens(stop, tmp_path):
    status, n, error = interrupted(stop, 2000, tmp_path)
    told = [f"stopped after {lines} lines of {tmp_path / 'out.txt'}" in error for lines in (n, n - 1)]
    assert status == 128 + stop and n < 2000 and any(told)  # the signal may come between a line and its count


def test_ctrl_c_stays_ignored_in_the_background_of_a_script(tmp_path):
    """There, a shell starts a command with the signal ignored."""
    ignoring = "sh", "-c", "trap '' INT; exec \"$@\"", "sh"
    status, n, _ = interrupted(signal.SIGINT, 300, tmp_path, *ignoring)
    assert (status, n) == (0, 300)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:  # of a training
            signal.raise_signal(signal.SIGINT)
        assert not interrupt.requested
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_nobody_reads_and_a_file_onto_itself_lose_no_lines(tmp_path, capsys, monkeypatch):
    """Messages go into a pipe that is closed; then a file is standard input and output."""
    path, out = tmp_path / "in.txt", tmp_path / "out.txt"
    path.write_text("the zzz\n" * 40)
    command = [sys.executable, "-m", "transformer_lib", "translate", "captions-en-de", "--output", str(out), str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        process.stderr.close()
    assert process.wait() == 0 and len(out.read_text().splitlines()) == 40
    with path.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert translate("--output", str(path)) == 1
    assert "is the input" in capsys.readouterr().err and len(path.read_text().splitlines()) == 40


def test_the_lines_before_a_bad_one_are_kept(tmp_path, capsys):
    (tmp_path / "in.txt").write_bytes(b"the cat\n" * 40 + b"\xff\n" + b"the cat\n")
    assert translate(str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")) == 1
    assert "line 41 is not UTF-8" in capsys.readouterr().err
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 40


def test_a_terminal_is_told_no_commands(capsys, monkeypatch):
    feed(monkeypatch, b"\x1b]0;pwned\x07dog zzz\n" + b"z" * 5000 + b"\n")
    assert translate() == 0
    error = capsys.readouterr().err
    assert "\x1b" not in error and "\x07" not in error and "zzz" in error and len(error) < 500


def test_the_command_needs_no_docstrings(capsys, monkeypatch):
    """With ``python -OO`` there are none."""
    for kind in (cli.Download, cli.Train, cli.Translate, cli.Evaluate, cli.Average, cli.Export):
        monkeypatch.setattr(kind, "__doc__", None)
    for command, option in (((), "translate"), (("train",), "--epochs"), (("translate",), "--beam-size")):
        assert option in help_of(*command, capsys=capsys)


# ---------------------------------------------------------------- what is refused

# What each must be told, and the command.
BAD_COMMANDS = """
'fr' | train --output {tmp}/x --source fr --n-captions 40
source= | train --output {tmp}/x --source ../../x
no pairs of at most 3 tokens | train --output {tmp}/x --data {pairs} --max-tokens 3
vocab_size=7 | train --output {tmp}/x --data {pairs} --vocab-size 7
vocab_size=1000000000 | train --output {tmp}/x --data {pairs} --vocab-size 1000000000
n_captions=1 | train --output {tmp}/x --n-captions 1
seed= | train --output {tmp}/x --seed 99999999999999999999999
d_model | train --output {tmp}/x --d-model 0
'in.txt' is in it | train --output {tmp} --data {pairs}
does not translate | train --output {tmp}/x --data {pairs} --model gpt-lm
are for data=captions | train --output {tmp}/x --data {pairs} --simple 0.5
is a 'gru' model | train --output {tmp}/x --data {pairs} --from {run} --model luong
overflow | train --output {tmp}/x --data {pairs} --d-ff 4611686018427387904
leave out model | train --output {run} --resume --model luong
'in.txt' is in it | export {run} --output {tmp}
holds a run already | train --output {run} --data {pairs}
choose an empty folder | train --output '' --data {pairs}
holds no run | train --output {tmp}/none --resume
leave out clip | train --output {run} --resume --clip 9
save_every=0 | train --output {tmp}/x --data {pairs} --save-every 0
cuda:99 | translate {run} --device cuda:99
abacus | translate {run} --device abacus
warmup=50000 | train --output {tmp}/x --data {pairs} --warmup 50000
none.tsv | train --output {tmp}/x --data {tmp}/none.tsv
n_heads | train --output {tmp}/x --data {pairs} --n-heads 3
epoch-7 | translate {run} --weights epoch-7
keeps 0 epochs | average {run}
leave out from | train --output {run} --resume --from captions-en-de
start_from (--from) | train --output {tmp}/x --data {pairs} --from captions-en-de --preset big
choose two languages | train --output {tmp}/x --data {pairs} --from multi30k-en-de --source de
text=captions is for | train --output {tmp}/x --data {pairs} --text captions
is for subwords | train --output {tmp}/x --n-captions 50 --bpe-dropout 0.1
holds no run | average {tmp}/none
holds no run | export {tmp}/none --output {tmp}/x
beam_size=0 | translate {run} {tmp}/in.txt --beam-size 0
n_best=9 | translate {run} {tmp}/in.txt --n-best 9
holds no run | evaluate {tmp}/none
none.txt | translate {run} {tmp}/none.txt
no_such_module | --import no_such_module translate {run}
no_such_module | --import json --import=no_such_module translate {run}
"""
BAD = dict(line.split(" | ")[::-1] for line in BAD_COMMANDS.split("\n")[1:-1])
BAD["train --output {tmp}/x --source 'en\nde'"] = "source="  # a language of two lines


@pytest.mark.parametrize("command", BAD)
def test_bad_commands_end_in_one_line_and_lose_nothing(command, tmp_path, capsys, monkeypatch):
    (tmp_path / "in.txt").write_text("the cat\n")
    feed(monkeypatch, b"")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = {path: path.read_bytes() for path in run_folder().rglob("*.*")}
    assert main(shlex.split(command.format(tmp=tmp_path, run=run_folder(), pairs=pairs_file()))) == 1
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert error.startswith("transformer-lib: error: ") and BAD[command] in error
    assert {path: path.read_bytes() for path in run_folder().rglob("*.*")} == before
    assert not (tmp_path / "x").exists() and not (tmp_path / "none").exists()


def test_a_folder_in_use_is_refused(tmp_path, capsys):
    with locked(tmp_path / "run"):
        assert main(train_arguments(options(), tmp_path / "run")) == 1
    assert "is in use" in capsys.readouterr().err


@pytest.mark.ci
def test_three_hundred_pairs_of_a_learnable_grammar_are_learned_by_default(tmp_path):
    """The command of the README, on sentences whose grammar changes the order of words and the endings."""
    nouns = {"dog": "der Hund", "cat": "die Katze", "horse": "das Pferd", "man": "der Mann", "woman": "die Frau"}
    nouns |= {"child": "das Kind", "bird": "der Vogel", "cow": "die Kuh", "sheep": "das Schaf", "girl": "das Mädchen"}
    adjectives = {"small": "klein", "old": "alt", "young": "jung", "white": "weiß", "black": "schwarz"}
    verbs = {"sees": "sieht", "hears": "hört", "finds": "findet", "follows": "verfolgt", "knows": "kennt"}
    times = {"": "", "today": "heute", "often": "oft", "here": "hier"}
    chance, pairs = random.Random(0), {}
    while len(pairs) < 500:
        subject, thing = chance.sample(sorted(nouns), 2)
        one, other = chance.choices(sorted(adjectives), k=2)
        verb, when = chance.choice(sorted(verbs)), chance.choice(sorted(times))
        (article, noun), (other_article, other_noun) = nouns[subject].split(), nouns[thing].split()
        accusative = "den" if other_article == "der" else other_article
        ending = "en" if accusative == "den" else "e"
        who, whom = f"{article} {adjectives[one]}e {noun}", f"{accusative} {adjectives[other]}{ending} {other_noun}"
        german = f"{times[when]} {verbs[verb]} {who} {whom}" if when else f"{who} {verbs[verb]} {whom}"
        english = f"the {one} {subject} {verb} the {other} {thing} {when}".strip()
        pairs[f"{english.capitalize()}."] = f"{german[0].upper()}{german[1:]}."
    rows = list(pairs.items())
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows[:300]), encoding="utf-8")
    command = [sys.executable, "-m", "transformer_lib", "train", "--data", str(tmp_path / "pairs.tsv")]
    subprocess.run([*command, "--output", str(tmp_path / "x")], check=True)  # faster than under our checks of types
    written = Translator.from_pretrained(tmp_path / "x").translate([source for source, _ in rows[300:]])
    assert sum(text == right for text, (_, right) in zip(written, rows[300:], strict=True)) >= 180  # of 200
