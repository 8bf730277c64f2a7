"""What a GPU does with the library, measured in at most eight minutes: tests, waits, kernels, precisions, speed.

    python tools/gpu.py --output FOLDER                every part, in a process of its own with a limit of its own
    python tools/gpu.py --output FOLDER --runs LIST    the second call: shell commands, one a line, such as trainings

FOLDER/gpu.json is written anew after every part, and FOLDER/parts.jsonl line by line, so that a stop loses nothing.
Copied to transformer_lib/results, gpu.json is a record that pages can load. A command of LIST writes below $OUTPUT; at
the end of its time it gets SIGTERM, at which a training saves. `--device cpu` and `--device gpu` (the stand-in of the
tests) with `--small` rehearse all this where there is no GPU.

A machine without a network needs these packages beside PyTorch and NumPy, as wheels for its Python, here 3.12:

    W="annotated-doc annotated-types anyio beartype certifi charset-normalizer click colorama docstring-parser
       filelock fsspec h11 hf-xet httpcore2 httpx2 huggingface-hub hypothesis idna iniconfig jaxtyping lxml
       markdown-it-py mdurl packaging platformdirs pluggy pooch portalocker pydantic pydantic-core pygments
       pytest pyyaml regex requests rich sacrebleu safetensors shellingham sortedcontainers tabulate tokenizers
       tqdm transformers truststore typeguard typer typing-extensions typing-inspection tyro urllib3
       wadler-lindig"
    pip download -d FOLDER --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \\
        --platform manylinux2014_x86_64 $(for name in $W; do grep -oE "^$name==[^ ;]+" requirements.txt; done)

and there: pip install --no-index --no-deps --target SITE FOLDER/*.whl; export PYTHONPATH=SITE
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import nullcontext
from datetime import date
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from transformer_lib import Transformer, TransformerConfig, beam_search, greedy_decode, sample  # noqa: E402
from transformer_lib.data.batching import collate  # noqa: E402
from transformer_lib.data.files import write_json  # noqa: E402
from transformer_lib.models.attention import attention  # noqa: E402
from transformer_lib.models.convert import to_hf, to_torch  # noqa: E402
from transformer_lib.training.distributed import process, process_group, shard  # noqa: E402
from transformer_lib.training.loss import translation_loss  # noqa: E402
from transformer_lib.training.run_state import Objective  # noqa: E402
from transformer_lib.training.trainer import Trainer, TrainingConfig  # noqa: E402

TINY = {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1}
STEADY = {"schedule": "constant", "warmup": 0, "average": 0, "learning_rate": 1e-4}


def base(small, **changes):
    """The Transformer of the paper's base size."""
    torch.manual_seed(0)
    words = 200 if small else 32_000
    return Transformer(TransformerConfig(words, words, **(TINY if small else {}) | changes))


def examples(small, count=None):
    """Random sentence pairs, half of them a quarter shorter than the others."""
    draw = torch.Generator().manual_seed(0)
    words = partial(torch.randint, 4, 200, generator=draw)
    lengths = [(5, 4) if small else (61, 45)][0]
    rows = [words((lengths[i % 2],)).tolist() for i in range(count or (4 if small else 128))]
    return [([*row, 2], [1, *row[::-1], 2]) for row in rows]


def trainer(model, rows, optimizer=None, **options):
    """A trainer whose batches are not cut by a budget, unless one is given."""
    config = TrainingConfig(**{"epochs": 1, "max_tokens": 10**5, **STEADY, **options})
    return Trainer(model, rows, rows, config, optimizer=optimizer)


