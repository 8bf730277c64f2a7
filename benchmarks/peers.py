"""How fast the library is beside its peers: every pair takes turns in one process, and the ratio of medians is kept.

    pip install transformers x-transformers ctranslate2 joeynmt
    python benchmarks/peers.py [--only training decoding ...] [--repeats 7] [--record results/peers.json]
    python benchmarks/peers.py --compare OLD.json NEW.json

Absolute times mean little on a shared machine, and ratios of two things that take turns mean more. One thread computes;
the clock is that of the process, which stands still while another program has the core. Before two searches are timed,
their outputs are compared. Models with random weights have 3 + 3 layers, width 256, 4 heads, 1,024 inside and one table
of 10,000 tokens for source, target and output; those with trained ones are in ``peers_end_to_end.py``, and attention
by itself is in ``peers_attention.py``. Peers that are not installed are left out. ``--compare`` names every ratio that
fell by more than 15 percent from one record to the next, and every one that is gone; it ends with 1 if there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from decoding import LENGTH, our_search, sources, their_search
from marian import marian_model, marian_pair
from peers_attention import attention, attention_memory
from peers_end_to_end import (
    SPECIAL,
    ctranslate2_folder,
    eight_bits,
    first_translation,
    packed,
    small_weights,
    text_to_text,
    with_products,
)
from side_by_side import Row, Work, compare, fallen, less, turns

from transformer_lib.data.batching import Batch, batches
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.loss import output_loss
from transformer_lib.translation.evaluation import run_metadata

VOCABULARY, WIDTH, HEADS, LAYERS, INSIDE = 10_000, 256, 4, 3, 1024


# ------------------------------------------------------------------ training


class TorchPeer(nn.Module):
    """``nn.Transformer`` with what a translator needs around it, as its users write it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.table.weight, std=WIDTH**-0.5)
        self.positions = nn.Embedding(1024, WIDTH)
        sizes = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": INSIDE, "dropout": 0.1}
        self.body = nn.Transformer(
            num_encoder_layers=LAYERS, num_decoder_layers=LAYERS, batch_first=True, norm_first=True, **sizes
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        inputs = [
            self.table(tokens) * WIDTH**0.5 + self.positions(torch.arange(tokens.shape[1]))
            for tokens in (source, target)
        ]
        future = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = {"src_key_padding_mask": source == PAD, "memory_key_padding_mask": source == PAD}
        found = self.body(*inputs, tgt_mask=future, tgt_is_causal=True, **padding)
        return F.linear(found, self.table.weight)


def step_of(model: nn.Module, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], None]:
    """One update of Adam."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(batch).backward()
        optimizer.step()

    return step


def our_step() -> Callable[[Batch], None]:
    """Ours, with the loss that never holds all logits."""
    sizes = {"d_model": WIDTH, "n_heads": HEADS, "d_ff": INSIDE, "dropout": 0.1, "norm_first": True}
    layers = {"n_encoder_layers": LAYERS, "n_decoder_layers": LAYERS}
    model = Transformer(TransformerConfig(VOCABULARY, VOCABULARY, **sizes, **layers))

    def loss(batch: Batch) -> Tensor:
        hidden = model.hidden(batch.target_input, model.encode(batch.source, batch.source != PAD))
        return output_loss(hidden, model.output, batch.target_output)

    return step_of(model, loss)


def logits_step(model: nn.Module, logits: Callable[[Batch], Tensor]) -> Callable[[Batch], None]:
    """A peer's: logits of every position, then PyTorch's cross-entropy."""

    def loss(batch: Batch) -> Tensor:
        return F.cross_entropy(logits(batch).flatten(0, 1), batch.target_output.flatten(), ignore_index=PAD)

    return step_of(model, loss)


def peer_steps() -> dict[str, Callable[[Batch], None]]:
    """The peers that are installed."""
    torch_peer = TorchPeer()
    found = {
        "nn.Transformer": logits_step(torch_peer, lambda batch: torch_peer(batch.source, batch.target_input)),
    }
    try:
        marian = marian_model(VOCABULARY, WIDTH, HEADS, (LAYERS, LAYERS), INSIDE, 1024, init_std=0.02, dropout=0.1)
        found["Hugging Face Marian"] = logits_step(
            marian,
            lambda batch: (
                marian(
                    input_ids=batch.source,
                    attention_mask=(batch.source != PAD).long(),
                    decoder_input_ids=batch.target_input,
                    use_cache=False,
                ).logits
            ),
        )
    except ImportError:
        pass
    try:
        from x_transformers import XTransformer

        sizes = {"num_tokens": VOCABULARY, "depth": LAYERS, "heads": HEADS, "max_seq_len": 1024, "attn_dim_head": 64}
        both = {f"{side}_{name}": value for side in ("enc", "dec") for name, value in sizes.items()}
        flash = {"enc_attn_flash": True, "dec_attn_flash": True}
        dropout = {f"{s}_{part}_dropout": 0.1 for s in ("enc", "dec") for part in ("attn", "ff")}
        theirs = XTransformer(dim=WIDTH, tie_token_emb=True, **both, **flash, **dropout)

        def logits(batch: Batch) -> Tensor:
            mask = batch.source != PAD
            memory = theirs.encoder(batch.source, mask=mask, return_embeddings=True)
            return theirs.decoder.net(batch.target_input, context=memory, context_mask=mask)

        found["x-transformers"] = logits_step(theirs, logits)
    except ImportError:
        pass
    with contextlib.suppress(ImportError):
        found["Joey NMT"] = joey_step()
    return found


def joey_step() -> Callable[[Batch], None]:
    """Joey NMT's model, with its own loss; its ids 0 to 3 are unknown, padding, beginning and end."""
    from types import SimpleNamespace

    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": None}
    ids = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3, "sep_id": None}
    words = Vocabulary([f"t{i}" for i in range(4, VOCABULARY)], SimpleNamespace(**names, **ids, lang_tags=[]))
    sizes = {"type": "transformer", "hidden_size": WIDTH, "ff_size": INSIDE, "num_layers": LAYERS, "num_heads": HEADS}
    side = {**sizes, "dropout": 0.1, "layer_norm": "pre", "embeddings": {"embedding_dim": WIDTH, "scale": True}}
    tied = {"tied_embeddings": True, "tied_softmax": True, "initializer": "xavier_uniform"}
    inits = {"bias_initializer": "zeros", "embed_initializer": "xavier_uniform"}
    model = build_model({"encoder": side, "decoder": copy.deepcopy(side), **tied, **inits}, words, words)
    model.loss_function = ("crossentropy", 0.0)
    theirs = torch.arange(VOCABULARY)
    theirs[:4] = torch.tensor([1, 2, 3, 0])

    def loss(batch: Batch) -> Tensor:
        source, read, target = (theirs[t] for t in (batch.source, batch.target_input, batch.target_output))
        there = {"src_mask": (source != 1)[:, None], "trg_mask": (read != 1)[:, None]}
        given = {"src": source, "trg_input": read, "trg": target, "src_length": None, **there}
        return model(return_type="loss", **given)[0] / (target != 1).sum()

    return step_of(model, loss)


