"""Several processes train as one does and resume exactly; corpora on disk hold what was encoded."""

import json
import math
import os
import pickle
import random
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import distributed_worker
import pytest
import torch
from processes import environment, free_port, run_processes
from torch import Tensor

from transformer_lib.data.batching import TokenBatches, encode_pairs
from transformer_lib.data.corpus import TokenCorpus, read_pairs, sample_pairs, tokenize_corpus
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.registry import model_entry, model_names
from transformer_lib.models.seq2seq import Seq2Seq
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.training.distributed import process_group
from transformer_lib.training.trainer import Trainer

WORKER = Path(__file__).resolve().parent / "distributed_worker.py"


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max((one[name].double() - other[name].double()).abs().max().item() for name in one)


# ---------------------------------------------------------------- several processes


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_every_example_is_in_exactly_one_share(world):
    lengths = [random.Random(0).randrange(1, 9) for _ in range(50)]
    shares = [list(TokenBatches(lengths, 20, 3, rank, world)) for rank in range(world)]
    whole = list(TokenBatches(lengths, 20, 3))
    assert sorted(i for batch in whole for i in batch) == list(range(50))
    for batch, *parts in zip(whole, *shares, strict=True):
        assert sorted(batch) == sorted(i for part in parts for i in part)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("world", [pytest.param(2, marks=pytest.mark.ci), 3])
def test_several_processes_train_as_one(world, tmp_path):
    run_processes([WORKER, "equal", tmp_path], world, tmp_path)
    for case in distributed_worker.CASES:
        ends = [load_tensors(tmp_path / "equal" / f"{case}-{rank}.safetensors") for rank in range(world)]
        assert all(distance(ends[0][0], weights) == 0 for weights, _ in ends), case  # the same bits everywhere
        assert all(notes == ends[0][1] for _, notes in ends)
        if case == "dropout":
            continue
        with torch.random.fork_rng():
            *data, config = distributed_worker.prepare(case)
            plain = Trainer(*data, replace(config, shard=False))
            start = distributed_worker.prepare(case)[0].state_dict()
        plain.fit()
        assert distance(ends[0][0], plain.model.state_dict()) < 1e-9, case
        assert ends[0][1]["step"] == plain.progress.step
        assert ends[0][1]["best"] == pytest.approx(plain.progress.best, abs=1e-6)
        assert ends[0][1]["losses"] == pytest.approx([line["loss"] for line in plain.progress.log], abs=2e-4)
        assert distance(start, plain.model.state_dict()) > 5e-3  # it has moved


@pytest.mark.slow
def test_a_process_without_sentences_adds_zeros_whatever_the_model_and_the_loss(tmp_path):
    run_processes([WORKER, "shares", tmp_path], 2, tmp_path)
    translators = {name for name in model_names() if issubclass(model_entry(name).model_class, Seq2Seq)}
    assert set(distributed_worker.SMALL) == translators
    for kind, model in distributed_worker.FEW:
        ends = [load_tensors(tmp_path / "shares" / f"{kind}-{model}-{rank}.safetensors") for rank in (0, 1)]
        (one, notes), (other, same_notes) = ends
        assert distance(one, other) == 0 and notes == same_notes, (kind, model)  # in step
        assert notes["step"] >= 10 and all(map(math.isfinite, (notes["best"], *notes["losses"]))), (kind, model)
        if model == "hard":  # each process draws its own positions
            continue
        with torch.random.fork_rng():
            plain = distributed_worker.few(kind, model)
        plain.fit()
        assert distance(one, plain.model.state_dict()) < 1e-9, (kind, model)
        assert notes["best"] == pytest.approx(plain.progress.best, abs=1e-6)
        assert notes["losses"] == pytest.approx([line["loss"] for line in plain.progress.log], abs=2e-4)


