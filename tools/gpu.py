"""What a GPU does with the library, measured in at most eight minutes: tests, waits, kernels, precisions, speed.

    python tools/gpu.py --wheels FOLDER        here: the packages that a machine without a network needs beside PyTorch
    python tools/gpu.py --output FOLDER        there: every part, in a process of its own with a limit of its own
    python tools/gpu.py --output FOLDER --runs LIST    the second call: shell commands, one a line, such as trainings

There, `pip install --no-index --no-deps --target SITE FOLDER/*.whl` installs the wheels; put SITE on PYTHONPATH.
FOLDER/gpu.json is written anew after every part, and FOLDER/parts.jsonl line by line, so that a stop loses nothing.
Copied to transformer_lib/results, gpu.json is a record that pages load. A command of LIST writes below $OUTPUT. At the
end of its time it gets SIGTERM, at which a training saves. `--device cpu` and `--device gpu` (the stand-in of the
tests) with `--small` rehearse all this where there is no GPU.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from datetime import date
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

LIBRARIES = ("library", "nn.Transformer", "Hugging Face")
STEADY = {"schedule": "constant", "warmup": 0, "average": 0, "learning_rate": 1e-4, "epochs": 1}


def base(small, **changes):
    """The Transformer of the paper's base size."""
    from transformer_lib.models.transformer import Transformer, TransformerConfig

    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1} if small else {}
    words = 200 if small else 32_000
    return Transformer(TransformerConfig(words, words, **sizes | {"tie_embeddings": "all"} | changes))


