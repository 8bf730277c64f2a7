"""Costs agree with what is counted and put aside; several processes train as one does, and resume exactly."""

import ast
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import distributed_worker
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from pages import prose_of, record_of
from processes import run_processes
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.data.batching import Batch, collate
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.training.costs import (
    PUBLISHED_RUNS,
    Bytes,
    Flops,
    Machine,
    count_bytes,
    count_flops,
    measure_machine,
    padding_share,
    training_hours,
)
from transformer_lib.training.distributed import (
    DistributedTrainer,
    batch_share,
    process_group,
)
from transformer_lib.training.loss import smoothed_loss
from transformer_lib.training.schedule import TrainingConfig
from transformer_lib.training.trainer import Trainer
from transformer_lib.translation.cli import main

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "tests" / "distributed_worker.py"


def config(**changes) -> TransformerConfig:
    sizes = {"source_vocab_size": 40, "target_vocab_size": 40, "d_model": 16, "n_heads": 2, "d_ff": 24}
    return TransformerConfig(**{**sizes, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0, **changes})


def model(**changes) -> Transformer:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer(config(**changes)).train()


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(4, 40, (rows, length), generator=torch.Generator().manual_seed(length))


def random_examples(lengths: list[tuple[int, int]], seed: int = 0) -> list:
    draw = torch.Generator().manual_seed(seed)

    def words(length: int) -> list[int]:
        return torch.randint(4, 40, (length,), generator=draw).tolist()

    return [([*words(source), EOS], [BOS, *words(target), EOS]) for source, target in lengths]


LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9)

# ---------------------------------------------------------------- operations


@pytest.mark.slow
@settings(max_examples=6)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 7), st.integers(1, 7)),
    layers=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    widths=st.tuples(st.sampled_from([None, 3]), st.sampled_from([None, 5])),
    tied=st.sampled_from(["all", "none"]),
)
def test_operations_equal_those_that_pytorch_counts(shape, layers, widths, tied):
    batch, source, target = shape
    changes = {"n_encoder_layers": layers[0], "n_decoder_layers": layers[1], "tie_embeddings": tied}
    watched = model(d_key=widths[0], d_value=widths[1], **changes)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = watched(tokens(batch, source), tokens(batch, target))
        forward = counter.get_total_flops()
        logits.sum().backward()
    assert forward == count_flops(watched.config, source, target, batch).total
    assert counter.get_total_flops() == count_flops(watched.config, source, target, batch, training=True).total


def test_every_part_of_the_work_is_where_it_belongs():
    base = TransformerConfig.base()
    found = count_flops(base, 30, 20, batch=3)
    d, s, t = 512, 30, 20
    assert found.projections == 3 * 2 * 6 * (4 * d * d * s + 4 * d * d * t + 2 * d * d * t + 2 * d * d * s)
    assert found.attention == 3 * 2 * 6 * 2 * d * (s * s + t * t + t * s)
    assert found.feed_forward == 3 * 2 * 6 * 2 * d * 2048 * (s + t)
    assert found.output == 3 * 2 * d * 37_000 * t
    assert found.total == found.projections + found.attention + found.feed_forward + found.output
    assert found == Flops(found.projections, found.attention, found.feed_forward, found.output)


@settings(max_examples=20)
@given(source=st.integers(1, 50), target=st.integers(1, 50), batch=st.integers(1, 5))
def test_work_grows_in_proportion_to_the_batch(source, target, batch):
    one, many = (count_flops(config(), source, target, rows) for rows in (1, batch))
    assert many.total == batch * one.total
    assert count_flops(config(), source, target, batch, training=True).total == 3 * many.total


# ---------------------------------------------------------------- bytes