def seconds(device, call):
    """How long a call takes, and the device with what it was given."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - start


def quartiles(values):
    """First quartile, median and third quartile."""
    return [float(f"{value:.4g}") for value in statistics.quantiles(values, n=4, method="inclusive")]


def in_turns(device, calls, rounds):
    """The time of each call, by turns and after one round to warm up; how many times as long as the first; memory."""
    rows = [{name: seconds(device, call) for name, call in calls.items()} for _ in range(rounds + 1)][1:]
    first, found = next(iter(calls)), {}
    for name, call in calls.items():
        found[name] = {"milliseconds": quartiles([1000 * row[name] for row in rows])}
        found[name][f"times as long as {first}"] = quartiles([row[name] / row[first] for row in rows])
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            found[name]["megabytes"] = (torch.cuda.max_memory_allocated() - before) >> 20
    return found


def product(device, small, dtype=torch.bfloat16):
    """Floating-point operations a second of a large matrix product, the best of ten."""
    n = 64 if small else 8192
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return 2 * n**3 / min(seconds(device, lambda: a @ b) for _ in range(10))


# ---------------------------------------------------------------- the parts: each yields what it finds


def machine(device, small):
    """The device, and the fastest it does alone."""
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        yield {"name": about.name, "gigabytes": about.total_memory >> 30, "cuda": torch.version.cuda}
        yield {"capability": [about.major, about.minor], "devices": torch.cuda.device_count()}
    for name, dtype in {"highest": torch.float32, "high": torch.float32, "bfloat16": torch.bfloat16}.items():
        torch.set_float32_matmul_precision("high" if name == "high" else "highest")
        yield {f"teraflops of a product, {name}": round(product(device, small, dtype) / 1e12, 3)}
    torch.set_float32_matmul_precision("highest")
    x = torch.randn(1000 if small else 2**28, device=device)
    yield {"gigabytes a second of a copy": 8e-9 * len(x) / min(seconds(device, x.clone) for _ in range(10))}


def tests(device, small):
    """The tests of devices, with this one in place of the stand-in."""
    if device == "cpu":
        return
    command = [sys.executable, "-m", "pytest", "-v", "-rfE", "--tb=line", "-W", "default", "-p", "no:cacheprovider"]
    command += ["tests/test_devices.py", *["-k", "refuses"] * small]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        lines = [print(line, end="", flush=True) or line.strip() for line in run.stdout]
    yield {"devices": lines[-1], "failed, devices": [line for line in lines if line.startswith(("FAILED", "ERROR"))]}


def masks(device, small):
    """A query that may attend to nothing, in every kernel; and the kernels that causal attention runs."""
    length = 8 if small else 256
    mask = torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril()
    mask[..., 3, :] = False
    names = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
    for dtype, name in ((d, n) for d in (torch.float32, torch.float16, torch.bfloat16) for n in names):
        inputs = [torch.randn(2, 4, length, 64, device=device, dtype=dtype).requires_grad_() for _ in range(3)]
        try:
            with sdpa_kernel(getattr(SDPBackend, name)), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = attention(*inputs, mask)
            gradients = torch.autograd.grad(out.square().sum(), inputs)
            row = {"zeros": not out[:, :, 3].any().item(), "no gradient": not gradients[0][:, :, 3].any().item()}
            row["finite"] = all(x.isfinite().all().item() for x in (out, *gradients))
        except RuntimeError as error:
            row = {"refused": str(error).splitlines()[0][:80]}
        yield {f"{name}, {dtype}": row}
    for name, queries in {"causal": length, "causal, with a cache": length // 2}.items() if device == "cuda" else ():
        q, k, v = (torch.randn(2, 8, n, 64, device=device).bfloat16() for n in (queries, length, length))
        with profile(activities=[ProfilerActivity.CUDA]) as watched:
            seconds(device, partial(attention, q, k, v, causal=True))
        kernels = sorted(event.key[:120] for event in watched.key_averages())
        yield {f"kernels, {name}": kernels, f"FlashAttention, {name}": any("flash" in one for one in kernels)}


def page_kernel(device, small):
    """The Triton kernel of the page on FlashAttention: what it computes, and its time beside the formula's."""
    if device == "gpu":
        yield {"left out": "the stand-in imitates no kernels"}
        return
    try:
        kernel = kernel_of_the_page()
    except ImportError as error:
        yield {"left out": str(error)}
        return
    kinds = [
        torch.float32,
        torch.float16,
        *[torch.bfloat16] * (device == "cuda"),
    ]  # Triton's interpreter lacks the last
    torch.manual_seed(0)
    for dtype, length in ((kind, n) for kind in kinds for n in ((16, 50) if small else (1024, 1000))):
        inputs = [torch.randn(2, length, 64, device=device, dtype=dtype) for _ in range(3)]
        exact = F.scaled_dot_product_attention(*(x.double() for x in inputs))
        yield {f"largest difference, {dtype}, {length}": (kernel(*inputs).double() - exact).abs().max().item()}
    q, k, v = (torch.randn(2 if small else 64, 32 if small else 4096, 64, device=device).half() for _ in range(3))
    calls = {
        "formula": lambda: (q @ k.mT / 8).softmax(-1) @ v,
        "PyTorch's kernel": lambda: F.scaled_dot_product_attention(q[None], k[None], v[None]),
        "the page's kernel": lambda: kernel(q, k, v),
    }
    yield {"a forward pass": in_turns(device, calls, 2 if small else 15)}