@pytest.mark.slow
def test_a_resumed_group_ends_as_one_that_was_never_stopped(tmp_path):
    run_processes([WORKER, "straight,stop,divided,die", tmp_path], 2, tmp_path)
    (tmp_path / "die").rename(tmp_path / "go_on")
    run_processes([WORKER, "go_on", tmp_path], 2, tmp_path)
    ends = {job: load_tensors(tmp_path / job / "end-0.safetensors") for job in ("straight", "stop", "go_on")}
    assert load_tensors(tmp_path / "go_on" / "resumed-1.safetensors")[1]["step"] == 6  # the last save before update 7
    stopped = [load_tensors(tmp_path / "stop" / f"stopped-{rank}.safetensors")[1]["step"] for rank in (0, 1)]
    assert stopped == [3, 3]
    for job, (weights, notes) in ends.items():
        assert distance(weights, ends["straight"][0]) == 0, job
        assert notes == ends["straight"][1]
    averages = [load_tensors(tmp_path / job / "run" / "averaged.safetensors")[0] for job in ("straight", "go_on")]
    assert distance(*averages) == 0
    divided = [load_tensors(tmp_path / "divided" / f"{name}-0.safetensors")[0] for name in ("end", "straight")]
    assert distance(*divided) == 0
    averages = [tmp_path / job / "averaged.safetensors" for job in ("divided/run", "divided/whole", "straight/run")]
    assert distance(load_tensors(averages[0])[0], load_tensors(averages[1])[0]) == 0
    sizes = [file.stat().st_size for file in averages]
    assert max(sizes) - min(sizes) < 100  # tied weights are written once


@pytest.mark.slow
def test_a_lock_that_rank_0_does_not_get_stops_all(tmp_path):
    errors = run_processes([WORKER, "locked", tmp_path], 2, tmp_path, codes=(1,))
    assert "the folder is in use" in errors[0] and "rank 0 could not begin" in errors[1]


def test_outside_of_torchrun_there_is_no_group(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match="torchrun"), process_group():
        pass