def put_aside(watched: Transformer, rows: int, source: int, target: int) -> int:
    own = {parameter.untyped_storage().data_ptr() for parameter in watched.parameters()}
    kept = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    right = tokens(rows, target + 1)
    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        torch.manual_seed(0)
        smoothed_loss(watched(tokens(rows, source), right[:, :-1]), right[:, 1:])
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(16, 16), (30, 8), (8, 24)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dropout": 0.2},
        {"norm_first": True},
        {"norm_first": True, "final_norm": False, "dropout": 0.1},
        {"activation": "gelu"},
        {"activation_dropout": 0.1},
        {"n_encoder_layers": 3, "n_decoder_layers": 1, "d_ff": 100},
    ],
    ids=str,
)
def test_activations_are_close_to_what_is_put_aside(changes, lengths):
    watched = model(**{"d_model": 32, "n_heads": 4, "d_ff": 64, **changes})
    expected = count_bytes(watched.config, *lengths, batch=8).activations
    assert expected == pytest.approx(put_aside(watched, 8, *lengths), rel=0.03)


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_weights_gradients_and_moments_are_exact(tied):
    watched = model(tie_embeddings=tied, positions="learned", max_length=20)
    found = count_bytes(watched.config, 5, 5)
    optimizer = torch.optim.Adam(watched.parameters())
    watched(tokens(2, 5), tokens(2, 5)).sum().backward()
    optimizer.step()
    assert found.parameters == sum(p.nbytes for p in watched.parameters())
    assert found.gradients == sum(p.grad.nbytes for p in watched.parameters())
    moments = [slot for state in optimizer.state.values() for name, slot in state.items() if name != "step"]
    assert found.moments == sum(slot.nbytes for slot in moments)
    assert found.total == sum((found.parameters, found.gradients, found.moments, found.activations))


def test_half_as_many_bytes_a_number_halve_the_activations_only():
    single, half = (count_bytes(config(), 9, 9, 4, number_bytes=size) for size in (4, 2))
    assert half == Bytes(single.parameters, single.gradients, single.moments, single.activations // 2)


# ---------------------------------------------------------------- machine and hours


def test_the_roof():
    machine = Machine(flops=100.0, bandwidth=10.0)
    assert [machine.ceiling(i) for i in (0.5, 10, 1000)] == [5.0, 100.0, 100.0]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_machine_is_measured(dtype):
    found = measure_machine(dtype=dtype, seconds=0.001)
    assert 1e7 < found.flops < 1e17 and 1e7 < found.bandwidth < 1e15


def test_hours():
    assert training_hours(2e6, 3.6e9, 1e12) == pytest.approx(2.0)
    assert training_hours(2e6, 3.6e9, 1e12, n_devices=4, utilisation=0.5) == pytest.approx(1.0)


@pytest.mark.parametrize(("name", "flops", "bleu"), [("base", 3.3e18, 27.3), ("big", 2.3e19, 28.4)])
def test_published_runs_agree_with_the_paper_s_own_estimate(name, flops, bleu):
    run = PUBLISHED_RUNS[name]
    assert run.hours * 3600 * run.devices * run.device_flops == pytest.approx(flops, rel=0.02)  # table 2
    assert run.bleu == bleu and run.pairs == 4_500_000
    assert 0.2 < run.utilisation() < 0.5
    tokens = run.updates * run.target_tokens
    rate, share = run.device_flops, run.utilisation()
    assert training_hours(run.flops() / tokens, tokens, rate, run.devices, share) == pytest.approx(run.hours)
    assert run.flops(50) == pytest.approx(run.flops(25), rel=0.03)  # the length hardly matters
    assert run.flops(25) // run.updates == pytest.approx(
        count_flops(run.config, 25, 25, 1000, training=True).total, rel=1e-9
    )


# ---------------------------------------------------------------- batches and their shares


@settings(max_examples=20)
@given(lengths=LENGTHS)
def test_padding_is_counted_cell_by_cell(lengths):
    batch = collate(random_examples(lengths))
    cells = [*batch.source.flatten().tolist(), *batch.target_input.flatten().tolist()]
    assert padding_share([batch]) == pytest.approx(cells.count(PAD) / len(cells))
    assert padding_share([batch, batch]) == pytest.approx(padding_share([batch]))