def kernel_of_the_page():
    """The function ``attention`` of the file that the page writes."""
    mark, folder = "%%writefile flash_kernel.py\n", tempfile.mkdtemp()
    cells = json.loads((ROOT / "book/scale/flash_attention.ipynb").read_text(encoding="utf-8"))["cells"]
    (text,) = (text for cell in cells if (text := "".join(cell["source"])).startswith(mark))
    (Path(folder) / "flash_kernel.py").write_text(text.removeprefix(mark), encoding="utf-8")
    sys.path.insert(0, folder)
    return importlib.import_module("flash_kernel").attention


def waits(device, small):
    """What makes the host wait in a training update, and in eight steps of each search."""
    if device == "cpu":
        return
    from stand_in import device as counting

    batch = collate(examples(True))
    with counting() as seen:
        for precision in ("float32", "bfloat16"):
            run = trainer(base(True).to(device), examples(True), precision=precision)
            run.update([batch])
            seen.clear()
            run.update([batch])
            yield {f"an update, {precision}": {" ".join(where): n for where, n in seen.items()}}
        for search in (greedy_decode, beam_search, sample):
            write_eight = partial(search, run.model, batch.source.to(device), min_length=8, max_length=8)
            write_eight()
            seen.clear()
            write_eight()
            yield {search.__name__: {" ".join(where): n for where, n in seen.items()}}