def fixed_batch(rows: int = 32, length: int = 20) -> Batch:
    """Random tokens without padding."""
    source, target = (torch.randint(4, VOCABULARY, (rows, length + extra)) for extra in (0, 1))
    return Batch(source, target, tuple(range(rows)))


def training(repeats: int) -> Iterator[Row]:
    """One update on a batch of 32 pairs of 20 tokens."""
    ours, peers, batch = our_step(), peer_steps(), fixed_batch()
    work = {name: lambda step=step: step(batch) for name, step in peers.items()}
    yield from compare("training, fixed shape", "updates/s", 1, turns(lambda: ours(batch), work, repeats))


def ragged(n_pairs: int = 320) -> list[tuple[list[int], list[int]]]:
    """Random tokens of as many lengths as sentences have: about 13 of them, 5 to 40."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.exp(torch.randn(n_pairs, generator=generator) * 0.33 + 2.5).round().clamp(5, 40).int().tolist()
    found = []
    for length in lengths:
        other = max(4, length + int(torch.randint(-2, 3, (1,), generator=generator)))
        source, target = (torch.randint(4, VOCABULARY, (n,), generator=generator).tolist() for n in (length, other))
        found.append(([*source, EOS], [BOS, *target, EOS]))
    return found


def random_batches(examples: list[tuple[list[int], list[int]]], rows: int = 64) -> list[Batch]:
    """What people write first: so many pairs, as they come, padded to the longest."""
    found = []
    for first, last in pairwise([*range(0, len(examples), rows), len(examples)]):
        part = examples[first:last]
        sides = [
            nn.utils.rnn.pad_sequence([torch.tensor(pair[side]) for pair in part], batch_first=True) for side in (0, 1)
        ]
        found.append(Batch(*sides, tuple(range(first, last))))
    return found


def lengths(repeats: int) -> Iterator[Row]:
    """An epoch of sentences of many lengths: our batches of similar lengths, theirs as they come."""
    examples = ragged()
    ours, theirs = our_step(), peer_steps()
    sorted_batches, plain = list(batches(examples, max_tokens=1000)), random_batches(examples)
    useful = sum(len(target) - 1 for _, target in examples)

    def epoch(step: Callable[[Batch], None], order: list[Batch]) -> None:
        for batch in order:
            step(batch)

    work = {name: lambda step=step: epoch(step, plain) for name, step in theirs.items()}
    times = turns(lambda: epoch(ours, sorted_batches), work, repeats)
    yield from compare("training, many lengths", "target tokens/s", useful, times)


# ------------------------------------------------------------------ decoding


def ctranslate2_search(theirs: nn.Module, source: Tensor, beams: int, kind: str, folder: Path) -> Work:
    """The same weights in CTranslate2, which is written in C++."""
    import ctranslate2

    path, names = folder / kind, [*SPECIAL, *(f"t{i}" for i in range(4, VOCABULARY))]
    if not path.exists():
        ctranslate2_folder(theirs, names, path, kind)
    translator = ctranslate2.Translator(str(path), device="cpu", intra_threads=1, inter_threads=1, compute_type=kind)
    rows = [[names[token] for token in row if token != PAD] for row in source.tolist()]

    def search() -> list[list[int]]:
        found = translator.translate_batch(
            rows, beam_size=beams, max_decoding_length=LENGTH, length_penalty=1, disable_unk=False
        )
        known = {name: index for index, name in enumerate(names)}
        return [[known[token] for token in one.hypotheses[0]] for one in found]

    return search


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """The share of sentences that both wrote alike."""
    return sum(a[:LENGTH] == b[:LENGTH] for a, b in zip(ours, theirs, strict=True)) / len(ours)


def decoding(repeats: int) -> Iterator[Row]:
    """Greedy search and a beam of four, 32 sentences, 40 tokens for each."""
    torch.manual_seed(0)
    ours, theirs = marian_pair(VOCABULARY, WIDTH, HEADS, (LAYERS, LAYERS), INSIDE, max_length=128, init_std=0.05)
    with torch.no_grad():
        ours.target_embedding.weight[EOS] = theirs.model.shared.weight[EOS] = 0
    source = sources("cpu")
    with tempfile.TemporaryDirectory() as folder:
        for beams, name in ((1, "greedy"), (4, "beam of 4")):
            peers = {"Hugging Face": their_search(theirs, source, beams)}
            try:
                for kind in ("float32", "int8"):
                    search = ctranslate2_search(theirs, source, beams, kind, Path(folder))
                    peers[f"CTranslate2 (C++), {kind}"] = search
            except ImportError:
                pass
            mine = our_search(ours, source, beams)
            written = mine()
            for peer, search in peers.items():
                same = agreement(written, search())
                if same < 0.9 and "int8" not in peer:
                    raise ValueError(f"{peer} agrees about {same:.0%} of the sentences: it does other work")
            amount = source.shape[0] * LENGTH
            yield from compare(f"decoding, {name}", "tokens/s", amount, turns(mine, peers, repeats))


# ------------------------------------------------------------------ where the time goes

KINDS = {
    "matrix products": ("addmm", "mm", "bmm", "baddbmm"),
    "attention kernel": ("_scaled_dot_product", "_softmax"),
    "choosing tokens": ("topk", "argmax", "log_softmax", "logsumexp", "sort", "max"),
    "moving and filling": ("copy_", "cat", "index_select", "index", "gather", "fill_", "masked_fill", "where", "empty"),
}


def kind_of(operator: str) -> str:
    name = operator.removeprefix("aten::")
    exact = [kind for kind, names in KINDS.items() if name in names]
    begun = [kind for kind, names in KINDS.items() if name.startswith(tuple(n for n in names if len(n) > 5))]
    return (exact or begun or ["everything else"])[0]


def shares(work: Work) -> dict[str, float]:
    """Which share of the time of all operators each kind of them takes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work()
    times = dict.fromkeys((*KINDS, "everything else"), 0.0)
    for event in profile.key_averages():
        times[kind_of(event.key)] += event.self_cpu_time_total
    return {kind: round(100 * time / sum(times.values())) for kind, time in times.items()}