def sentences(small, device, count=None, length=None):
    """Random sentence pairs, half of them shorter than the others."""
    from transformer_lib.data.batching import collate

    draw = torch.Generator().manual_seed(0)
    count, length = count or (4 if small else 128), length or (6 if small else 64)
    rows = [torch.randint(4, 200, (length - 3 - (i % 2) * length // 4,), generator=draw).tolist() for i in range(count)]
    return collate([([*row, 2], [1, *row[::-1], 2]) for row in rows]).to(device)


def pairs(batch):
    """The examples of a batch, as the trainer takes them."""
    rows = zip(batch.source.tolist(), batch.target.tolist(), strict=True)
    return [tuple([token for token in side if token] for side in row) for row in rows]


def wait(device):
    """Until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(device, function):
    """How long a call takes."""
    wait(device)
    start = time.perf_counter()
    function()
    wait(device)
    return time.perf_counter() - start


def quartiles(values):
    """First quartile, median and third quartile, to four digits."""
    return [float(f"{value:.4g}") for value in statistics.quantiles(values, n=4, method="inclusive")]


def in_turns(device, calls, rounds):
    """Seconds of each call by turns, after one round to warm up; and how many times as long as the first each takes."""
    table = [{name: seconds(device, call) for name, call in calls.items()} for _ in range(rounds + 1)][1:]
    first = next(iter(calls))
    return {
        name: {
            "milliseconds": quartiles([1000 * row[name] for row in table]),
            f"times as long as {first}": quartiles([row[name] / row[first] for row in table]),
        }
        for name in calls
    }


def product(device, small, dtype):
    """Floating-point operations a second of a large matrix product, the best of ten."""
    n = 64 if small else 8192
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return 2 * n**3 / min(seconds(device, lambda: a @ b) for _ in range(10))


# ---------------------------------------------------------------- the parts: each yields what it finds


def machine(device, small):
    """The device, and the fastest it does alone."""
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        yield {"name": about.name, "gigabytes": round(about.total_memory / 2**30), "cuda": torch.version.cuda}
        yield {"capability": list(torch.cuda.get_device_capability()), "devices": torch.cuda.device_count()}
    for name, dtype, precision in (
        ("float32", torch.float32, "highest"),
        ("TF32", torch.float32, "high"),
        ("bfloat16", torch.bfloat16, "highest"),
    ):
        torch.set_float32_matmul_precision(precision)
        yield {f"teraflops of a product in {name}": round(product(device, small, dtype) / 1e12, 3)}
    torch.set_float32_matmul_precision("highest")
    x = torch.randn(1000 if small else 2**28, device=device)
    best = min(seconds(device, x.clone) for _ in range(10))
    yield {"gigabytes a second of a copy": round(8 * len(x) / best / 1e9, 1)}


def tests(device, small):
    """The tests of devices, with this one in place of the stand-in, and all others that know CUDA."""
    if device == "cpu":
        return
    files = [path for path in sorted((ROOT / "tests").glob("test_*.py")) if "DEVICES = " in path.read_text()]
    some = ["tests/test_devices.py", "-k", "refuses"] if small else ["tests/test_devices.py"]
    for name, given in {"devices": some} | (
        {"others": [*map(str, files), "-k", "cuda"]} if device == "cuda" else {}
    ).items():
        command = [sys.executable, "-m", "pytest", "-v", "-rfE", "--tb=line", "-W", "default", "-p", "no:cacheprovider"]
        with subprocess.Popen([*command, *given], cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
            lines = [print(line, end="", flush=True) or line.strip() for line in run.stdout]
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        yield {name: {"result": lines[-1] if lines else "nothing", "failed": failed}}


def waits(device, small):
    """What makes the host wait in a training update, and in eight steps of each search."""
    if device == "cpu":
        return
    from stand_in import device as counting

    from transformer_lib import beam_search, greedy_decode, sample
    from transformer_lib.training.trainer import Trainer, TrainingConfig

    batch = sentences(True, "cpu")
    with counting() as seen:
        for precision in ("float32", "bfloat16"):
            config = TrainingConfig(**STEADY, precision=precision)
            trainer = Trainer(base(True).to(device), *[pairs(batch)] * 2, config)
            trainer.update([batch])
            seen.clear()
            trainer.update([batch])
            yield {f"an update in {precision}": {" ".join(where): n for where, n in seen.items()}}
        for search in (greedy_decode, beam_search, sample):
            run = partial(search, trainer.model.eval(), batch.source.to(device), min_length=8, max_length=8)
            run()
            seen.clear()
            run()
            yield {search.__name__: {" ".join(where): n for where, n in seen.items()}}


def attention(device, small):
    """Fully masked rows in every kernel, and the kernels that causal attention runs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.profiler import ProfilerActivity, profile

    from transformer_lib.models.attention import attention

    kernels = [
        getattr(SDPBackend, name) for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
    ]
    length = 8 if small else 256
    mask = torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril()
    mask[..., 3, :] = False
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for kernel in kernels:
            torch.manual_seed(0)
            inputs = [torch.randn(2, 4, length, 64, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
            try:
                with sdpa_kernel(kernel), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    out = attention(*inputs, mask)
                gradients = torch.autograd.grad(out.square().sum(), inputs)
                row = {"zeros": not out[:, :, 3].any().item()}
                row["finite gradients"] = all(x.isfinite().all().item() for x in (out, *gradients))
                row["zero gradient of the row"] = not gradients[0][:, :, 3].any().item()
            except RuntimeError as error:
                row = {"refused": str(error).splitlines()[0][:80]}
            yield {f"{kernel.name}, {str(dtype)[6:]}, a row that may attend to nothing": row}
    if device != "cuda":
        return
    for name, queries in {"causal": length, "causal, with a cache": length // 2}.items():
        q, k, v = (torch.randn(2, 8, n, 64, device=device, dtype=torch.bfloat16) for n in (queries, length, length))
        with profile(activities=[ProfilerActivity.CUDA]) as watched:
            attention(q, k, v, causal=True)
            wait(device)
        names = sorted({event.key for event in watched.key_averages() if "mem" not in event.key.lower()})
        yield {f"kernels, {name}": [one[:120] for one in names], f"FlashAttention, {name}": "flash" in "".join(names)}


def precisions(device, small):
    """Loss and time of the same updates in float32, TF32 and bfloat16, with Adam in one kernel and in many."""
    from transformer_lib.training.trainer import Trainer, TrainingConfig

    batch, updates = sentences(small, "cpu"), 2 if small else 30
    calls, losses = {}, {}
    for name, precision, products, fused in (
        ("float32", "float32", "highest", True),
        ("TF32", "float32", "high", True),
        ("bfloat16", "bfloat16", "high", True),
        ("bfloat16, Adam in many kernels", "bfloat16", "high", False),
    ):
        model = base(small, dropout=0.0).to(device)
        config = TrainingConfig(**STEADY, precision=precision, max_tokens=10**5)
        adam = torch.optim.Adam(model.parameters(), lr=0.0, betas=config.betas, eps=config.eps, fused=fused)
        trainer = Trainer(model, *[pairs(batch)] * 2, config, optimizer=adam)

        def update(trainer=trainer, products=products):
            torch.set_float32_matmul_precision(products)
            return trainer.update([batch])

        losses[name] = [round(update().item(), 4) for _ in range(updates)]
        calls[name] = update
        yield {f"loss, {name}": losses[name][:: max(1, updates // 6)]}
    gaps = [abs(one - losses["float32"][-1]) for one in (losses["TF32"][-1], losses["bfloat16"][-1])]
    yield {"distance of the last losses from float32's": {"TF32": round(gaps[0], 4), "bfloat16": round(gaps[1], 4)}}
    yield {"an update": in_turns(device, calls, 2 if small else 8)}
    torch.set_float32_matmul_precision("highest")


def compiled(device, small):
    """The trainer's compile=True: the same losses, and how much faster."""
    if small:  # compiling takes longer than a rehearsal may
        return
    from transformer_lib.training.trainer import Trainer, TrainingConfig

    batch, calls = sentences(small, "cpu"), {}
    for name in ("plain", "compiled"):
        config = TrainingConfig(**STEADY, precision="bfloat16", compile=name == "compiled", max_tokens=10**5)
        trainer = Trainer(base(small, dropout=0.0).to(device), *[pairs(batch)] * 2, config)
        calls[name] = partial(trainer.update, [batch])
        start = time.perf_counter()
        losses = [round(calls[name]().item(), 4) for _ in range(4)]
        yield {f"losses, {name}": losses, f"seconds of four updates, {name}": round(time.perf_counter() - start, 1)}
    yield {"an update": in_turns(device, calls, 8)}


def processes(device, small):
    """Training in a group of one process and, where there are two GPUs, of two: copies (DDP) and shares (FSDP2)."""
    if device == "gpu":  # the stand-in has no collectives
        return
    count = torch.cuda.device_count() if device == "cuda" else 1
    for world, shard in [(1, False), *([(2, False), (2, True)] if count > 1 else [])]:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
        command += [__file__, "--group", "shard" if shard else "copy", "--device", device]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found = json.loads(lines[-1]) if lines else f"exit code {done.returncode}"
        yield {f"{world} process{'es' * (world > 1)}{', sharded' * shard}": found}


def group(device, how):
    """The work of one process of a group: its losses, beside those of a training without a group."""
    from torch.nn.parallel import DistributedDataParallel

    from transformer_lib.training.distributed import process, process_group, shard
    from transformer_lib.training.loss import translation_loss
    from transformer_lib.training.run_state import Objective
    from transformer_lib.training.trainer import Trainer, TrainingConfig

    batch, steady = sentences(True, "cpu", count=8), STEADY | {"epochs": 2, "max_tokens": 20}

    def losses(place, **changes):
        trainer = Trainer(base(True, dropout=0.0).to(place), *[pairs(batch)] * 2, TrainingConfig(**steady | changes))
        trainer.fit()
        return [line["validation_loss"] for line in trainer.progress.log]

    alone = losses(device)
    with process_group(device) as place:
        one = torch.ones(3, device=place)
        torch.distributed.all_reduce(one)  # by nccl
        found = {"backends": torch.distributed.get_backend_config(), "sum of ones": one.tolist(), "alone": alone}
        found |= {"together": losses(place, shard=how == "shard")}
        for name, wrap in (("DDP", DistributedDataParallel), ("FSDP2", shard)):
            model = wrap(Objective(base(True, dropout=0.0).to(place), translation_loss))
            loss = model(batch.to(place))
            loss.backward()
            found[f"a loss with {name}"] = round(loss.item(), 4)
        if process()[0] == 0:
            print(json.dumps(found), flush=True)


class Peer(nn.Module):
    """The two stacks of an nn.Transformer between our embeddings and our output, with the same weights and dropout."""

    def __init__(self, ours):
        from transformer_lib.models.convert import to_torch

        super().__init__()
        self.embedding, self.positions, self.output = ours.target_embedding, ours.target_positions, ours.output
        self.dropout, self.scale, self.body = ours.dropout, ours.scale, to_torch(ours)
        for part in self.body.modules():  # theirs has dropout in two more places
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
            elif hasattr(part, "linear1"):
                part.dropout = nn.Identity()

    def forward(self, source, target):
        """Logits of the token after each target token."""
        inputs = [self.dropout(self.positions(self.embedding(side) * self.scale)) for side in (source, target)]
        future = nn.Transformer.generate_square_subsequent_mask(target.shape[1], source.device).isinf()
        masks = {"src_key_padding_mask": source == 0, "memory_key_padding_mask": source == 0}
        return self.output(self.body(*inputs, tgt_mask=future, tgt_is_causal=True, **masks))


class Marian(nn.Module):
    """Hugging Face's model with our weights."""

    def __init__(self, ours):
        from transformer_lib.models.convert import to_hf

        super().__init__()
        self.marian = to_hf(ours)

    def forward(self, source, target):
        """Logits of the token after each target token."""
        inputs = {"input_ids": source, "attention_mask": (source != 0).long(), "decoder_input_ids": target}
        return self.marian(**inputs, use_cache=False).logits

    def write(self, source, beams, length):
        """So many tokens for each sentence."""
        inputs = {"input_ids": source, "attention_mask": (source != 0).long()}
        options = {"do_sample": False, "num_beams": beams, "max_new_tokens": length, "min_new_tokens": length}
        return self.marian.generate(**inputs, **options)


def built(small, device):
    """The three models, or those that can be had; with the same weights."""
    ours = base(small).to(device)
    yield "library", ours
    yield "nn.Transformer", Peer(base(small).to(device))
    try:
        import transformers  # noqa: F401
    except ImportError:
        return
    yield "Hugging Face", Marian(base(small).to(device))


def training(device, small):
    """An update at base size in bfloat16, beside nn.Transformer and Hugging Face: time, memory, share of the peak."""
    from torch.utils.flop_counter import FlopCounterMode

    from transformer_lib.training.loss import translation_loss

    batch, models = sentences(small, device), dict(built(small, device))
    yield {"left out": [name for name in LIBRARIES if name not in models]}

    def update(name, model, adam):
        with torch.autocast(device, torch.bfloat16):
            if name == "library":
                loss = translation_loss(model, batch)
            else:
                logits = model(batch.source, batch.target_input).flatten(0, 1).float()
                loss = F.cross_entropy(logits, batch.target_output.flatten(), ignore_index=0, reduction="sum")
        loss.backward()
        adam.step()
        adam.zero_grad()

    calls = {}
    for name, model in models.items():
        adam = torch.optim.Adam(model.train().parameters(), lr=1e-5, fused=True)
        calls[name] = partial(update, name, model, adam)
        calls[name]()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            calls[name]()
            yield {f"megabytes at the peak, {name}": round((torch.cuda.max_memory_allocated() - before) / 2**20)}
    found = in_turns(device, calls, 3 if small else 15)
    yield {"an update": found, "target tokens": int((batch.target_output != 0).sum())}
    if device != "gpu":  # the counter cannot look into the stand-in
        with FlopCounterMode(display=False) as counter:
            calls["library"]()
        rate = counter.get_total_flops() / (found["library"]["milliseconds"][1] / 1000)
        yield {"teraflops of an update": round(rate / 1e12, 3)}
        yield {"share of a product's": round(rate / product(device, small, torch.bfloat16), 4)}


def decoding(device, small):
    """Greedy and beam search at base size in bfloat16, beside Hugging Face: time and memory."""
    from transformer_lib import beam_search, greedy_decode

    dtype = torch.float32 if small else torch.bfloat16
    models = {name: model.to(dtype).eval() for name, model in built(small, device) if name != "nn.Transformer"}
    yield {"left out": [name for name in LIBRARIES[::2] if name not in models]}
    length = 3 if small else 64
    for count in (2,) if small else (1, 64):
        source = sentences(small, device, count).source
        for kind, beams in (("greedy", 1), ("beam", 4)):
            options = {"max_length": length, "min_length": length}
            search = partial(beam_search, beam_size=beams) if beams > 1 else greedy_decode
            calls = {"library": partial(search, models["library"], source, **options)}
            if "Hugging Face" in models:
                calls["Hugging Face"] = partial(models["Hugging Face"].write, source, beams, length)
            found = in_turns(device, calls, 2 if small else 5)
            if device == "cuda":
                for name, call in calls.items():
                    torch.cuda.reset_peak_memory_stats()
                    call()
                    found[name]["megabytes"] = round(torch.cuda.max_memory_allocated() / 2**20)
            yield {f"{kind}, {count} sentences, {length} tokens": found}


PARTS = {  # and the most seconds of each
    machine: 25,
    tests: 130,
    attention: 30,
    waits: 25,
    training: 70,
    decoding: 80,
    precisions: 45,
    processes: 45,
    compiled: 90,
}


# ---------------------------------------------------------------- one after the other


def limited(command, limit, log, env):
    """Run a command; what became of it. At the end of its time it gets SIGTERM, and twenty seconds to save."""
    child = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=ROOT, start_new_session=True)
    try:
        code = child.wait(max(1.0, limit))
        return "done" if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        return f"stopped after {limit:.0f} s"
    finally:
        for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
            if child.poll() is None:
                os.killpg(child.pid, number)
                try:
                    child.wait(patience)
                except subprocess.TimeoutExpired:
                    continue


def installed(name):
    """The version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def provenance():
    """What it takes to believe a record, and to repeat it."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    names = ("torch", "transformers", "numpy")
    versions = {"python": platform.python_version()} | {name: installed(name) for name in names}
    return {
        "command": " ".join(["python tools/gpu.py", *sys.argv[1:]]),
        "commit": git.stdout.strip() or "unknown",
        "date": str(date.today()),
        "versions": versions,
    }


def follow(jobs, folder, minutes, name):
    """Run jobs within some minutes, each with its own limit; their record is written after every one of them."""
    from transformer_lib.data.files import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    lines, end = folder / "parts.jsonl", time.monotonic() + 60 * minutes
    lines.write_text("")
    record = provenance() | {"parts": {}}
    env = os.environ | {"OUTPUT": str(folder.resolve()), "PYTHONUNBUFFERED": "1"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with (folder / "log.txt").open("a") as log:
        for job, (command, limit) in jobs.items():
            start = time.monotonic()
            left = end - start
            became = limited(command, min(limit, left), log, env) if left > 5 else "no time was left"
            found = [json.loads(line) for line in lines.read_text().splitlines()]
            found = {key: value for one in found if one["part"] == job for key, value in one["found"].items()}
            record["parts"][job] = {"became": became, "seconds": round(time.monotonic() - start, 1)} | found
            write_atomically(folder / f"{name}.json", (json.dumps(record, indent=1) + "\n").encode())
            print(f"{job}: {became}", flush=True)
    return record


def part(name, device, small, folder):
    """The work of the process of one part: write what it finds line by line."""
    function = next(one for one in PARTS if one.__name__ == name)
    with (folder / "parts.jsonl").open("a") as lines:
        for found in rehearsed(function, device, small):
            lines.write(json.dumps({"part": name, "found": found}) + "\n")
            lines.flush()


def rehearsed(function, device, small):
    """What a part finds; on the stand-in, inside of its block."""
    from stand_in import device as there

    with there() if device == "gpu" and function is not waits else nullcontext():
        yield from function(device, small)


def wheels(folder):
    """Download what the library, its tests and the comparisons need beside PyTorch, for Python 3.12 on Linux."""
    from packaging.requirements import Requirement

    todo, needed = [Requirement("attention-step-by-step[hf,strict]"), *map(Requirement, ("pytest", "hypothesis"))], {}
    left = {"torch", "numpy", "attention-step-by-step"}
    while todo:
        one = todo.pop()
        for entry in map(Requirement, requires(one.name) or ()):
            target = {"python_version": "3.12", "sys_platform": "linux", "platform_system": "Linux"}
            marked = [entry.marker is None or entry.marker.evaluate(target | {"extra": e}) for e in (*one.extras, "")]
            if any(marked) and entry.name not in {*needed, *left}:
                todo.append(entry)
        if one.name not in left:
            needed[one.name] = f"{one.name}=={version(one.name)}"
    tags = [f"--platform=manylinux{tag}_x86_64" for tag in ("_2_28", "_2_27", "_2_17", "2014", "_2_5", "1")]
    options = ["--no-deps", "--only-binary=:all:", "--python-version=3.12", "--implementation=cp", *tags]
    return subprocess.call([sys.executable, "-m", "pip", "download", "-q", *options, "-d", folder, *needed.values()])


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="folder of the record")
    parser.add_argument(
        "--device", default="cuda", choices=("cuda", "cpu", "gpu"), help="cuda, cpu, gpu (the stand-in)"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="of all parts together")
    parser.add_argument("--small", action="store_true", help="in miniature, to rehearse")
    parser.add_argument("--parts", nargs="*", default=[one.__name__ for one in PARTS], help="only these")
    parser.add_argument("--runs", type=Path, metavar="LIST", help="a file of shell commands to run instead")
    parser.add_argument("--wheels", metavar="FOLDER", help="download what is needed beside PyTorch")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["TEST_DEVICE"] = args.device
    if args.wheels:
        return wheels(args.wheels)
    if args.group:
        return group(args.device, args.group)
    if args.part:
        return part(args.part, args.device, args.small, args.output)
    if args.runs:
        commands = [line.strip() for line in args.runs.read_text().splitlines() if line.strip() and line[0] != "#"]
        jobs = {line: (["bash", "-c", line], 60 * args.minutes / len(commands)) for line in commands}
        follow(jobs, args.output, args.minutes, "runs")
        return 0
    own = [sys.executable, __file__, "--device", args.device, "--output", str(args.output.resolve())]
    limits = {one.__name__: 600 if args.small else limit for one, limit in PARTS.items() if one.__name__ in args.parts}
    jobs = {name: ([*own, *["--small"] * args.small, "--part", name], limit) for name, limit in limits.items()}
    follow(jobs, args.output, args.minutes, "gpu")
    return 0


if __name__ == "__main__":
    sys.exit(main())