def processes(device, small):
    """Training in a group of one process and, where there are two GPUs, of two: copies (DDP) and shares (FSDP2)."""
    two = device == "cuda" and torch.cuda.device_count() > 1
    for world, how in [(1, "copies"), *[(2, "copies"), (2, "shares")] * two] if device != "gpu" else ():
        command = f"-m torch.distributed.run --standalone --nproc-per-node {world} {__file__} --group {how} --device"
        done = subprocess.run([sys.executable, *command.split(), device], stdout=subprocess.PIPE, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        yield {f"{world}, {how}": json.loads(lines[-1]) if lines else f"exit code {done.returncode}"}


def group(device, how):
    """The work of one process of a group: losses beside those of a training without a group; both ways to wrap."""

    def losses(place, **options):
        run = trainer(base(True, dropout=0.0).to(place), examples(True, 8), epochs=2, max_tokens=20, **options)
        run.fit()
        return [line["validation_loss"] for line in run.progress.log]

    alone = losses(device)
    with process_group(device) as place:
        one = torch.ones(3, device=place)
        dist.all_reduce(one)  # by nccl on a GPU
        found = {"backends": dist.get_backend_config(), "sum of ones": one.tolist(), "alone": alone}
        found["together"] = losses(place, shard=how == "shares")
        for name, wrap in (("DDP", DistributedDataParallel), ("FSDP2", shard)):
            model = wrap(Objective(base(True, dropout=0.0).to(place), translation_loss))
            loss = model(collate(examples(True)).to(place)).sum
            loss.backward()
            found[f"a loss with {name}"] = round(loss.item(), 4)
        if process()[0] == 0:
            print(json.dumps(found), flush=True)


class Peer(nn.Module):
    """The two stacks of an nn.Transformer between our embeddings and our output, with the same weights and dropout."""

    def __init__(self, ours):
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
        super().__init__()
        self.marian = to_hf(ours)

    def forward(self, source, target):
        """Logits of the token after each target token."""
        mask = (source != 0).long()
        return self.marian(source, mask, decoder_input_ids=target, use_cache=False).logits

    def write(self, source, beams, length):
        """So many tokens for each sentence."""
        lengths = {"max_new_tokens": length, "min_new_tokens": length}
        return self.marian.generate(
            source, attention_mask=(source != 0).long(), do_sample=False, num_beams=beams, **lengths
        )


def peers(device, small):
    """The three models with the same weights; without Hugging Face's, if it is not installed."""
    made = {"library": base(small).to(device), "nn.Transformer": Peer(base(small).to(device))}
    try:
        return made | {"Hugging Face": Marian(base(small).to(device))}
    except ImportError:
        return made


def training(device, small):
    """An update at base size in bfloat16, beside nn.Transformer and Hugging Face: time, memory, share of the peak."""
    batch, calls = collate(examples(small)).to(device), {}

    def update(model, adam):
        with torch.autocast(device, torch.bfloat16):
            if isinstance(model, Transformer):
                loss = model.loss(batch).sum
            else:
                logits = model(batch.source, batch.target_input).flatten(0, 1).float()
                loss = F.cross_entropy(logits, batch.target_output.flatten(), ignore_index=0, reduction="sum")
        loss.backward()
        adam.step()
        adam.zero_grad()

    for name, model in peers(device, small).items():
        calls[name] = partial(update, model, torch.optim.Adam(model.train().parameters(), lr=1e-5, fused=True))
    found = in_turns(device, calls, 3 if small else 15)
    yield {"an update": found, "target tokens": int((batch.target_output != 0).sum())}
    if device != "gpu":  # the counter cannot look into the stand-in
        with FlopCounterMode(display=False) as counter:
            calls["library"]()
        rate = counter.get_total_flops() / found["library"]["milliseconds"][1] * 1000
        yield {"teraflops": round(rate / 1e12, 3), "share of a product's": round(rate / product(device, small), 4)}


def decoding(device, small):
    """Greedy and beam search at base size in bfloat16, beside Hugging Face: time and memory."""
    dtype, length = (torch.float32, 3) if small else (torch.bfloat16, 64)
    models = {name: model.to(dtype).eval() for name, model in peers(device, small).items()}
    for count, beams in ((n, k) for n in ((2,) if small else (1, 64)) for k in (1, 4)):
        source = collate(examples(small, count)).source.to(device)
        search = partial(beam_search, beam_size=beams) if beams > 1 else greedy_decode
        calls = {"library": partial(search, models["library"], source, max_length=length, min_length=length)}
        if "Hugging Face" in models:
            calls["Hugging Face"] = partial(models["Hugging Face"].write, source, beams, length)
        yield {f"{count} sentences, {beams} beams, {length} tokens": in_turns(device, calls, 2 if small else 5)}


def precisions(device, small):
    """The same updates in several precisions, with Adam in many kernels, and compiled: losses and time."""
    batch, calls, last = collate(examples(small)), {}, {}
    kinds = {"float32": ("highest", {}), "TF32": ("high", {}), "bfloat16": ("high", {"precision": "bfloat16"})}
    kinds |= {"Adam in many kernels": kinds["bfloat16"]}
    kinds |= {"compiled": ("high", {"precision": "bfloat16", "compile": True})} if not small else {}
    for name, (products, options) in kinds.items():
        model = base(small, dropout=0.0).to(device)
        adam = torch.optim.Adam(model.parameters(), fused=name != "Adam in many kernels")
        run = trainer(model, examples(small), adam, **options)

        def update(run=run, products=products):
            torch.set_float32_matmul_precision(products)
            return run.update([batch])

        if name == "compiled":
            yield {"an update": in_turns(device, calls, 8)}
            calls = {"bfloat16": calls["bfloat16"]}
        losses = [round(update().item(), 4) for _ in range(2 if small else 20)]
        calls[name], last[name] = update, losses[-1]
        yield {f"losses, {name}": losses[:: max(1, len(losses) // 5)], "last losses": dict(last)}
    yield {"an update, compiled" if "compiled" in calls else "an update": in_turns(device, calls, 2 if small else 8)}
    torch.set_float32_matmul_precision("highest")


PARTS = {  # and the most seconds of each
    machine: 30,
    tests: 130,
    masks: 30,
    page_kernel: 40,
    waits: 30,
    training: 70,
    decoding: 80,
    processes: 50,
    precisions: 120,
}


# ---------------------------------------------------------------- one after the other


def follow(jobs, folder, minutes, name):
    """Run jobs within some minutes, each with its own limit; their record is written after every one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines, end = folder / "parts.jsonl", time.monotonic() + 60 * minutes
    lines.write_text("")
    commit = subprocess.getoutput(f"git -C '{ROOT}' rev-parse HEAD 2>/dev/null") or os.environ.get("COMMIT")
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    record = {
        "command": " ".join(sys.argv),
        "commit": commit,
        "date": str(date.today()),
        "versions": versions,
        "parts": {},
    }
    with (folder / "log.txt").open("a") as log:
        for job, (words, limit) in jobs.items():
            start, code = time.monotonic(), 124
            if (limit := min(limit, end - start)) > 1:
                words = ["timeout", "--kill-after=20", f"{limit:.0f}", *words]
                code = subprocess.call(words, cwd=ROOT, stdout=log, stderr=log)
            found = {"code": code, "seconds": round(time.monotonic() - start, 1)}  # 124: its time was over
            for line in map(json.loads, lines.read_text().splitlines()):
                found |= line["found"] if line["part"] == job else {}
            record["parts"][job] = found
            write_json(folder / f"{name}.json", record)
            print(f"{job}: {'out of time' if code == 124 else code or 'done'}", flush=True)
    return record


def findings(part, device, small):
    """What a part finds; on the stand-in, in its block."""
    from stand_in import device as there

    with there() if device == "gpu" and part is not waits else nullcontext():
        yield from part(device, small)


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="folder of the record")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu", "gpu"), help="gpu is the stand-in")
    parser.add_argument("--minutes", type=float, default=8.0, help="for everything together")
    parser.add_argument("--small", action="store_true", help="in miniature, to rehearse")
    parser.add_argument("--parts", nargs="*", default=[part.__name__ for part in PARTS], help="only these")
    parser.add_argument("--runs", type=Path, metavar="LIST", help="a file of commands to run instead")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["TEST_DEVICE"] = args.device
    if args.group:
        return group(args.device, args.group)
    parts, folder = {part.__name__: part for part in PARTS}, args.output.resolve()
    if args.part:
        with (folder / "parts.jsonl").open("a", buffering=1) as lines:
            for found in findings(parts[args.part], args.device, args.small):
                lines.write(json.dumps({"part": args.part, "found": found}) + "\n")
        return None
    os.environ["OUTPUT"] = str(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    if args.runs:
        lines = [line for line in args.runs.read_text().splitlines() if line and line[0] != "#"]
        jobs = {line: (["bash", "-c", line], 60 * args.minutes / len(lines)) for line in lines}
    else:
        own = [sys.executable, __file__, "--device", args.device, "--output", str(folder), *["--small"] * args.small]
        limits = {name: 600 if args.small else PARTS[parts[name]] for name in args.parts}
        jobs = {name: ([*own, "--part", name], limit) for name, limit in limits.items()}
    follow(jobs, folder, args.minutes, "runs" if args.runs else "gpu")


if __name__ == "__main__":
    sys.exit(main())