def profile() -> list[dict[str, Any]]:
    """Where a search and an update spend their time, and how fast the products of a search are, in both precisions."""
    torch.manual_seed(0)
    ours, _ = marian_pair(VOCABULARY, WIDTH, HEADS, (LAYERS, LAYERS), INSIDE, max_length=128, init_std=0.05)
    with torch.no_grad():
        ours.target_embedding.weight[EOS] = 0
    source, batch, step = sources("cpu"), fixed_batch(), our_step()
    works = {"greedy search": our_search(ours, source, 1), "beam of 4": our_search(ours, source, 4)}
    works["training step"] = lambda: step(batch)
    found = []
    for name, work in works.items():
        work()
        found.append({"work": name, "percent": shares(work)})
        print(json.dumps(found[-1]), flush=True)
    return found


def products(repeats: int) -> Iterator[Row]:
    """A layer's product in single precision beside the same one with weights of eight bits, made by PyTorch."""
    for rows, inside, outside in ((32, 256, 1024), (32, 1024, 256), (32, 256, VOCABULARY), (128, 256, VOCABULARY)):
        layer, hidden = nn.Linear(inside, outside), torch.randn(rows, inside)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            small = torch.ao.quantization.quantize_dynamic(nn.Sequential(layer), {nn.Linear}, dtype=torch.qint8)
            plain = lambda layer=layer, hidden=hidden: [layer(hidden) for _ in range(50)]  # noqa: E731
            eight = lambda small=small, hidden=hidden: [small(hidden) for _ in range(50)]  # noqa: E731
            times = turns(eight, {"float32": plain}, repeats)
        work = 50 * 2 * rows * inside * outside / 1e9
        yield from compare(f"int8 product {rows} x {inside} x {outside}", "GFLOP/s", work, times)