@settings(max_examples=30)
@given(lengths=LENGTHS, world=st.integers(1, 5))
def test_every_sentence_is_in_exactly_one_share(lengths, world):
    examples = random_examples(lengths)
    batch = collate(examples)
    shares = [batch_share(batch, rank, world) for rank in range(world)]
    assert sorted(index for share in shares for index in share.indices) == list(range(len(examples)))
    assert sum(share.n_tokens for share in shares) == batch.n_tokens
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for share in shares:
        for row, index in enumerate(share.indices):
            source, target = examples[index]
            assert share.source[row][share.source[row] != PAD].tolist() == source
            assert share.target[row][share.target[row] != PAD].tolist() == target
        if len(share):  # no column of nothing but padding
            assert (share.source != PAD).any(dim=0).all() and (share.target != PAD).any(dim=0).all()


@pytest.mark.slow
@settings(max_examples=5)
@given(lengths=LENGTHS, world=st.integers(1, 4))
def test_gradients_of_shares_weighted_by_tokens_add_up(lengths, world):
    batch, exact = collate(random_examples(lengths)), model().double()

    def gradient(part: Batch, weight: float) -> Tensor:
        loss = weight * smoothed_loss(exact(part.source, part.target_input), part.target_output)
        return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(exact.parameters()))])

    shares = [share for share in (batch_share(batch, rank, world) for rank in range(world)) if len(share)]
    found = sum(gradient(share, share.n_tokens / batch.n_tokens) for share in shares)
    torch.testing.assert_close(found, gradient(batch, 1.0), atol=1e-12, rtol=1e-9)


# ---------------------------------------------------------------- a group of one, here


@pytest.fixture
def alone(tmp_path):
    """A process group with nobody else in it."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def quick(seed: int = 0, **changes) -> tuple:
    """A model, examples and a configuration that train in no time."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        small = Transformer(config(**changes)).double()
    examples = random_examples([(4, 5), (3, 3), (6, 2), (1, 1), (5, 5), (2, 7)])
    settings = {"epochs": 2, "max_tokens": 16, "learning_rate": 1e-2, "schedule": "constant", "warmup": 0}
    return small, examples, examples[:2], TrainingConfig(average=0, **settings)


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max((one[name].double() - other[name].double()).abs().max().item() for name in one)


@pytest.mark.slow
def test_a_group_of_one_is_a_plain_trainer(alone, tmp_path):
    shared, plain = DistributedTrainer(*quick(), tmp_path / "a"), Trainer(*quick(), tmp_path / "b")
    assert shared.fit() and plain.fit()
    assert distance(shared.model.state_dict(), plain.model.state_dict()) < 1e-10
    assert shared.progress.step == plain.progress.step and shared.identity() == plain.identity()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in (tmp_path / "b").iterdir())
    again = Trainer(*quick(seed=1), tmp_path / "a")  # a plain trainer reads what a distributed one wrote
    again.resume()
    assert distance(again.model.state_dict(), shared.model.state_dict()) == 0


@pytest.mark.slow
def test_random_numbers_of_the_caller_are_left_alone(alone):
    trainer = DistributedTrainer(*quick(dropout=0.5))
    before = torch.get_rng_state()
    trainer.fit()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_a_resumed_group_of_one_drops_what_it_would_have_dropped(alone, tmp_path):
    whole = DistributedTrainer(*quick(dropout=0.3), tmp_path / "whole")
    whole.fit()
    broken = DistributedTrainer(*quick(dropout=0.3), tmp_path / "broken")
    assert not broken.fit(stop=lambda: broken.progress.step == 1)
    assert broken.progress.step == 1 < whole.progress.step
    resumed = DistributedTrainer(*quick(seed=1, dropout=0.3), tmp_path / "broken")
    resumed.resume()
    assert resumed.fit() and resumed.progress.step == whole.progress.step
    assert distance(resumed.model.state_dict(), whole.model.state_dict()) == 0


def test_no_folder_nothing_to_resume_from(alone):
    with pytest.raises(ValueError, match="folder is None"):
        DistributedTrainer(*quick()).resume()


