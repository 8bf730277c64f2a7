"""What each part of a decoder of today is worth at the size of chapter 21, and how far each decoder reads.

    python benchmarks/todays_decoder.py --record results/todays-decoder.json

Models of letters learn English captions of 4 to 14 words, one to a line, in windows of 64 letters, and then read
windows of 256 letters of captions that they have not seen. Each variant takes one part of today's decoder back to what
GPT-2 had; the last takes back all of them and is GPT-2's design, biases included. Widths, layers, batches, updates and
schedule are the same for all, and the inner width of the feed-forward layers is chosen so that the parameters are
nearly so; but a table of 256 learned positions comes on top, of which 64 are trained. Every variant is trained with
each of four learning rates with the first seed; the other seeds use the one that is best on other text than the test's.
Rows of a record that are there already are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.captions import make_captions
from transformer_lib.data.files import write_json
from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.models.llama import Llama, LlamaConfig
from transformer_lib.models.positions import LearnedPositions
from transformer_lib.models.sublayers import FeedForward, LayerNorm
from transformer_lib.translation.evaluation import run_metadata

WINDOW, READ, BUCKET, ROWS = 64, 256, 16, 32
RATES = (4e-3, 8e-3, 16e-3, 32e-3)
SIZES = {"d_model": 64, "n_heads": 4, "n_layers": 2, "dropout": 0.0, "max_length": READ, "max_source_length": 0}
TODAY = {**SIZES, "d_ff": 176, "n_kv_heads": 2, "rotary_base": 10_000.0, "tie_embeddings": True}
VARIANTS = ("today", "learned positions", "layer norm", "GELU", "all heads keep keys", "biases", "GPT-2's design")


class Variant(Llama):
    """Today's decoder with one part of GPT-2's."""

    def __init__(self, name: str, vocab_size: int) -> None:
        kept = {"n_kv_heads": 4, "d_ff": 155} if name == "all heads keep keys" else {}
        super().__init__(LlamaConfig(vocab_size, **TODAY | kept))
        self.places = None
        if name == "learned positions":
            self.places = LearnedPositions(self.config.d_model, READ)
        elif name == "layer norm":
            for module in (self.stack, *self.stack.layers):
                for child, _ in list(module.named_children()):
                    if "norm" in child:
                        setattr(module, child, LayerNorm(self.config.d_model))
        elif name == "GELU":
            for layer in self.stack.layers:
                layer.feed_forward = FeedForward(self.config.d_model, 264, activation="gelu")
                layer.feed_forward.linear1.bias = layer.feed_forward.linear2.bias = None
        elif name == "biases":
            for module in self.stack.modules():
                if isinstance(module, nn.Linear):
                    module.bias = nn.Parameter(torch.zeros(module.out_features))

    def _embed(self, tokens: Tensor, places: Tensor) -> Tensor:
        x = super()._embed(tokens, places)
        return x if self.places is None else x + self.places.table[places]

    def _layers(self, x: Tensor, mask: Tensor, places: Tensor, caches: Any = None) -> Tensor:
        turned = places if self.places is None else torch.zeros_like(places)  # by nothing
        return super()._layers(x, mask, turned, caches)


def build(name: str, vocab_size: int) -> nn.Module:
    if name == "GPT-2's design":
        return GPT(GPTConfig(vocab_size, **SIZES, d_ff=232))
    return Variant(name, vocab_size)


class Task:
    """The letters of captions, for training and for reading."""

    def __init__(self) -> None:
        training = make_captions(20_000, seed=0, min_length=4, max_length=14)
        known = {pair.source for pair in training}
        drawn = make_captions(16_000, seed=1, min_length=4, max_length=14)
        unseen = [pair.source for pair in drawn if pair.source not in known]
        texts = [pair.source for pair in training]
        self.letters = {letter: i for i, letter in enumerate(sorted(set("\n".join(texts))), start=1)}
        self.training = self._stream(texts)
        half = len(unseen) // 2
        self.test, self.validation = (self._windows(some) for some in (unseen[:half], unseen[half:]))

    def _windows(self, texts: list[str], rows: int = 200) -> Tensor:
        stream = self._stream(texts)
        assert len(stream) > rows * READ
        return stream[: rows * READ + 1]

    def _stream(self, texts: list[str]) -> Tensor:
        return torch.tensor([self.letters[letter] for text in texts for letter in "\n" + text])

    def batch(self, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(self.training) - WINDOW - 1, (ROWS,), generator=draw)
        found = self.training[starts[:, None] + torch.arange(WINDOW + 1)]
        return found[:, :-1], found[:, 1:]

    def train(self, name: str, seed: int, rate: float, updates: int) -> tuple[nn.Module, float]:
        torch.manual_seed(seed)
        model, draw = build(name, len(self.letters) + 1), torch.Generator().manual_seed(seed)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95))
        nothing = torch.empty(ROWS, 0, dtype=torch.long)
        started = time.process_time()
        for update in range(updates):
            optimizer.param_groups[0]["lr"] = rate * min((update + 1) / 30, 1 - update / updates)
            tokens, wanted = self.batch(draw)
            loss = F.cross_entropy(model(nothing, tokens).flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return model.eval(), round(time.process_time() - started, 1)

    @torch.no_grad()
    def bits(self, model: nn.Module, text: Tensor) -> list[float]:
        """Bits a letter in unseen text, for each 16 positions of a window."""
        tokens, wanted = text[:-1].unflatten(0, (-1, READ)), text[1:].unflatten(0, (-1, READ))
        nothing = torch.empty(len(tokens), 0, dtype=torch.long)
        losses = F.cross_entropy(model(nothing, tokens).transpose(1, 2), wanted, reduction="none")
        return [round(x / math.log(2), 4) for x in losses.mean(dim=0).unflatten(0, (-1, BUCKET)).mean(dim=1).tolist()]


def inside(bits: list[float]) -> float:
    """Bits a letter at the positions of training, but for the first sixteen, where little is known."""
    return sum(bits[1 : WINDOW // BUCKET]) / (WINDOW // BUCKET - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--updates", type=int, default=1000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if given.record and given.record.is_file():
        rows = json.loads(given.record.read_text(encoding="utf-8"))["rows"]
    task = Task()

    def run(name: str, seed: int, rate: float) -> None:
        key = {"variant": name, "seed": seed, "rate": rate}
        if any(key.items() <= row.items() for row in rows):
            return
        model, seconds = task.train(name, seed, rate, given.updates)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        bits = {name: task.bits(model, text) for name, text in (("bits", task.test), ("validation", task.validation))}
        rows.append({**key, "parameters": parameters, "seconds": seconds, **bits})
        print(name, seed, rate, parameters, seconds, rows[-1]["bits"], flush=True)
        if given.record:
            command = f"python benchmarks/todays_decoder.py {shlex.join(sys.argv[1:])}"
            about = run_metadata(command, sorted({row["seed"] for row in rows}))
            data = (
                f"the letters of English captions; {given.updates} updates with {ROWS} windows of {WINDOW}; "
                f"bits a letter in unseen windows of {READ}, for each {BUCKET} positions"
            )
            write_json(
                given.record,
                {**about, "title": "What each part of today's decoder is worth", "data": data, "rows": rows},
            )

    for name in VARIANTS:
        for rate in RATES:
            run(name, 0, rate)
        found = {row["rate"]: inside(row["validation"]) for row in rows if row["variant"] == name and row["seed"] == 0}
        best = min(found, key=found.__getitem__)
        for seed in (1, 2):
            run(name, seed, best)
    return 0


if __name__ == "__main__":
    sys.exit(main())