def wide_weights(repeats: int) -> Iterator[Row]:
    """The search of ``decoding`` with products that PyTorch could compute faster, beside its own."""
    torch.manual_seed(0)
    ours, _ = marian_pair(VOCABULARY, WIDTH, HEADS, (LAYERS, LAYERS), INSIDE, max_length=128, init_std=0.05)
    with torch.no_grad():
        ours.target_embedding.weight[EOS] = 0
    source = sources("cpu")
    for name, make in (("weights of 8 bits", eight_bits), ("weights packed by oneDNN", packed)):
        other = with_products(ours, make)
        for beams, search in ((1, "greedy"), (4, "beam of 4")):
            plain = {"as it is": our_search(ours, source, beams)}
            times = turns(our_search(other, source, beams), plain, repeats)
            yield from compare(f"{name}, width 256, {search}", "tokens/s", source.shape[0] * LENGTH, times)


# ------------------------------------------------------------------ memory and starting


MEMORY = """
import sys, torch
from torch.nn import functional as F
from transformer_lib.training.loss import output_loss
torch.set_num_threads(1)
kind, vocabulary = sys.argv[1], int(sys.argv[2])
hidden = torch.randn(64, 32, 256, requires_grad=True)
output = torch.nn.Linear(256, vocabulary, bias=False)
target = torch.randint(4, vocabulary, (64, 32))
def loss(n):
    if kind == "ours":
        return output_loss(hidden[:n], output, target[:n])
    return F.cross_entropy(output(hidden[:n]).flatten(0, 1), target[:n].flatten())
def peak():
    # in MB, of this program alone: what getrusage gives begins with that of its parent
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
loss(1).backward()
before = peak()
loss(64).backward()
print(peak() - before)
"""