# ---------------------------------------------------------------- several processes


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_several_processes_train_as_one(world, tmp_path):
    run_processes([WORKER, "equal,alike,disagree", tmp_path], world, tmp_path)
    for case, (_, dtype, _, _) in distributed_worker.CASES.items():
        found = [load_tensors(tmp_path / "equal" / f"{case}-{rank}.safetensors") for rank in range(world)]
        assert all(distance(found[0][0], weights) == 0 for weights, _ in found), case  # the same bits everywhere
        assert all(notes == found[0][1] for _, notes in found)
        if case == "dropout":
            continue
        with torch.random.fork_rng():
            plain = Trainer(*distributed_worker.prepare(case))
        plain.fit()
        single = dtype == torch.float32 or case in ("gru", "untied")  # a loss without smoothing is computed in single
        assert distance(found[0][0], plain.model.state_dict()) < (2e-4 if single else 1e-9), case
        assert found[0][1]["step"] == plain.progress.step
        losses = [line["loss"] for line in plain.progress.log]
        assert found[0][1]["losses"] == pytest.approx(losses, abs=2e-4)
        with torch.random.fork_rng():
            start = distributed_worker.prepare(case)[0].state_dict()
        assert distance(start, plain.model.state_dict()) > 5e-3  # it has moved
    losses = [json.loads((tmp_path / "alike" / f"losses-{rank}.json").read_text()) for rank in range(world)]
    assert len({tuple(values) for values in losses}) == world  # everyone drops other elements
    assert not any((tmp_path / "equal").glob("*/last.safetensors"))


@pytest.mark.slow
def test_a_resumed_training_is_the_one_that_was_never_stopped(tmp_path):
    run_processes([WORKER, "straight,wish,die", tmp_path], 2, tmp_path)
    (tmp_path / "die").rename(tmp_path / "go_on")
    run_processes([WORKER, "go_on", tmp_path], 2, tmp_path)
    ends = {job: load_tensors(tmp_path / job / "end-0.safetensors") for job in ("straight", "wish", "go_on")}
    resumed = load_tensors(tmp_path / "go_on" / "resumed-1.safetensors")[1]["step"]
    stopped = [load_tensors(tmp_path / "wish" / f"stopped-{rank}.safetensors")[1]["step"] for rank in (0, 1)]
    assert resumed == 6 and stopped == [3, 3]  # the last save before update 7; all stop together
    for job, (weights, notes) in ends.items():
        assert distance(weights, ends["straight"][0]) == 0, job
        assert notes == ends["straight"][1]
        assert distance(weights, load_tensors(tmp_path / job / "end-1.safetensors")[0]) == 0
    expected = {"last", "best", "averaged", "epoch-2", "epoch-3"}
    assert {path.stem for path in (tmp_path / "straight" / "run").glob("*.safetensors")} == expected
    last = [load_tensors(tmp_path / job / "run" / "averaged.safetensors")[0] for job in ("straight", "go_on")]
    assert distance(*last) == 0


RUN = ["--data", "captions", "--n-captions", "60", "--model", "transformer", "--d-model", "16", "--d-ff", "32"]
RUN += ["--n-heads", "2", "--n-layers", "1", "--dropout", "0.1", "--max-tokens", "300", "--device", "cpu"]


@pytest.mark.slow
def test_the_command_trains_and_refuses(tmp_path):
    command = ["-m", "transformer_lib", "train", "--output", "run"]
    written = run_processes([*command, *RUN, "--epochs", "2"], 2, tmp_path)
    assert (
        "60 pairs" in written[0] and "2 processes" in written[0] and "epoch 2:" in written[0] and "done" in written[0]
    )
    assert "epoch " not in written[1]  # rank 0 speaks for all
    assert {"config.json", "source.json", "best.safetensors", "last.safetensors"} <= set(os.listdir(tmp_path / "run"))
    for extra, message in (([*RUN, "--epochs", "2"], "holds a run already"), (["--resume", *RUN], "leave out")):
        written = run_processes([*command, *extra], 2, tmp_path, codes=(1,))
        assert "transformer-lib: error: " in written[0] and message in written[0]
        assert "Traceback" not in written[0] + written[1]
    written = run_processes([*command, "--resume"], 2, tmp_path)
    assert "done" in written[0] and "epoch " not in written[0]