WAIT = """
import sys, transformer_lib.training.distributed as distributed
from transformer_lib.__main__ import main
join, patience = distributed.join_group, float(sys.argv.pop(1))
distributed.join_group = lambda backend: join(backend, patience)
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "stop"), [(0, signal.SIGINT), (1, signal.SIGTERM), (0, None), (1, None)])
def test_who_waits_for_processes_that_never_come_says_so_and_can_be_stopped(rank, stop, tmp_path):
    command = [sys.executable, "-c", WAIT, "100" if stop else "1", "train", "--output", str(tmp_path / "x")]
    told = environment(rank, 2, free_port())
    with subprocess.Popen(command, env=told, stderr=subprocess.PIPE, text=True) as process:
        first = process.stderr.readline()
        assert "waiting for the other processes of WORLD_SIZE=2" in first and "unset WORLD_SIZE" in first
        if stop:
            process.send_signal(stop)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == (128 + stop if stop else 1) and not (tmp_path / "x").exists()
    assert ("waited in vain for the other processes" in rest) == (stop is None)


# ---------------------------------------------------------------- corpora on disk


PAIRS = [(f"the dog {i} runs", f"der Hund {i} rennt schnell") for i in range(40)]
WORDS = Tokenizer.train([text for pair in PAIRS for text in pair], 300, level="bpe")


def test_a_corpus_on_disk_holds_what_was_encoded(tmp_path, monkeypatch):
    monkeypatch.setattr("transformer_lib.data.corpus.CHUNK", 7)
    corpus = tokenize_corpus(iter(PAIRS), WORDS, WORDS, tmp_path / "corpus")
    examples = encode_pairs(PAIRS, WORDS, WORDS)
    assert [(s.tolist(), t.tolist()) for s, t in corpus] == examples
    assert corpus.lengths.tolist() == [[len(s), len(t)] for s, t in examples]
    again = tokenize_corpus(iter([]), WORDS, WORDS, tmp_path / "corpus")  # not encoded again
    assert len(again) == 40 and again.fingerprint == corpus.fingerprint
    other = tokenize_corpus(reversed(PAIRS), WORDS, WORDS, tmp_path / "other")
    assert other.fingerprint != corpus.fingerprint
    longest = sorted(max(map(len, example)) for example in examples)[20]
    short = tokenize_corpus(iter(PAIRS), WORDS, WORDS, tmp_path / "short", max_length=longest)
    assert len(short) == sum(max(map(len, example)) <= longest for example in examples)


def test_joined_pairs_are_lines_of_two_pairs_within_the_limit(tmp_path):
    def joined(name: str, **more: int) -> TokenCorpus:
        return tokenize_corpus(iter(PAIRS), WORDS, WORDS, tmp_path / name, joined=0.5, **more)

    corpus = joined("corpus")
    lines = [re.findall(r"\d+", WORDS.decode(source.tolist())) for source, _ in corpus][40:]
    twos = [tuple(" ".join(PAIRS[int(i)][side] for i in line) for side in (0, 1)) for line in lines]
    assert [tuple(map(list, row)) for row in corpus] == encode_pairs(PAIRS + twos, WORDS, WORDS)
    assert set(map(len, lines)) == {2} and len(set(map(tuple, lines))) > 15 and corpus.joined == 20
    assert joined("again").fingerprint == corpus.fingerprint != joined("other", seed=2).fingerprint
    sizes = corpus.lengths[40:].max(axis=1)
    short = joined("short", max_length=int(sizes.min()))
    assert 0 < short.joined == sum(sizes == sizes.min()) < 20 and len(short) == 40 + short.joined


def test_half_a_corpus_is_not_a_corpus(tmp_path):
    def broken():
        yield from PAIRS
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        tokenize_corpus(broken(), WORDS, WORDS, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
    assert len(tokenize_corpus(iter(PAIRS), WORDS, WORDS, tmp_path / "corpus")) == 40
    with (tmp_path / "corpus" / "tokens.bin").open("ab") as file:
        file.write(b"\0\0")
    with pytest.raises(ValueError, match="damaged"):
        TokenCorpus(tmp_path / "corpus")


def test_a_link_stays_and_the_folder_behind_it_is_filled(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk")
    assert len(tokenize_corpus(iter(PAIRS), WORDS, WORDS, link)) == 40
    assert link.is_symlink() and len(TokenCorpus(link)) == 40


@pytest.mark.parametrize("name", ["tokens.bin", "lengths.bin", "corpus.json"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"{", b'{"sha256": "0", "dtype": "uint6"}'])
def test_a_file_of_a_corpus_that_is_missing_or_another_is_damage(name, content, tmp_path):
    tokenize_corpus(iter(PAIRS), WORDS, WORDS, tmp_path / "corpus")
    file = tmp_path / "corpus" / name
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(ValueError, match=r"corpus (is damaged|holds no tokenised corpus)"):
        TokenCorpus(tmp_path / "corpus")


def test_a_corpus_is_a_sequence_that_other_processes_open_for_themselves(tmp_path):
    corpus = tokenize_corpus(iter(PAIRS), WORDS, WORDS, tmp_path / "corpus")
    assert [[*map(list, row)] for row in corpus[1:-1:7]] == [[*map(list, corpus[i])] for i in range(1, 39, 7)]
    sent = pickle.dumps(corpus)
    assert len(sent) < 500 and pickle.loads(sent).tokens.filename == corpus.tokens.filename


def test_a_pair_that_is_none_is_counted_from_the_first_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr("transformer_lib.data.corpus.CHUNK", 7)
    with pytest.raises(ValueError, match=r"target of pairs\[40\] is ''"):
        tokenize_corpus([*PAIRS, ("a", "")], WORDS, WORDS, tmp_path / "corpus")


def test_pairs_are_read_as_a_stream(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("\ufeffa  dog\tein Hund\n\n b\tc \nno pair\n", encoding="utf-8")
    stream = read_pairs(path)
    assert [next(stream), next(stream)] == [("a dog", "ein Hund"), ("b", "c")]
    with pytest.raises(ValueError, match="line 4"):
        next(stream)


def test_a_sample_takes_every_pair_equally_often():
    counts = [0] * 10
    for seed in range(2000):
        for source, _ in sample_pairs(((str(i), "") for i in range(10)), 3, seed):
            counts[int(source)] += 1
    assert all(500 < count < 700 for count in counts)
    assert sample_pairs(PAIRS, 100) == PAIRS


LARGE = """
import json, sys, time
from transformer_lib.data.corpus import tokenize_corpus
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.training.transforms import batch_loader
from transformer_lib.training.trainer import TrainingConfig
import torch
words = Tokenizer.train(["a b c d e f g"], level="word")
pairs = (("a b c d e f", "g f e d") for _ in range(int(sys.argv[2])))
corpus = tokenize_corpus(pairs, words, words, sys.argv[1])
started = time.time()
loader = batch_loader(corpus, TrainingConfig(learning_rate=1.0), torch.nn.Linear(1, 1), (), torch.device("cpu"), True)
batch = next(iter(loader))
seconds = time.time() - started
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([len(corpus), seconds, int(peak) / 2**20]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_a_million_pairs_need_little_memory(tmp_path):
    n = 1_000_000 if os.environ.get("CI") else 200_000
    command = [sys.executable, "-c", LARGE, str(tmp_path / "corpus"), str(n)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    count, seconds, gigabytes = json.loads(output)
    assert count == n and gigabytes < 0.5 + n / 2_000_000 and seconds < 60
