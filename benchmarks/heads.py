"""One head or four: taggers of one layer and one size, after trainings of different length.

    python benchmarks/heads.py [--record results/heads.json]

The tagger, its captions and its training are those of chapter 11. Every row is one training of its own, whose learning
rate falls to zero at its end. One head and four share one width, so they have the same parameters and make the same
multiplications. Rows of a record that are there already are not run again, so that it can be stopped and continued.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import PAD, Tokenizer
from transformer_lib.models.masks import padding_mask
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.translation.evaluation import run_metadata

D_MODEL, LENGTH = 64, 14
KEPT = tuple(f"the dog does not cross the street because it is too {word}" for word in ("tired", "wide"))
# heads and epochs; what tells most comes first
SETTINGS = [(4, 6), (1, 6), (1, 18), (1, 12)]
RATE = 5e-3
SEEDS = (0, 1, 2)


class Task:
    """Captions, the German form of every English word, and which of the words are pronouns."""

    def __init__(self) -> None:
        pairs = make_captions(10_000, seed=0, min_length=8, max_length=LENGTH)
        pairs = [pair for pair in pairs if pair.source not in KEPT]
        test, train = pairs[:1250], pairs[1250:]
        self.english = Tokenizer.train([pair.source for pair in train], level="word")
        self.german = Tokenizer.train([pair.target for pair in train], level="word")
        self.train, self.test = self.tensors(train), self.tensors(test)

    def tensors(self, pairs: list[Pair]) -> tuple[Tensor, Tensor]:
        words = torch.full((len(pairs), LENGTH), PAD)
        labels = words.clone()
        for row, pair in enumerate(pairs):
            ids, target = self.english.encode(pair.source), self.german.encode(pair.target)
            words[row, : len(ids)] = torch.tensor(ids)
            for i, j in reversed(pair.alignment):
                labels[row, i] = target[j]
        return words, labels


class Tagger(nn.Module):
    def __init__(self, task: Task, n_heads: int, d_model: int = D_MODEL) -> None:
        super().__init__()
        self.words = nn.Embedding(task.english.vocab_size, d_model)
        self.places = nn.Embedding(LENGTH, d_model)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.3)
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.network = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.output = nn.Linear(d_model, task.german.vocab_size)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places.weight[: words.shape[1]]  # (B, T, D)
        x = x + self.attention(self.norm1(x), mask=padding_mask(words))
        x = x + self.network(self.norm2(x))
        return self.output(self.norm3(x))


def train_tagger(task: Task, n_heads: int, epochs: int, seed: int) -> Tagger:
    torch.manual_seed(seed)
    words, labels = task.train
    tagger = Tagger(task, n_heads)
    optimizer = torch.optim.AdamW(tagger.parameters(), lr=RATE)
    n_batches = len(words) // 64
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, epochs * n_batches, pct_start=0.1)
    for _ in range(epochs):
        for rows in torch.randperm(len(words))[: 64 * n_batches].split(64):
            logits = tagger(words[rows])
            loss = F.cross_entropy(logits.flatten(0, 1), labels[rows].flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return tagger.eval()


@torch.no_grad()
def scores(task: Task, tagger: Tagger) -> dict[str, float]:
    words, labels = task.test
    right = (tagger(words).argmax(dim=-1) == labels).double()
    told = labels != PAD
    pronouns = told & (words == task.english.encode("it")[0])
    return {
        name: round(100 * right[where].mean().item(), 1) for name, where in (("words", told), ("pronouns", pronouns))
    }


def write(record: Path | None, command: str, rows: list[dict[str, Any]]) -> None:
    if record:
        title = "One layer of attention with one head and with four: right forms in percent"
        data = "8,750 captions of 8 to 14 words, tested on 1,250 others"
        write_json(record, {**run_metadata(command, SEEDS), "title": title, "data": data, "rows": rows})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    command, rows = f"python benchmarks/heads.py {shlex.join(sys.argv[1:])}", []
    if given.record and given.record.is_file():
        rows = json.loads(given.record.read_text(encoding="utf-8"))["rows"]
    task = Task()
    for (heads, epochs), seed in product(SETTINGS, SEEDS):
        setting = {"heads": heads, "epochs": epochs, "seed": seed}
        if any(setting.items() <= row.items() for row in rows):
            continue
        start = time.process_time()
        tagger = train_tagger(task, heads, epochs, seed)
        seconds = round(time.process_time() - start)
        rows.append({**setting, "seconds": seconds, **scores(task, tagger)})
        print(rows[-1], flush=True)
        write(given.record, command, rows)  # after each row, so that little is lost if the machine stops
    write(given.record, command, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
