"""What each part of the recipe is worth: a small Transformer on captions with one part changed at a time.

    python benchmarks/ablations.py [--seeds 0 1 2] [--record results/ablations.json]

All runs see the same captions for the same number of updates. The highest learning rate is large on purpose: a recipe
is there for training fast. Scores are means over the seeds, with the lowest and highest validation loss and BLEU beside
them.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn

from transformer_lib.data.batching import Example, batches, encode_pairs
from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.tokenizer import PAD, Tokenizer
from transformer_lib.decoding.greedy import translate
from transformer_lib.metrics import bleu, exact_match
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.loop import evaluate_loss
from transformer_lib.training.schedule import TrainingConfig
from transformer_lib.training.trainer import Trainer

SIZES = {"d_model": 64, "n_heads": 4, "n_encoder_layers": 2, "n_decoder_layers": 2, "d_ff": 128, "dropout": 0.1}
TRAINING = {"epochs": 6, "max_tokens": 500, "learning_rate": 1e-2, "schedule": "linear", "warmup": 40, "average": 0}
VARIANTS: dict[str, tuple[dict, dict]] = {  # changes of the model, changes of the training
    "the recipe": ({}, {}),
    "no warm-up": ({}, {"warmup": 0}),
    "no label smoothing": ({}, {"smoothing": 0.0}),
    "no division by the root of K": ({"scale": False}, {}),
    "pre-norm": ({"norm_first": True}, {}),
    "pre-norm, no warm-up": ({"norm_first": True}, {"warmup": 0}),
    "the second beta 0.999": ({}, {"betas": (0.9, 0.999)}),
    "no clipping": ({}, {"clip": 1e9}),
}


class Corpus:
    """Captions to learn and others to be measured on."""

    def __init__(self, n: int = 2500) -> None:
        pairs = make_captions(n, seed=0, min_length=4, max_length=7)
        seen = {pair.source for pair in pairs}
        others = make_captions(2000, seed=1, min_length=4, max_length=7)
        self.held_out: list[Pair] = [pair for pair in others if pair.source not in seen][:300]
        self.english = Tokenizer.train([pair.source for pair in pairs], level="word")
        self.german = Tokenizer.train([pair.target for pair in pairs], level="word")
        self.train: list[Example] = encode_pairs(pairs, self.english, self.german)
        self.validation: list[Example] = encode_pairs(self.held_out, self.english, self.german)


def without_scale(model: nn.Module) -> None:
    """Undo the division of the scores: every query is made larger by the root of the head width."""
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):

            def attend(queries: Tensor, *rest: object, inner=layer._attend, times: float = math.sqrt(layer.d_key)):
                return inner(queries * times, *rest)

            layer._attend = attend


@torch.no_grad()
def confidence(model: nn.Module, examples: list[Example]) -> tuple[float, float]:
    """With the right words before it: the share of right guesses, and the mean probability of the guesses."""
    model.eval()
    right, believed, n_tokens = 0.0, 0.0, 0
    for batch in batches(examples, 2000):
        best, token = model(batch.source, batch.target_input).softmax(dim=-1).max(dim=-1)
        there = batch.target_output != PAD
        right += (token == batch.target_output)[there].sum().item()
        believed += best[there].sum().item()
        n_tokens += batch.n_tokens
    return right / n_tokens, believed / n_tokens


def run(corpus: Corpus, name: str, seed: int) -> dict[str, float]:
    """Train one variant and measure it."""
    model_changes, training_changes = (dict(changes) for changes in VARIANTS[name])
    scale = model_changes.pop("scale", True)
    torch.manual_seed(seed)
    sizes = {**SIZES, **model_changes, "tie_embeddings": "target"}
    model = Transformer(TransformerConfig(corpus.english.vocab_size, corpus.german.vocab_size, **sizes))
    if not scale:
        without_scale(model)
    config = TrainingConfig(**{**TRAINING, **training_changes}, seed=seed)
    Trainer(model, corpus.train, corpus.validation, config).fit()
    references = [pair.target for pair in corpus.held_out]
    found = translate(model, [pair.source for pair in corpus.held_out], corpus.english, corpus.german)
    right, believed = confidence(model, corpus.validation)
    return {
        "validation_loss": evaluate_loss(model, batches(corpus.validation, 2000)),
        "bleu": bleu(found, references).score,
        "exact_match": 100 * exact_match(found, references),
        "right": 100 * right,
        "confidence": 100 * believed,
    }


def row(name: str, results: list[dict[str, float]]) -> dict[str, object]:
    """Means over the seeds, and the range of the loss and of BLEU."""
    losses, scores = ([result[measure] for result in results] for measure in ("validation_loss", "bleu"))
    found = {"variant": name, "validation_loss": round(mean(losses), 3)}
    found |= {"lowest": round(min(losses), 3), "highest": round(max(losses), 3)}
    found |= {"bleu_lowest": round(min(scores), 1), "bleu_highest": round(max(scores), 1)}
    for measure in ("bleu", "exact_match", "right", "confidence"):
        found[measure] = round(mean(result[measure] for result in results), 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    corpus, rows = Corpus(), []
    for name in VARIANTS:
        rows.append(row(name, [run(corpus, name, seed) for seed in given.seeds]))
        print(json.dumps(rows[-1]), flush=True)
    if given.record is not None:
        from transformer_lib.data.files import write_json
        from transformer_lib.translation.evaluation import run_metadata

        command = f"python benchmarks/ablations.py --record {given.record}"
        if given.seeds != [0, 1, 2]:
            command += " --seeds " + " ".join(map(str, given.seeds))
        content = {
            **run_metadata(command, given.seeds),
            "title": "The recipe of training with one part changed at a time, on captions",
            "data": f"{len(corpus.train)} captions of 4 to 7 words, {len(corpus.held_out)} others to measure on",
            "notes": f"a Transformer of 2 + 2 layers, width 64; {TRAINING['epochs']} passes; highest rate "
            f"{TRAINING['learning_rate']}; scores in percent, losses in nats a token",
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
