"""One stack against two: decoder-only models on the captions of benchmarks/three_models.py, with the same batches.

    python benchmarks/decoder_only.py [--record results/decoder-only.json]

Five layers have about as many parameters as the two and two layers of the Transformer there. Both languages share one
vocabulary of words. Three variants: the loss counts the target alone, source and target, or the target alone while
source words attend to the whole source. A fourth kind, ``two``, is the control: two stacks with everything else that
one stack has (learned positions, the norm first, GELU, one vocabulary and one table of vectors, the learning rate).
``nats`` is the mean cross-entropy of source and target tokens on the test set.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import three_models
import torch
from three_models import Learner, Task

from transformer_lib.data.batching import collate, encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.models.seq2seq import Seq2Seq, eval_mode, sequence_loss
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.translation.evaluation import run_metadata

SIZES = {"d_model": 96, "n_heads": 4, "n_layers": 5, "d_ff": 192, "dropout": 0.0, "max_length": 64}
VARIANTS: dict[str, dict[str, Any]] = {"target": {}, "both": {"source_loss": True}, "full": {"full_source": True}}
TWO: dict[str, Any] = {"activation": "gelu", "norm_first": True, "positions": "learned", "tie_embeddings": "all"}
TWO |= three_models.TRANSFORMER | {"max_length": SIZES["max_length"]}
RATE, TURN = 4e-3, 270


class OneStack(Task):
    """The captions with one vocabulary for both languages."""

    def __init__(self) -> None:
        super().__init__()
        training = make_captions(12_000, seed=0, min_length=4, max_length=14)
        texts = [pair.source for pair in training] + [pair.target for pair in training]
        self.english = self.german = Tokenizer.train(texts, level="word")
        self.examples = encode_pairs(training, self.english, self.german)
        pairs = [pair for some in self.test.values() for pair in some]
        self.held_out = collate(encode_pairs(pairs, self.english, self.german))

    def model(self, kind: str, seed: int) -> Seq2Seq:
        torch.manual_seed(seed)
        words = self.english.vocab_size
        if kind == "two":
            return Transformer(TransformerConfig(words, words, **TWO))
        return GPT(GPTConfig(words, **SIZES, **VARIANTS[kind]))

    def nats(self, model: Seq2Seq) -> dict[str, float]:
        """Mean cross-entropy of the source's tokens after the first (of one stack), and of the target's."""
        batch = self.held_out
        with eval_mode(model):
            memory = model.encode(batch.source, batch.source_mask)
            if not isinstance(model, GPT):
                target = sequence_loss(model.decode(batch.target_input, memory), batch.target_output)
                return {"target": round(target.item(), 3)}
            logits = model._logits(model._read(batch.target_input, memory))
        split = batch.source.shape[1]
        source = sequence_loss(logits[:, : split - 1], batch.source[:, 1:])
        target = sequence_loss(logits[:, split:], batch.target_output)
        return {"source": round(source.item(), 3), "target": round(target.item(), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--models", nargs="+", default=[*VARIANTS, "two"], choices=[*VARIANTS, "two"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rate", type=float, default=RATE)
    given = parser.parse_args()
    torch.set_num_threads(1)
    three_models.TURN = TURN
    task, rows = OneStack(), []
    if given.record and given.record.exists():  # what is there is not run again
        rows = json.loads(given.record.read_text(encoding="utf-8"))["rows"]
    done = {(row["model"], row["seed"]) for row in rows}
    about = run_metadata("python benchmarks/decoder_only.py --record results/decoder-only.json", [0, 1, 2])
    data = "12,000 captions of 4 to 14 words; tested on 25 of each length; greedy decoding; one thread"
    for seed in given.seeds:
        missing = [kind for kind in given.models if (kind, seed) not in done]
        learners = [Learner(task, kind, seed, given.rate) for kind in missing]
        for _ in range(three_models.UPDATES // TURN):
            for learner in learners:
                learner.turn()
        for learner in learners:
            row = learner.row | {"nats": task.nats(learner.model)}
            rows.append(row)
            print(row["model"], row["rate"], seed, row["parameters"], row["seconds"][-1], row["exact_match"],
                  row["nats"], flush=True)  # fmt: skip
        if given.record:  # after each seed, so that little is lost if the machine stops
            title = "One stack: decoder-only models"
            write_json(given.record, {**about, "title": title, "data": data, "rows": rows})


if __name__ == "__main__":
    main()
