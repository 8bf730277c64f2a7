"""Greedy and beam search beside Hugging Face, and with a cache beside without: ratios measured in one run.

    python benchmarks/decoding.py [--device cpu] [--repeats 5] [--record results/decoding.json]

Absolute times mean little on a shared machine; the ratio of two measurements that take turns means more. Each pair is
measured alternately and the medians are divided; beside that stand the lowest and the highest ratio of two that took
turns. On a CPU one thread computes, and the clock is that of the process, which stands still while another program has
the core. Both sides have the same weights, read the same 32 sentences and write 40 tokens for each; before a pair is
timed, its two outputs are compared. The model is a Marian Transformer with 3 + 3 layers, width 256, 4 heads and 10,000
tokens. The last row is of another size, the paper's base model with 10,000 tokens and 128 sentences, and is measured
once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from marian import marian_model

from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.decoding.search import WithoutCache, beam_search
from transformer_lib.models.convert import from_marian
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.translation.evaluation import run_metadata

Written = Callable[[], list[list[int]]]
ROWS, LENGTH, VOCABULARY = 32, 40, 10_000


def models(device: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The same weights on both sides; EOS is made so unlikely that every sentence has all its tokens."""
    torch.manual_seed(0)
    theirs = marian_model(VOCABULARY, 256, 4, (3, 3), 1024, max_length=128, init_std=0.05)
    with torch.no_grad():
        theirs.model.shared.weight[EOS] = 0
    ours = from_marian(theirs.config.to_dict(), theirs.state_dict())
    return ours.to(device), theirs.to(device)


def sources(device: str, rows: int = ROWS) -> torch.Tensor:
    """Sentences of 10 to 20 tokens."""
    source = torch.randint(4, VOCABULARY, (rows, 20))
    for row, length in zip(source, torch.randint(10, 21, (rows,)).tolist(), strict=True):
        row[length - 1], row[length:] = EOS, PAD
    return source.to(device)


def base_model(device: str) -> Transformer:
    """The paper's base model with fresh weights; EOS never scores best."""
    torch.manual_seed(0)
    sizes = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY, "max_length": 64}
    model = Transformer(replace(TransformerConfig.base(), **sizes)).eval()
    with torch.no_grad():
        model.target_embedding.weight[EOS] = 0
    return model.to(device)


def our_search(model: torch.nn.Module, source: torch.Tensor, beams: int) -> Written:
    """Greedy search with one beam, beam search with more."""
    if beams == 1:
        return lambda: greedy_decode(model, source, max_length=LENGTH).tolist()
    return lambda: [
        list(found[0].tokens)
        for found in beam_search(
            model, source, beam_size=beams, length_penalty=1, max_length=LENGTH, normalization="mean"
        )
    ]


def their_search(model: torch.nn.Module, source: torch.Tensor, beams: int, cache: bool = True) -> Written:
    """The same search by Hugging Face."""
    options = {"num_beams": beams, "max_new_tokens": LENGTH, "do_sample": False, "use_cache": cache}
    if beams > 1:
        options |= {"length_penalty": 1.0, "early_stopping": "never"}
    mask = (source != PAD).long()

    @torch.no_grad()
    def search() -> list[list[int]]:
        written = model.generate(input_ids=source, attention_mask=mask, bad_words_ids=[[PAD], [BOS]], **options)
        return written[:, 1:].tolist()

    return search


def seconds(search: Written, device: str) -> float:
    """The time of one search; on a CPU without the time in which other programs had the core."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    started = clock()  # a search ends with its tokens on the CPU: nothing is left in a queue
    search()
    return clock() - started


def measure(ours: Written, peer: Written, device: str, repeats: int) -> dict[str, float]:
    """Tokens for each second of both, and how many times as fast ours is; the two take turns."""
    found = list(zip(ours(), peer(), strict=True))
    rows, same = len(found), sum(mine == yours for mine, yours in found)
    if same < 0.9 * rows:  # a tie may be broken in two ways
        raise ValueError(f"the two searches agree about {same} of {rows} sentences: they do not do the same work")
    times = [(seconds(ours, device), seconds(peer, device)) for _ in range(repeats)]
    mine, yours = (statistics.median(column) for column in zip(*times, strict=True))
    rates = [round(rows * LENGTH / duration) for duration in (mine, yours)]
    ratios = sorted(theirs / own for own, theirs in times)
    return {
        "tokens_per_second": rates[0],
        "peer_tokens_per_second": rates[1],
        "times_as_fast": round(yours / mine, 2),
        "lowest": round(ratios[0], 2),
        "highest": round(ratios[-1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ours, theirs = models(given.device)
    source = sources(given.device)
    naive = WithoutCache(ours)
    pairs = {
        "greedy: ours / Hugging Face": (our_search(ours, source, 1), their_search(theirs, source, 1)),
        "beam of 4: ours / Hugging Face": (our_search(ours, source, 4), their_search(theirs, source, 4)),
        "greedy: cache / no cache": (our_search(ours, source, 1), our_search(naive, source, 1)),
        "beam of 4: cache / no cache": (our_search(ours, source, 4), our_search(naive, source, 4)),
    }
    rows = []
    for name, (search, peer) in pairs.items():
        rows.append({"measured": name, **measure(search, peer, given.device, given.repeats)})
        print(json.dumps(rows[-1]), flush=True)
    base, many = base_model(given.device), sources(given.device, rows=4 * ROWS)
    large = measure(our_search(base, many, 1), our_search(WithoutCache(base), many, 1), given.device, repeats=1)
    rows.append({"measured": "greedy, base, 128 sentences: cache / no cache", **large})
    print(json.dumps(rows[-1]), flush=True)
    if given.record is not None:
        command = f"python benchmarks/decoding.py --record {given.record}"
        command += f" --device {given.device}" * (given.device != "cpu")
        content = {
            **run_metadata(command, [0]),
            "title": "Decoding beside Hugging Face's, and a cache beside none: how many times as fast",
            "data": f"random numbers, {ROWS} sentences of 10 to 20 tokens, {LENGTH} tokens written for each",
            "notes": f"threads: {torch.get_num_threads()}; medians of {given.repeats} searches in turns; 3 + 3 layers, "
            f"width 256, 4 heads, {VOCABULARY} tokens; the last row: one search, the paper's base model",
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