def memory(repeats: int) -> Iterator[Row]:
    """Peak memory of the output layer and the loss, forward and backward, for 2,048 target tokens."""
    for vocabulary in (5_000, 10_000, 30_000):
        found = {}
        for kind in ("ours", "plain"):
            asked = [sys.executable, "-c", MEMORY, kind, str(vocabulary)]
            found[kind] = float(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
        what = f"peak memory of output layer and loss, {vocabulary:,} tokens"
        yield less(what, "logits, then cross-entropy", found["ours"], found["plain"])


IMPORTS = {
    "import, after PyTorch": "import torch, time; a = time.process_time(); {}; print(time.process_time() - a)",
    "import, with PyTorch": "import time; {}; print(time.process_time())",
}


def starting(repeats: int) -> Iterator[Row]:
    """Processor time until the package is there, without PyTorch's own and with it."""
    codes = {
        "ours": "import transformer_lib; transformer_lib.Transformer",
        "Hugging Face": "from transformers import MarianMTModel",
        "x-transformers": "import x_transformers",
    }
    for what, told in IMPORTS.items():
        times: dict[str, list[float]] = {}
        for _ in range(max(3, repeats // 2)):
            for name, code in codes.items():
                asked = [sys.executable, "-W", "ignore", "-c", told.format(code)]
                done = subprocess.run(asked, capture_output=True, text=True)
                if done.returncode == 0:
                    times.setdefault(name, []).append(float(done.stdout.split()[-1]))
        yield from compare(what, "imports/s", 1, times)


PARTS: dict[str, Callable[[int], Iterator[Row]]] = {
    "training": training,
    "lengths": lengths,
    "decoding": decoding,
    "text": text_to_text,
    "products": products,
    "weights": wide_weights,
    "memory": memory,
    "starting": starting,
    "first": first_translation,
    "small": small_weights,
    "attention": attention,
    "attention_memory": attention_memory,
}
# what was asked for: the beginning of a row, that of its peer, the least ratio; the lowest row that fits counts
GOALS = (
    ("training, fixed shape", "", 1.15),
    ("training, many lengths", "nn.Transformer", 2),
    ("decoding, greedy", "Hugging Face", 1.3),
    ("decoding, beam of 4", "Hugging Face", 1.5),
    ("decoding, greedy", "CTranslate2 (C++), float32", 0.75),
    ("decoding, beam of 4", "CTranslate2 (C++), float32", 0.75),
    ("1,000 sentences, greedy", "Hugging Face", 3),
    ("1,000 sentences, beam of 4", "Hugging Face", 3),
    ("100 sentences, greedy", "Hugging Face, one at a time", 3),
    ("weights of 8 bits, shipped", "as it is", 1.5),
    ("peak memory of output layer and loss", "", 2),
)


def goals(rows: list[Row]) -> list[Row]:
    """Every goal that the rows can answer, and what came out."""
    found = []
    for what, peer, least in GOALS:
        fits = [row for row in rows if row["measured"].startswith(what) and row["peer"].startswith(peer)]
        if fits:
            ratio = min(row["times_as_fast"] for row in fits)
            told = {"measured": what, "beside": peer or "each peer", "goal": float(least), "found": ratio}
            found.append({**told, "reached": "yes" if ratio >= least else "no"})
    return found


def rows_of(path: Path) -> list[Row]:
    """The ratios of a record."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    compared = {"nargs": 2, "type": Path, "metavar": ("OLD", "NEW")}
    parser.add_argument("--compare", **compared, help="measure nothing: say which ratios fell between two records")
    given = parser.parse_args()
    if given.compare:
        old, new = map(rows_of, given.compare)
        lost = fallen(new, old)
        print("\n".join(lost) or "no ratio fell by more than 15 percent")
        return bool(lost)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: list[Row] = []
    for part in given.only:
        for row in PARTS[part](given.repeats):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if given.record:
        everything = given.only == list(PARTS)
        only = "" if everything else f" --only {' '.join(given.only)}"
        command = f"python benchmarks/peers.py --repeats {given.repeats}{only} --record {given.record}"
        content = {
            **run_metadata(command, [0]),
            "title": "The library beside its peers",
            "data": "random numbers; text to text: the 1,000 sentences of Multi30k's test of 2016",
            "notes": f"one thread; medians of {given.repeats} turns, quartiles of the ratios",
            "peers": versions(),
            "rows": rows,
            "goals": goals(rows),
        }
        if "decoding" in given.only:
            content["profile"] = profile()
        write_json(given.record, content)
    return 0


def versions() -> dict[str, str]:
    """Which peers were there."""
    found = {}
    for name in ("transformers", "x-transformers", "ctranslate2", "joeynmt"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