@pytest.mark.slow
def test_ctrl_c_under_torchrun_saves_and_the_run_can_go_on(tmp_path):
    train = ["-m", "transformer_lib", "train"]
    options = [*RUN, "--epochs", "6"]
    run_processes([*train, "--output", "whole", *options], 2, tmp_path)
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*start, *train, "--output", "broken", *options],
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            env=environment,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + 100
            while "epoch 1:" not in (tmp_path / "log").read_text() and time.monotonic() < end:
                assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGINT)
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    stopped = load_tensors(tmp_path / "broken" / "last.safetensors")[1]["progress"]["step"]
    run_processes([*train, "--output", "broken", "--resume"], 2, tmp_path)
    ends = [load_tensors(tmp_path / name / "last.safetensors") for name in ("whole", "broken")]
    assert stopped < ends[0][1]["progress"]["step"] == ends[1][1]["progress"]["step"]
    model = [{name: t for name, t in tensors.items() if name.startswith("model/")} for tensors, _ in ends]
    assert distance(*model) == 0


def test_a_process_of_torchrun_says_what_went_wrong_with_it(capsys, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "3")
    assert main(["train", "--output", "run", "--device", "mps"]) == 1
    assert "error: device='mps'" in capsys.readouterr().err


def test_the_chapter_quotes_the_record_of_its_benchmark():
    rows, prose = record_of("scaling-cost")["rows"], prose_of("scale/scaling_out")
    table = prose[prose.index("| measured | ratio of time |") :].partition("\n\n")[0]
    shown = re.findall(r"^\| ([^|]+) \| ([\d.]+) \|$", table, re.MULTILINE)
    ratios = [row for row in rows if " / " in row["measured"]]
    assert shown == [(row["measured"], f"{row['value']:g}") for row in ratios] and len(shown) == 6
    assert "python benchmarks/scaling.py --record results/scaling-cost.json" in prose
    found = {row["measured"]: row["value"] for row in rows}
    epoch = found["an epoch, batches by length / by chance"]
    assert f"an epoch in batches by length takes {100 * epoch:.0f} % of the time" in prose


def test_the_figures_show_what_was_recorded():
    path = ROOT / "book" / "translation" / "scaling_out.ipynb"
    codes = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    found = {}
    for name in ("PEAK", "STEPS", "SPEED_UPS"):
        (code,) = (code for code in codes if f"\n{name} = " in code)
        values = {
            n.targets[0].id: n.value
            for n in ast.parse(code).body
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
        }
        found[name] = ast.literal_eval(values[name])
    steps, prose = record_of("scaling-roofline"), prose_of("scale/scaling_out")
    assert found["PEAK"] == steps["machine"]["gflops_per_second"]
    for row in steps["rows"]:
        shown = found["STEPS"][row["size"]]
        assert shown["measured"] == {part: entry["seconds"] for part, entry in row["parts"].items()}
        assert shown["roofline"] == {part: entry["roofline_seconds"] for part, entry in row["parts"].items()}
        assert all(shown[name] == row[name] for name in ("gflop", "seconds", "wall_seconds"))
    for row, shown in zip(record_of("scaling-processes")["rows"], found["SPEED_UPS"], strict=True):
        assert shown[:2] == [row["size"], row["sentences"]]
        columns = [(way, clock) for clock in ("wall", "processor") for way in ("shared", "apart")]
        for (way, clock), values in zip(columns, shown[2:], strict=True):
            assert values == [row[f"{way}_{clock}_speed_up"], *row[f"{way}_{clock}_quartiles"]]
            assert f"{values[0]:.2f}" in prose


def test_the_chapter_says_what_a_second_process_brought_on_the_clock():
    rows, prose = record_of("scaling-processes")["rows"], prose_of("scale/scaling_out")
    for way in ("shared", "apart"):
        first, second, third = (f"{row[f'{way}_wall_speed_up']:.2f}" for row in rows)
        assert f"({first}, {second} and {third})" in prose
    for row in rows:
        low, high = row["shared_wall_quartiles"]
        assert row["shared_wall_speed_up"] < 1 and low < 1 < high and row["apart_wall_speed_up"] < 1.1
        assert 5.5 < row["alone_wall_milliseconds"] / row["alone_processor_milliseconds"] < 6.6
        messages = row["shared_processor_milliseconds"] / row["apart_processor_milliseconds"] - 1
        assert f" {100 * messages:.0f} %" in prose
    ends = [ends(row["shared_processor_speed_up"] for row in rows) for ends in (min, max)]
    assert "a speed-up of {:.1f} to {:.1f} in processor time".format(*ends) in prose
    gradient = count_bytes(PUBLISHED_RUNS["base"].config, 1, 1).gradients
    sent = gradient * 7 / 4  # by each of eight processes
    assert f"this takes {1000 * sent / 10e9:.0f} milliseconds" in prose
    assert f"one gigabit a second {8 * sent / 1e9:.1f} seconds" in prose


def test_the_bars_of_the_step_are_a_little_longer_than_the_step():
    rows, prose = record_of("scaling-roofline")["rows"], prose_of("scale/scaling_out")
    bars = [1000 * sum(part["seconds"] for part in row["parts"].values()) for row in rows]
    steps = [1000 * row["seconds"] for row in rows]
    assert "{:,.0f} and {:,.0f} ms; the percentages".format(*bars) in prose
    assert "those of whole steps, {:,.0f} and {:,.0f} ms".format(*steps) in prose


# ---------------------------------------------------------------- bad input

ONE = collate(random_examples([(2, 2)]))


def in_group(device: str) -> Callable[[], object]:
    def enter() -> object:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                patch.setenv(name, "1")
            return process_group(device).__enter__()

    return enter


BAD = {
    "no source": (lambda: count_flops(config(), 0, 5), "source_length=0"),
    "no target": (lambda: count_flops(config(), 5, 0), "target_length=0"),
    "no batch": (lambda: count_flops(config(), 5, 5, 0), "batch=0"),
    "bytes of no target": (lambda: count_bytes(config(), 5, 0), "target_length=0"),
    "numbers of no bytes": (lambda: count_bytes(config(), 5, 5, number_bytes=0), "number_bytes=0"),
    "intensity 0": (lambda: Machine(1.0, 1.0).ceiling(0.0), "intensity=0"),
    "whole numbers": (lambda: measure_machine(dtype=torch.int64), "torch.int64 is no floating type"),
    "no time": (lambda: measure_machine(seconds=0.0), "seconds=0"),
    "a device that is not here": (lambda: measure_machine("cuda:99"), "device 'cuda:99' is not available"),
    "no batches": (lambda: padding_share([]), "batches is empty"),
    "rank too large": (lambda: batch_share(ONE, 2, 2), "rank=2 is not one of world=2"),
    "negative rank": (lambda: batch_share(ONE, -1, 2), "rank=-1 is not one of world=2"),
    "no devices": (lambda: training_hours(1.0, 1.0, 1.0, 0), "n_devices=0"),
    "no rate": (lambda: training_hours(1.0, 1.0, 0.0), "rate=0"),
    "no operations": (lambda: training_hours(0.0, 1.0, 1.0), "flops_per_token=0"),
    "no tokens": (lambda: training_hours(1.0, 0.0, 1.0), "tokens=0"),
    "infinite rate": (lambda: training_hours(1.0, 1.0, math.inf), "rate=inf"),
    "more than all": (lambda: training_hours(1.0, 1.0, 1.0, 1, 1.5), "utilisation=1.5"),
    "length 0": (lambda: PUBLISHED_RUNS["base"].flops(0), "source_length=0"),
    "outside a group": (lambda: DistributedTrainer(*quick()), "there is no process group"),
    "one processor for all": (in_group("cuda:1"), "device='cuda:1' must be cpu or cuda"),
    "no accelerator": (in_group("mps"), "device='mps' must be cpu or cuda"),
    "without torchrun": (lambda: process_group().__enter__(), "RANK is not set: start this with torchrun"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    # With the annotations enforced, a wrong shape may be caught before our own check; test_errors.py runs without.
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))
